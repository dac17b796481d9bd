"""A real collector that watches the GPUs of the NVML double, and what can be asked of its snapshots."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from command_lines import words_of
from nvml_double import NvmlDouble

from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.snapshot import Device, Snapshot
from roofmon.stream.consumer import Consumer

COLLECTOR = (sys.executable, "-m", "roofmon.collector", "--interval", "0.1")


class Watched:
    """A running collector."""

    def __init__(self, *extra: str, calibrate: bool = False) -> None:
        how = () if calibrate else ("--no-calibration",)
        self.consumer = Consumer((*COLLECTOR, *how, *extra), lambda: None)
        self.consumer.start()

    def until(self, condition: Callable[[Snapshot], bool], timeout_s: float = 15) -> Snapshot:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            snapshot = self.consumer.snapshot
            if snapshot is not None and condition(snapshot):
                return snapshot
            time.sleep(0.02)
        raise AssertionError(f"{self.consumer.state} {self.consumer.snapshot}")

    def until_live(self, *uuids: str) -> Snapshot:
        """Until samples of these devices come that were taken from now on, and say that they live."""
        now = time.time_ns()
        return self.until(lambda s: all(is_live(s, uuid, now) for uuid in uuids))


@contextmanager
def watching(
    nvml: NvmlDouble, folder: Path, *, calibrate: bool = False, **more: str
) -> Iterator[Watched]:
    """A collector with directories of its own, so that no other program or cache is seen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        for name in ("CONFIG", "CACHE", "STATE", "DATA"):
            patch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for name, value in (nvml.env | more).items():
            patch.setenv(name, value)
        watched = Watched(calibrate=calibrate)
        try:
            yield watched
        finally:
            watched.consumer.close()
    assert watched.consumer.wait_end(5)


def device_of(snapshot: Snapshot, uuid: str) -> DeviceDescription:
    device = snapshot.device(uuid)
    assert device is not None, [d.description.uuid for d in snapshot.devices]
    return device.description


def sample_of(snapshot: Snapshot, uuid: str) -> DeviceSample:
    device = snapshot.device(uuid)
    assert device is not None
    assert device.sample is not None
    return device.sample


def is_live(snapshot: Snapshot, uuid: str, since_ns: int = 0) -> bool:
    device = snapshot.device(uuid)
    sample = device.sample if device is not None else None
    return sample is not None and not sample.lost and sample.time_unix_ns > since_ns


def is_lost(snapshot: Snapshot, uuid: str) -> bool:
    device = snapshot.device(uuid)
    return device is not None and device.sample is not None and bool(device.sample.lost)


def sample(device: Device) -> DeviceSample:
    assert device.sample is not None
    return device.sample


def closes_within_a_second(watched: Watched) -> None:
    """The collector and its workers end, and nothing waits for a call that hangs."""
    children = psutil.Process().children(recursive=True)
    assert any("roofmon.telemetry.worker" in words_of(child) for child in children)
    began = time.monotonic()
    watched.consumer.close()
    _, alive = psutil.wait_procs(children, timeout=3)
    assert not alive
    assert time.monotonic() - began < 1
