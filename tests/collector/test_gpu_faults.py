"""The real collector while GPUs and their driver misbehave, through the real nvidia-ml-py."""

import itertools
import os
import time
from pathlib import Path

import psutil
import pytest
from command_lines import words_of
from nvml_double import NvmlDouble
from nvml_scenarios import DRIVER_NOT_LOADED, gpu_uuid, h200, h200_mig, mig_uuid
from watched_gpus import (
    closes_within_a_second,
    device_of,
    is_live,
    is_lost,
    sample,
    sample_of,
    watching,
)

from roofmon.stream.messages import Command

pytestmark = pytest.mark.slow


def test_gpus_are_keyed_by_uuid_and_asked_no_more_than_needed(
    nvml: NvmlDouble, tmp_path: Path
) -> None:
    nvml.write(h200(2) | {"gpu1.sm_clock": 345})
    zero, one = gpu_uuid(0), gpu_uuid(1)
    with watching(nvml, tmp_path, CUDA_VISIBLE_DEVICES=one) as watched:
        snapshot = watched.until_live(zero, one)
        assert [sample_of(snapshot, uuid).clock_hz for uuid in (zero, one)] == [1980e6, 345e6]
        assert [device_of(snapshot, uuid).index for uuid in (zero, one)] == [0, 1]
        assert [device_of(snapshot, uuid).selected for uuid in (zero, one)] == [False, True]
        nvml.set({"gpu0.sm_clock": 1755})
        watched.until(lambda s: sample_of(s, zero).clock_hz == 1755e6)
        time.sleep(1)
    calls = [call for call in nvml.calls() if call.device == "gpu0"]
    samples = [call.at_s for call in calls if call.function == "nvmlGpmSampleGet"]
    assert len(samples) > 5
    # Two samples of GPM are 100 ms apart or more.
    assert min(b - a for a, b in itertools.pairwise(samples)) > 0.095
    for constant in ("nvmlDeviceGetName", "nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetUUID"):
        assert sum(call.function == constant for call in calls) <= 4, constant


def test_a_lost_gpu_says_so_and_comes_back_while_the_other_lives(
    nvml: NvmlDouble, tmp_path: Path
) -> None:
    nvml.write(h200(2))
    zero, one = gpu_uuid(0), gpu_uuid(1)
    with watching(nvml, tmp_path) as watched:
        watched.until_live(zero, one)
        nvml.set({"gpu1.lost": 1})
        snapshot = watched.until(lambda s: is_lost(s, one), timeout_s=5)
        assert "lost" in sample_of(snapshot, one).lost
        assert sample_of(snapshot, one).clock_hz is None
        snapshot = watched.until_live(zero)
        assert is_lost(snapshot, one)
        nvml.unset("gpu1.lost")
        watched.until_live(zero, one)


@pytest.mark.slow  # it is tried again after 3 s
def test_a_reloaded_driver_is_connected_to_again(nvml: NvmlDouble, tmp_path: Path) -> None:
    nvml.write(h200())
    with watching(nvml, tmp_path) as watched:
        watched.until_live(gpu_uuid(0))
        nvml.set({"driver_generation": 2, "fail.nvmlInit": DRIVER_NOT_LOADED})
        watched.until(lambda s: is_lost(s, gpu_uuid(0)), timeout_s=5)
        nvml.unset("fail.nvmlInit")
        watched.until_live(gpu_uuid(0))


def test_a_collector_with_a_hung_driver_closes_within_a_second(
    nvml: NvmlDouble, tmp_path: Path
) -> None:
    nvml.write(h200(2))
    with watching(nvml, tmp_path) as watched:
        watched.until_live(gpu_uuid(0), gpu_uuid(1))
        nvml.set({"hang": -1})
        time.sleep(0.3)  # a few ticks, so that calls do hang
        closes_within_a_second(watched)


@pytest.mark.slow  # a call hangs for 3 s before it is said to, and is tried again after 30 s
@pytest.mark.timeout(90)
def test_a_hung_gpu_is_told_while_the_other_goes_on_and_comes_back(
    nvml: NvmlDouble, tmp_path: Path
) -> None:
    nvml.write(h200(2))
    zero, one = gpu_uuid(0), gpu_uuid(1)
    with watching(nvml, tmp_path) as watched:
        watched.until_live(zero, one)
        nvml.set({"gpu1.hang.nvmlDeviceGetClockInfo": -1})
        snapshot = watched.until(lambda s: is_lost(s, one), timeout_s=5)
        assert "hang" in sample_of(snapshot, one).lost
        for _ in range(3):
            snapshot = watched.until_live(zero)
            assert is_lost(snapshot, one)
        nvml.unset("gpu1.hang.nvmlDeviceGetClockInfo")
        watched.until_live(zero)
        watched.until(lambda s: is_live(s, one), timeout_s=45)
        assert is_live(watched.until_live(zero), one)


