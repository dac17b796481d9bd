"""What the real collector shows of GPUs that tell all, little or nonsense, side by side in one host."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_double import NvmlDouble
from nvml_scenarios import A100, BARE, H200, H200_BYTES, NOT_SUPPORTED, gpu, gpu_uuid, host
from watched_gpus import sample, watching

from roofmon.model.device import DeviceSample
from roofmon.model.snapshot import Device, Snapshot

MIB = 2**20
NOBODY = 2**22 + 1  # above the highest PID that Linux gives
GARBAGE = {
    "gpu_busy": 2147483632,
    "memory_busy": 2147483632,
    "memory_used": 2 * H200_BYTES,
    "memory_reserved": 0,
    "temperature": 4294967295,
    "power_mw": 4294967295,
    "power_limit_mw": 4294967295,
    "sm_clock": 4294967295,
    "mem_clock": 4294967295,
    "gpm.dram_bw_util": 9e9,
    "gpm.fp32_util": "nan",
    "gpm.sm_util": -1,
    "gpm.sm_occupancy": 1e300,
    "gpm.pcie_rx_mib_s": 1e18,
    "gpm.pcie_tx_mib_s": -5,
}
ACTIVE_WITHOUT_COUNTERS = {
    f"gpm.{key}": 0.0
    for key in ("dram_bw_util", "fp64_util", "fp32_util", "fp16_util", "integer_util")
}
KINDS = {
    "healthy": H200 | {"processes": f"{os.getpid()}:{512 * MIB},{NOBODY}:{64 * MIB}"},
    "no GPM": A100,
    "bare": BARE,
    "garbage": H200 | GARBAGE,
    "control characters": H200 | {"name": "NVIDIA \x1b[31mH200\x07\n\u202e"},
    "no text": H200 | {"name": b"NVIDIA \xff\xfe H200"},
    "not sampled": H200 | ACTIVE_WITHOUT_COUNTERS,
    "unified memory": H200 | {"fail.nvmlDeviceGetMemoryInfo": NOT_SUPPORTED},
    "throttled": H200 | {"event_reasons": "0x44", "sm_clock": 1560},
}
UUIDS = {kind: gpu_uuid(index) for index, kind in enumerate(KINDS)}
Seen = Callable[[str], Device]


@pytest.fixture(scope="module")
def seen(nvml_libraries: Callable[[bool], Path], tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What a collector showed of each kind of GPU."""
    folder = tmp_path_factory.mktemp("kinds")
    nvml = NvmlDouble(nvml_libraries, folder)
    scenario = host(len(KINDS))
    for index, values in enumerate(KINDS.values()):
        scenario |= gpu(index, values)
    nvml.write(scenario)

    def has_rates(snapshot: Snapshot) -> bool:
        device = snapshot.device(UUIDS["healthy"])
        return device is not None and device.sample is not None and bool(device.sample.rates)

    with watching(nvml, folder) as watched:
        watched.until(has_rates)
        for _ in range(2):  # so that GPM's first interval is over for the others too
            snapshot = watched.until_live(*UUIDS.values())

    def pick(kind: str) -> Device:
        device = snapshot.device(UUIDS[kind])
        assert device is not None
        return device

    return pick


def test_a_healthy_gpu_shows_all(seen: Seen) -> None:
    device = seen("healthy")
    description, now = device.description, sample(device)
    assert description.name == "NVIDIA H200"
    assert (description.cores, description.compute_capability) == (132, "9.0")
    assert description.memory_bytes == H200_BYTES
    assert now.clock_hz == 1980e6
    assert now.memory_clock_hz == 3201e6
    assert now.power_w == pytest.approx(612.345)
    assert now.power_limit_w == 700
    assert now.temperature_c == 48
    assert (now.load, now.memory_busy) == (1, 0.25)
    assert now.memory_used_bytes == 40 * 2**30
    assert now.event_reasons == ()
    assert now.sm_busy == pytest.approx(0.985)
    assert now.occupancy == pytest.approx(0.124)
    assert now.pcie_in_bytes_per_s == pytest.approx(11.5 * MIB)
    assert now.rates is not None
    # 17 % of 2 × 3201 MHz × 6016 bit; 76.3 % of 132 SMs × 256 FLOP × 1980 MHz.
    assert now.rates["dram"] == pytest.approx(0.17 * 4.8143e12, rel=1e-4)
    assert now.rates["vector/fp32"] == pytest.approx(0.763 * 66.908e12, rel=1e-4)
    ceilings = {c.pipe.key if c.pipe else c.level: c.value for c in device.roofline.ceilings}
    assert ceilings["dram"] == pytest.approx(4.8143e12, rel=1e-4)
    assert ceilings["vector/fp32"] == pytest.approx(66.908e12, rel=1e-4)
    assert {c.regime for c in device.roofline.ceilings} == {"bound"}


