import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from roofmon.calibration.cache import cpu_conditions, store
from roofmon.calibration.client import run_worker
from roofmon.calibration.lock import device_lock
from roofmon.calibration.manifest import load_probes
from roofmon.calibration.probe import probes_for
from roofmon.calibration.results import CalibrationResult, roofline_of
from roofmon.errors import ExitCode, RoofmonError
from roofmon.model.roofline import Ceiling
from roofmon.stream.framing import Deframer
from roofmon.stream.messages import Message, NoticeMessage, ProgressMessage, Roofs
from roofmon.telemetry.host import read_host

SMALL = ["--scale", "0.02", "--no-cache"]
HOST = read_host()

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CONFIG", "CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "roofmon.calibration.worker", *arguments]
        started.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        )
        return started[-1]

    yield start
    for process in started:
        with process:
            process.kill()


def messages(worker: subprocess.Popen[bytes]) -> Iterator[Message]:
    deframer: Deframer[Message] = Deframer(msgspec.msgpack.Decoder(Message))
    assert worker.stdout is not None
    while data := worker.stdout.read(65536):
        yield from deframer.feed(data)


def notices(received: list[Message]) -> list[str]:
    return [m.notice.what for m in received if isinstance(m, NoticeMessage)]


def kept_result() -> CalibrationResult:
    """A calibration in the cache that no measurement could have given."""
    probes = probes_for(load_probes()[0], "cpu")
    conditions = cpu_conditions(HOST, probes, "full")
    ceiling = Ceiling(
        kind="bandwidth",
        value=123.0,
        ci_low=122.0,
        ci_high=124.0,
        regime="sustained",
        n=10,
        probe="axpy",
        level="dram",
    )
    result = CalibrationResult(
        device=HOST.uuid,
        mode="full",
        roofline=roofline_of([ceiling], probes, conditions),
        measurements=(ceiling,),
        time_unix_s=time.time(),
        seconds=6.5,
    )
    store(conditions, result)
    return result


@pytest.mark.slow
def test_roofs_grow_while_probes_run_and_nothing_is_left_behind(own_directories: Path) -> None:
    received: list[Message] = []
    result = run_worker(SMALL, received.append)
    progress = [m.progress for m in received if isinstance(m, ProgressMessage)]
    # A busy machine makes it measure some probes a second time before the end.
    first_time = [p.done for p in progress if not p.text.startswith("once more")]
    assert first_time == list(range(10))
    assert {(p.task, p.device, p.total) for p in progress} == {("calibration", HOST.uuid, 9)}
    assert progress[0].text == "DRAM copy: c ← a"
    roofs = [m for m in received if isinstance(m, Roofs)]
    assert len(roofs[0].roofline.ceilings) == 1
    assert roofs[-1].roofline == result.roofline
    assert [m.probe for m in result.measurements] == [
        p.name for p in probes_for(load_probes()[0], "cpu")
    ]
    assert {c.name for c in result.roofline.ceilings} >= {"DRAM", "fp32", "fp64"}
    assert result.failures == {}
    assert list((own_directories / "run" / "roofmon").iterdir()) == []
    assert not (own_directories / "cache").exists()


def test_valid_roofs_are_sent_at_once_and_measured_anew_on_request(start: Start) -> None:
    kept = kept_result()
    received: list[Message] = []
    assert run_worker([], received.append) == kept
    assert [m.roofline for m in received if isinstance(m, Roofs)] == [kept.roofline]
    refreshed = run_worker(["--refresh", "--scale", "0.02", "--quick"])
    assert 123.0 not in [ceiling.value for ceiling in refreshed.measurements]


def test_cached_only_measures_nothing(start: Start) -> None:
    worker = start("--cached-only")
    assert list(messages(worker)) == []
    assert worker.wait(5) == 0


@pytest.mark.parametrize("how", ["SIGTERM", "stdin"])
def test_it_stops_promptly(start: Start, how: str, own_directories: Path) -> None:
    worker = start("--no-cache", "--probe", "gemm-fp64")
    for message in messages(worker):
        if isinstance(message, ProgressMessage):
            break
    time.sleep(0.3)  # now it computes
    begun = time.monotonic()
    if how == "stdin":
        assert worker.stdin is not None
        worker.stdin.close()
    else:
        worker.send_signal(signal.SIGTERM)
    assert worker.wait(5) == 0
    # 0.2 s on a machine of one's own; here others may hold the cores.
    assert time.monotonic() - begun < 0.6
    assert not (own_directories / "cache").exists()


@pytest.mark.slow
def test_a_broken_probe_and_a_hopeless_one_do_not_stop_the_others(own_directories: Path) -> None:
    folder = own_directories / "config" / "roofmon" / "probes"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text('name = "broken"\ncolour = 1\n')
    (folder / "huge.toml").write_text(
        'name = "huge"\ntitle = "too large"\nbackend = "numpy"\noperation = "gemm"\n'
        'flops = "2*m*n*k"\nsizes = [65536]\nsource = "none"\ngroup = "huge"\norder = 1\n'
    )
    received: list[Message] = []
    # At full scale, where one such product takes half an hour on a fast machine.
    arguments = ["--no-cache", "--quick", "--probe", "huge", "--probe", "copy"]
    result = run_worker(arguments, received.append)
    assert [ceiling.probe for ceiling in result.measurements] == ["copy"]
    assert "takes too long" in result.failures["huge"]
    told = " ".join(notices(received))
    assert f"{folder / 'broken.toml'}:2" in told
    assert "probe huge: every matrix size takes too long" in told


def test_an_unknown_probe_is_wrong_usage() -> None:
    with pytest.raises(
        RoofmonError, match="there is no probe 'kopy'; choose from: copy, read"
    ) as e:
        run_worker(["--probe", "kopy"])
    assert e.value.exit_code == ExitCode.USAGE


def test_a_second_calibration_waits_and_takes_what_the_first_has_measured(start: Start) -> None:
    with device_lock(HOST.uuid):
        worker = start()
        stream = messages(worker)
        first = next(stream)
        assert isinstance(first, ProgressMessage)
        assert first.progress.text == f"waiting for process {os.getpid()}, which is calibrating"
        kept = kept_result()
    roofs = [m.roofline for m in stream if isinstance(m, Roofs)]
    assert roofs == [kept.roofline]
    assert worker.wait(5) == 0


@pytest.mark.slow
def test_work_of_others_is_told_and_not_kept(start: Start, own_directories: Path) -> None:
    loop = "while True: pass"
    others = [subprocess.Popen([sys.executable, "-c", loop]) for _ in HOST.cpus]
    try:
        received: list[Message] = []
        result = run_worker(["--scale", "0.1", "--quick"], received.append)
    finally:
        for other in others:
            with other:
                other.kill()
    assert any("contended" in ceiling.flags for ceiling in result.measurements)
    assert not (own_directories / "cache").exists()
    assert any(text.startswith("roofs will come out low: ") for text in notices(received))
    assert any("are not kept" in text for text in notices(received))
