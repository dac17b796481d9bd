import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from roofmon.stream.framing import Deframer
from roofmon.stream.messages import Describe, Message, Tick
from roofmon.telemetry.host import describe_cpu

COMMAND = [sys.executable, "-m", "roofmon.telemetry.worker", "--interval", "0.1"]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        bufsize=0,
    ) as process:
        yield process
        process.kill()


def read(worker: subprocess.Popen[bytes], count: int) -> list[Message]:
    deframer: Deframer[Message] = Deframer(msgspec.msgpack.Decoder(Message))
    messages: list[Message] = []
    assert worker.stdout is not None
    while len(messages) < count:
        data = worker.stdout.read(65536)
        assert data, "the worker ended"
        messages += deframer.feed(data)
    return messages


def test_it_describes_the_cpu_and_then_samples_it(worker: subprocess.Popen[bytes]) -> None:
    described, *ticks = read(worker, 4)
    assert described == Describe(devices=[describe_cpu()])
    assert [tick.sequence for tick in ticks if isinstance(tick, Tick)] == [0, 1, 2]
    for tick in ticks:
        assert isinstance(tick, Tick)
        assert [sample.device for sample in tick.samples] == [describe_cpu().uuid]
        assert tick.interval_ns > 0.05e9
    process = psutil.Process(worker.pid)
    assert not any("numpy" in mapping.path for mapping in process.memory_maps())
    assert process.memory_info().rss < 30 * 2**20


def test_it_ends_when_its_stdin_closes(worker: subprocess.Popen[bytes]) -> None:
    read(worker, 1)
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(2) == 0


def test_it_ends_at_sigterm(worker: subprocess.Popen[bytes]) -> None:
    read(worker, 1)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(2) == 0


def test_it_ends_when_nobody_reads(worker: subprocess.Popen[bytes]) -> None:
    read(worker, 1)
    assert worker.stdout is not None
    worker.stdout.close()
    assert worker.wait(2) == 0


def test_it_does_not_outlive_a_parent_that_is_killed() -> None:
    code = (
        "import subprocess, sys\n"
        f"p = subprocess.Popen({COMMAND!r}, stdin=0, stdout=subprocess.PIPE)\n"
        "p.stdout.read(16); print(p.pid, flush=True); p.wait()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()  # its stdin, which the worker shares, stays open here
    parent.wait()
    deadline = time.monotonic() + 3
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(pid)
    parent.communicate()


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_senseless_interval_is_refused() -> None:
    result = subprocess.run(
        [*COMMAND[:-1], "0"], capture_output=True, text=True, check=False, timeout=20
    )
    assert result.returncode == 2
    assert "--interval must be between" in result.stderr
