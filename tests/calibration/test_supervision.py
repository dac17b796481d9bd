"""A probe whose process dies or hangs: it is named, the others are measured, and nothing stays behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from command_lines import words_of

from roofmon.calibration.client import run_worker
from roofmon.errors import RoofmonError
from roofmon.stream.framing import Deframer
from roofmon.stream.messages import Message, ProgressMessage

pytestmark = pytest.mark.usefixtures("own_directories")

PROBES = ["--probe=gemm-fp32", "--probe=gemm-fp64"]
ARGUMENTS = ["--no-cache", *PROBES]  # 1.5 s each: time enough to be hurt in


def measuring() -> psutil.Process:
    """The process that measures, of whichever worker this test has started."""
    (found,) = [
        process
        for process in psutil.Process().children(recursive=True)
        if "roofmon.calibration.bench_worker" in words_of(process)
    ]
    return found


def hurting(signum: int, hurt: list[int]) -> Callable[[Message], None]:
    """Sends a signal to the process that measures as soon as the fp32 product begins."""

    def follow(message: Message) -> None:
        if isinstance(message, ProgressMessage) and "fp32" in message.progress.text and not hurt:
            process = measuring()
            hurt.append(process.pid)
            os.kill(process.pid, signum)

    return follow


@pytest.mark.slow
def test_the_probe_that_kills_its_process_is_named_and_the_others_go_on() -> None:
    hurt: list[int] = []
    result = run_worker(ARGUMENTS, hurting(signal.SIGKILL, hurt))
    assert result.failures == {"gemm-fp32": "the process that measures died of SIGKILL"}
    assert [ceiling.probe for ceiling in result.measurements] == ["gemm-fp64"]
    assert not result.worth_keeping
    assert not psutil.pid_exists(hurt[0])


@pytest.mark.slow
def test_the_probe_that_hangs_is_ended_at_its_limit() -> None:
    hurt: list[int] = []
    result = run_worker([*ARGUMENTS, "--probe-limit", "3"], hurting(signal.SIGSTOP, hurt))
    assert result.failures == {
        "gemm-fp32": "the process that measures did not go on for 3 s and was ended"
    }
    assert [ceiling.probe for ceiling in result.measurements] == ["gemm-fp64"]
    assert not psutil.pid_exists(hurt[0])


@pytest.mark.slow
def test_all_that_die_give_no_roof_but_the_reason() -> None:
    def kill(message: Message) -> None:
        if isinstance(message, ProgressMessage) and message.progress.text:
            measuring().kill()

    with pytest.raises(RoofmonError) as caught:
        run_worker([*ARGUMENTS, "--probe=copy"], kill)
    assert (
        caught.value.what == "no probe gave a roof; copy: the process that measures died of SIGKILL"
    )


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "roofmon.calibration.worker", *arguments]
        started.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        )
        return started[-1]

    yield start
    for process in started:
        with process:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "killed"])
def test_a_process_that_hangs_does_not_outlive_the_worker(
    start: Callable[..., "subprocess.Popen[bytes]"], how: str
) -> None:
    worker = start(*ARGUMENTS)
    assert worker.stdout is not None
    assert worker.stdin is not None
    deframer: Deframer[Message] = Deframer(msgspec.msgpack.Decoder(Message))
    while not any(isinstance(m, ProgressMessage) for m in deframer.feed(worker.stdout.read(4096))):
        pass
    child = measuring()
    if how == "stop":
        child.suspend()  # no library call that hangs is any deafer
        began = time.monotonic()
        worker.stdin.close()
        assert worker.wait(20) == 0
        # 0.2 s on a machine of one's own.
        assert time.monotonic() - began < 1.0
    else:
        worker.kill()
    gone, _ = psutil.wait_procs([child], timeout=20)
    assert gone


@pytest.mark.slow
def test_a_calibration_in_the_background_gives_up_when_others_work(own_directories: Path) -> None:
    loop = "while True: pass"
    others = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(os.cpu_count() or 1)]
    command = [sys.executable, "-m", "roofmon.calibration.worker", "--while-idle", "--scale", "0.1"]
    output = own_directories / "result.json"
    try:
        with subprocess.Popen(
            [*command, "--output", str(output)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        ) as worker:
            assert worker.wait(20) == 0
    finally:
        for other in others:
            with other:
                other.kill()
    assert not output.exists()
    assert not (own_directories / "cache").exists()