@pytest.mark.slow  # it waits 5 s for the driver
def test_a_driver_that_hangs_at_its_start_does_not_hold_the_screen(
    nvml: NvmlDouble, tmp_path: Path
) -> None:
    nvml.write(h200() | {"hang.nvmlInit": -1})
    with watching(nvml, tmp_path) as watched:
        snapshot = watched.until(lambda s: any(d.sample is not None for d in s.devices))
        # A GPU of a traced program would stand beside it: those of other tests are seen as well.
        assert "cpu" in [device.description.kind for device in snapshot.devices]
        assert snapshot.device(gpu_uuid(0)) is None
        assert any("driver" in notice.what for notice in snapshot.notices)
        closes_within_a_second(watched)


def test_instances_are_devices_with_bounds_of_their_own(nvml: NvmlDouble, tmp_path: Path) -> None:
    nvml.write(h200_mig())
    half, eighth = mig_uuid(0), mig_uuid(1)
    with watching(nvml, tmp_path) as watched:
        watched.until(lambda s: is_live(s, eighth) and bool(sample_of(s, eighth).rates))
        snapshot = watched.until_live(gpu_uuid(0), half, eighth)
    for uuid, profile, cores, share in (
        (half, "3g.71gb", 60, 1 / 2),
        (eighth, "1g.18gb", 16, 1 / 8),
    ):
        device = snapshot.device(uuid)
        assert device is not None
        assert device.description.parent == gpu_uuid(0)
        assert device.description.mig_profile == profile
        assert device.description.cores == cores
        ceilings = {c.pipe.key if c.pipe else c.level: c.value for c in device.roofline.ceilings}
        assert ceilings["dram"] == pytest.approx(4.8143e12 * share, rel=1e-4)
        assert ceilings["vector/fp32"] == pytest.approx(66.908e12 * cores / 132, rel=1e-4)
        rates = sample(device).rates
        assert rates is not None
        assert rates["dram"] == pytest.approx(0.4 * 4.8143e12 * share, rel=1e-4)
        assert sample(device).load is None
        assert sample(device).missing["load"]


def test_an_old_library_leaves_what_it_knows(nvml: NvmlDouble, tmp_path: Path) -> None:
    nvml.use_library(old=True)
    nvml.write(h200() | {"gpu0.event_reasons": 4, "gpu0.processes": f"{os.getpid()}:1048576"})
    with watching(nvml, tmp_path) as watched:
        snapshot = watched.until_live(gpu_uuid(0))
    now = sample_of(snapshot, gpu_uuid(0))
    assert now.clock_hz == 1980e6
    assert now.power_w == pytest.approx(612.345)
    assert now.memory_used_bytes == 40 * 2**30 + 600 * 2**20  # the old call counts the driver's own
    assert now.event_reasons is not None
    assert len(now.event_reasons) == 1
    assert now.processes is not None
    assert [process.pid for process in now.processes] == [os.getpid()]
    assert now.rates is None
    assert now.missing["rates"]


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ({"gpus": 1, "fail.nvmlInit": DRIVER_NOT_LOADED}, "not loaded"),
        ({"gpus": 0}, "no GPU"),
    ],
)
def test_without_a_gpu_the_cpu_is_shown_and_why(
    nvml: NvmlDouble, tmp_path: Path, scenario: dict[str, object], reason: str
) -> None:
    nvml.write(scenario)
    with watching(nvml, tmp_path) as watched:
        snapshot = watched.until(lambda s: any(d.sample is not None for d in s.devices))
    assert [device.description.kind for device in snapshot.devices] == ["cpu"]
    said = [notice.what for notice in snapshot.notices]
    said += [rung.reason for rung in snapshot.rungs if rung.rung == "nvml"]
    assert any(reason in text for text in said), said


@pytest.mark.timeout(120)
def test_a_long_pause_releases_the_driver(nvml: NvmlDouble, tmp_path: Path) -> None:
    nvml.write(h200(1))
    zero = gpu_uuid(0)
    with watching(nvml, tmp_path) as watched:
        watched.until_live(zero)
        assert telemetry_workers()
        assert watched.consumer.send(Command(command="pause"))
        watched.until(lambda s: any("released" in r.reason for r in s.rungs), timeout_s=70)
        assert not telemetry_workers()
        assert watched.consumer.send(Command(command="resume"))
        watched.until_live(zero)


def telemetry_workers() -> list[psutil.Process]:
    """Those among the descendants of this process."""
    found = psutil.Process().children(recursive=True)
    return [child for child in found if "roofmon.telemetry.worker" in words_of(child)]
