"""What the telemetry worker does without GPUs, and when one or the driver goes away, on the NVML double."""

import ctypes
import time
from collections.abc import Callable

import pytest
from nvml_double import NvmlDouble
from nvml_scenarios import h200, h200_mig, mig_uuid
from nvml_worker import FIRST, SECOND, Worker

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("scenario", "what", "fix"),
    [
        ({}, "installed but not loaded", "modprobe nvidia"),
        ({"gpus": 0}, "shows no GPU", "ask for one"),
        ({"gpus": 1, "fail.nvmlInit": 18}, "of different versions", "restart"),
        ({"gpus": 1, "fail.nvmlInit": 4}, "no permission", "/dev/nvidia"),
        ({"gpus": 1, "fail.nvmlInit": 999}, "cannot be used: the driver said: unknown error", ""),
        ({"gpus": 1, "fail.nvmlDeviceGetCount": 13}, "too old", "update"),
    ],
)
def test_without_a_gpu_there_is_the_cpu_and_the_reason(
    nvml: NvmlDouble,
    start: Callable[..., Worker],
    scenario: dict[str, object],
    what: str,
    fix: str,
) -> None:
    nvml.write(scenario)
    worker = start()
    worker.until(lambda: worker.ticks)
    (notice,) = worker.notices
    assert what in notice.what
    assert notice.what.endswith(": showing the CPU")
    assert fix in notice.fix
    assert [d.kind for d in worker.devices.values()] == ["cpu"]
    assert worker.ticks[0].samples[0].load is not None


def test_without_the_library_there_is_the_cpu_and_the_reason(start: Callable[..., Worker]) -> None:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has an NVIDIA driver")
    worker = start(LD_LIBRARY_PATH="")
    worker.until(lambda: worker.ticks)
    assert "libnvidia-ml.so.1 is not installed" in worker.notices[0].what


def test_a_driver_that_hangs_at_the_start_is_not_waited_for(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(h200() | {"hang.nvmlInit": -1})
    worker = start(device="auto")
    worker.until(lambda: worker.ticks)
    assert "has not answered for 5 s" in worker.notices[0].what
    nvml.unset("hang.nvmlInit")
    assert worker.settled().rates is not None
    assert FIRST in worker.devices


def test_a_lost_gpu_leaves_the_others_and_comes_back(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(h200(2))
    worker = start()
    worker.settled(SECOND)
    nvml.set({"gpu1.lost": 1})
    lost = worker.next(SECOND, lambda s: s.lost)
    assert lost.lost.startswith("GPU is lost: it fell off the bus")
    assert lost.clock_hz is None
    assert worker.next(FIRST, lambda s: not s.lost).clock_hz == 1980e6
    nvml.unset("gpu1.lost")
    assert worker.next(SECOND, lambda s: not s.lost).clock_hz == 1980e6
    assert worker.settled(SECOND).rates is not None
    assert len(worker.devices) == 2


def test_a_gpu_that_is_lost_from_the_start_is_told(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(h200(2) | {"gpu0.lost": 1})
    worker = start()
    worker.settled(SECOND)
    worker.until(lambda: worker.notices)
    assert worker.notices[0].what.startswith("GPU 0: GPU is lost")
    worker.until(lambda: len(worker.ticks) > 8)
    assert len(worker.notices) == 1
    nvml.unset("gpu0.lost")
    worker.settled(FIRST)
    assert worker.devices[FIRST].index == 0


def test_a_reloaded_driver_is_opened_anew(nvml: NvmlDouble, start: Callable[..., Worker]) -> None:
    nvml.write(h200(2))
    worker = start()
    worker.settled(SECOND)
    nvml.set({"driver_generation": 2})
    # Whichever notices first opens it for both.
    assert "was reloaded" in worker.next(None, lambda s: s.lost).lost
    for uuid in (FIRST, SECOND):
        assert worker.next(uuid, lambda s: not s.lost).clock_hz == 1980e6
    # While it is away for longer, it is tried again.
    nvml.set({"driver_generation": 3, "fail.nvmlInit": 9})
    worker.next(None, lambda s: s.lost)
    nvml.unset("fail.nvmlInit")
    for uuid in (FIRST, SECOND):
        worker.next(uuid, lambda s: not s.lost)


def test_a_replaced_driver_needs_a_new_process(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(h200())
    worker = start()
    worker.settled()
    nvml.set({"fail": 18})
    assert worker.process.wait(3) == 1
    assert "replaced by another version" in worker.log
    assert "Traceback" not in worker.log


def test_a_call_that_hangs_stops_only_its_gpu(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(h200(2))
    worker = start()
    worker.settled(SECOND)
    nvml.set({"gpu0.hang.nvmlDeviceGetPowerUsage": -1})
    began, before = time.monotonic(), len(worker.ticks)
    lost = worker.next(FIRST, lambda s: s.lost)
    assert lost.lost == "does not answer (a driver call hangs for 3 s)"
    assert time.monotonic() - began < 4.5
    others = [s for tick in worker.ticks[before:] for s in tick.samples if s.device == SECOND]
    assert len(others) > 20
    nvml.unset("gpu0.hang.nvmlDeviceGetPowerUsage")
    worker.next(FIRST, lambda s: not s.lost)
    nvml.set({"gpu0.hang.nvmlDeviceGetPowerUsage": -1})
    time.sleep(0.3)
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    assert worker.process.wait(1) == 0


def test_a_skipped_gpu_is_left_alone(nvml: NvmlDouble, start: Callable[..., Worker]) -> None:
    nvml.write(h200(2) | {"gpu0.hang.nvmlDeviceGetName": -1})
    worker = start("--skip", FIRST)
    worker.settled(SECOND)
    assert list(worker.devices) == [SECOND]
    assert {s.device for tick in worker.ticks for s in tick.samples} == {SECOND}
    asked = {call.function for call in nvml.calls() if call.device == "gpu0"}
    assert asked == {"nvmlDeviceGetUUID"}


def test_an_instance_that_is_removed_is_told_once(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(h200_mig())
    worker = start()
    worker.settled(mig_uuid(1))
    nvml.unset("gpu0.mig1.uuid")
    gone = worker.next(mig_uuid(1), lambda s: s.lost)
    assert gone.lost == "the MIG instance was removed"
    before = len(worker.ticks)
    worker.until(lambda: len(worker.ticks) >= before + 3)
    later = {s.device for tick in worker.ticks[before:] for s in tick.samples}
    assert later == {FIRST, mig_uuid(0)}
    nvml.set({"gpu0.mig1.uuid": mig_uuid(1)})
    worker.next(mig_uuid(1), lambda s: not s.lost)