def test_processes_have_names_or_say_why_not(seen: Seen) -> None:
    processes = sample(seen("healthy")).processes
    assert processes is not None
    ours, foreign = processes
    assert (ours.pid, ours.memory_bytes, ours.note) == (os.getpid(), 512 * MIB, "")
    assert "python" in ours.name or "pytest" in ours.name
    assert ours.user
    assert (foreign.pid, foreign.memory_bytes) == (NOBODY, 64 * MIB)
    assert foreign.name == ""
    assert "namespace" in foreign.note


def test_without_gpm_there_is_all_but_the_point(seen: Seen) -> None:
    device = seen("no GPM")
    now = sample(device)
    assert (now.clock_hz, now.load) == (1410e6, 1)
    assert now.rates is None
    assert "Hopper" in now.missing["rates"]
    # From the older counters, in KiB/s.
    assert now.pcie_in_bytes_per_s == 11500 * 1024
    # 2 × 1593 MHz × 5120 bit, and 108 SMs.
    assert device.description.cores == 108
    bounds = {c.level: c.value for c in device.roofline.ceilings if c.kind == "bandwidth"}
    assert bounds["dram"] == pytest.approx(2.03904e12, rel=1e-4)


OPTIONAL = [
    name
    for name in DeviceSample.__struct_fields__
    if name not in ("device", "time_unix_ns", "lost", "missing")
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_value_has_a_reason(seen: Seen, kind: str) -> None:
    now = sample(seen(kind))
    without = {name for name in OPTIONAL if getattr(now, name) is None}
    assert without == set(now.missing)
    assert all(len(reason) > 5 for reason in now.missing.values())


def test_a_gpu_that_tells_nothing_has_no_values(seen: Seen) -> None:
    device = seen("bare")
    assert {name: getattr(sample(device), name) for name in OPTIONAL} == dict.fromkeys(OPTIONAL)
    assert device.description.name == "NVIDIA H200"
    assert device.description.cores is None
    assert device.roofline.ceilings == ()


def test_garbage_is_not_shown(seen: Seen) -> None:
    now = sample(seen("garbage"))
    shown = {name for name in OPTIONAL if getattr(now, name) is not None}
    assert shown <= {"event_reasons", "processes", "rates"}
    assert not {"dram", "vector/fp32"} & set(now.rates or {})
    assert "2147483632" in now.missing["load"]


def test_names_are_safe_to_print(seen: Seen) -> None:
    name = seen("control characters").description.name
    assert "H200" in name
    assert name.isprintable()
    assert seen("no text").description.name.isprintable()
    assert sample(seen("no text")).clock_hz == 1980e6


def test_counters_of_zero_under_load_are_not_samples(seen: Seen) -> None:
    now = sample(seen("not sampled"))
    assert now.load == 1
    assert now.rates is None
    assert now.missing["rates"]


def test_memory_that_is_not_told_leaves_the_rest(seen: Seen) -> None:
    now = sample(seen("unified memory"))
    assert now.memory_used_bytes is None
    assert now.clock_hz == 1980e6
    assert now.rates


def test_event_reasons_are_words(seen: Seen) -> None:
    reasons = sample(seen("throttled")).event_reasons
    assert reasons is not None
    assert len(reasons) == 2
    assert any("power" in reason for reason in reasons)
    assert any("therm" in reason or "hot" in reason for reason in reasons)
