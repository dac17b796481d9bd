"""What the telemetry worker says of GPUs that answer, all or part of what is asked, on the NVML double."""

import itertools
import os
from collections.abc import Callable

import psutil
import pytest
from nvml_double import NvmlDouble
from nvml_scenarios import H200_BYTES, a100, bare, h200, h200_mig, mig_uuid
from nvml_worker import FIRST, SECOND, Worker, missing_has_reasons

from roofmon.model.device import DeviceDescription, DeviceProcess
from roofmon.model.roofline import Pipe


def test_gpus_are_described_bounded_and_sampled(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    me = os.getpid()
    nvml.write(h200(2) | {"gpu0.processes": f"{me}:1048576,4194303:n/a", "gpu0.event_reasons": 4})
    nvml.set({"gpu0.nvlinks": 2, "gpu0.gpm.nvlink_rx_mib_s": 1000})
    nvml.set({"gpu0.use": f"{me}:0:35,{me}:0:12"})
    worker = start()
    sample = worker.settled()
    assert next(iter(worker.devices.values())) == DeviceDescription(
        uuid=FIRST,
        index=0,
        name="NVIDIA H200",
        kind="cuda",
        cores=132,
        memory_bytes=H200_BYTES,
        driver="580.159.03",
        compute_capability="9.0",
        pci_bus_id="00000000:1B:00.0",
    )
    assert [d.index for d in worker.devices.values()] == [0, 1]
    roofline = worker.rooflines[FIRST]
    dram, fp32 = roofline.bandwidth("dram"), roofline.compute(Pipe("vector", "fp32"))
    assert dram is not None
    assert fp32 is not None
    assert dram.value == pytest.approx(4.814e12, rel=1e-3)
    assert fp32.value == pytest.approx(66.9e12, rel=1e-3)
    assert {c.regime for c in roofline.ceilings} == {"bound"}
    assert roofline.conditions is not None
    assert (roofline.conditions.power_limit_w, roofline.conditions.ecc) == (700, True)

    assert sample.rates is not None
    assert sample.rates["vector/fp32"] == pytest.approx(51.05e12, rel=1e-3)
    assert sample.rates["dram"] == pytest.approx(0.17 * 4.814e12, rel=1e-3)
    assert (sample.clock_hz, sample.memory_clock_hz) == (1980e6, 3201e6)
    assert (sample.load, sample.memory_busy) == (1.0, 0.25)
    assert (sample.power_w, sample.power_limit_w) == (612.345, 700)
    assert (sample.temperature_c, sample.event_reasons) == (48, ("power cap",))
    assert sample.memory_used_bytes == 40 * 2**30
    assert sample.nvlink_in_bytes_per_s == 1000 * 2**20
    assert sample.sm_busy == pytest.approx(0.985)
    assert sample.processes is not None
    assert [p.pid for p in sample.processes] == [me, 4194303]
    assert sample.processes[0].memory_bytes == 2**20
    assert sample.processes[0].sm_busy == 0.35
    assert sample.processes[1] == DeviceProcess(
        pid=4194303, note="in another namespace", sm_busy=0.0
    )
    assert sample.rates_clock_hz == 1980e6
    assert sample.mean_clock_hz is None
    assert sample.missing.keys() == {"mean_clock_hz"}

    assert [s.device for s in worker.ticks[-1].samples] == [FIRST, SECOND]
    assert [tick.sequence for tick in worker.ticks] == list(range(len(worker.ticks)))
    process = psutil.Process(worker.process.pid)
    assert process.memory_info().rss < 40 * 2**20
    assert not any("numpy" in mapping.path for mapping in process.memory_maps())
    assert worker.log == ""


def test_gpm_samples_are_never_closer_than_they_may_be(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(h200())
    worker = start("--interval", "0.05", "--gpm-interval", "0.2")
    worker.until(lambda: len(worker.ticks) >= 12)
    taken = [call.at_s for call in nvml.calls() if call.function == "nvmlGpmSampleGet"]
    assert len(taken) >= 3
    assert min(b - a for a, b in itertools.pairwise(taken)) > 0.15


def test_auto_shows_the_gpus_and_then_the_cpu(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(h200(2))
    worker = start(device="auto", CUDA_VISIBLE_DEVICES="1")
    worker.until(lambda: len(worker.ticks) >= 2)
    assert [(d.kind, d.index, d.selected) for d in worker.devices.values()] == [
        ("cuda", 0, False),
        ("cuda", 1, True),
        ("cpu", 2, True),
    ]
    assert [s.device for s in worker.ticks[-1].samples] == list(worker.devices)


def test_cpu_alone_does_not_touch_the_driver(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(h200())
    worker = start(device="cpu")
    worker.until(lambda: worker.ticks)
    assert [d.kind for d in worker.devices.values()] == ["cpu"]
    maps = psutil.Process(worker.process.pid).memory_maps()
    assert not any("nvidia" in mapping.path for mapping in maps)
    assert nvml.calls() == []


def test_what_is_not_supported_has_a_reason_and_is_not_asked_again(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(bare())
    worker = start()
    worker.until(lambda: len(worker.ticks) >= 5)
    sample = worker.ticks[-1].samples[0]
    assert missing_has_reasons(sample)
    assert sample.missing["memory_used_bytes"] == "this GPU or driver does not tell it"
    assert worker.rooflines[FIRST].ceilings == ()
    assert (worker.devices[FIRST].cores, worker.devices[FIRST].memory_bytes) == (None, None)
    asked = [c.function for c in nvml.calls() if c.function == "nvmlDeviceGetUtilizationRates"]
    assert len(asked) == 1
    assert worker.log == ""


def test_unified_memory_is_not_told(nvml: NvmlDouble, start: Callable[..., Worker]) -> None:
    nvml.write(h200())
    nvml.unset("gpu0.memory_total", "gpu0.memory_used", "gpu0.memory_reserved", "gpu0.bus_width")
    worker = start()
    sample = worker.settled()
    assert sample.memory_used_bytes is None
    assert "memory_used_bytes" in sample.missing
    assert worker.devices[FIRST].memory_bytes is None
    assert sample.rates is not None
    assert "dram" not in sample.rates
    assert sample.rates["vector/fp32"] > 0


GARBAGE: dict[str, object] = {
    "gpu0.gpu_busy": 2147483632,
    "gpu0.memory_busy": 101,
    "gpu0.memory_used": H200_BYTES + 1,
    "gpu0.temperature": -1,
    "gpu0.power_mw": 4294967295,
    "gpu0.sm_clock": 4000000000,
    "gpu0.gpm.dram_bw_util": 2147483632.0,
    "gpu0.gpm.sm_util": -3.0,
}


def test_values_that_cannot_be_are_left_out_and_logged_once(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(h200() | GARBAGE)
    worker = start()
    sample = worker.settled()
    worker.until(lambda: len(worker.ticks) >= 8)
    for field in (
        "load",
        "memory_busy",
        "memory_used_bytes",
        "temperature_c",
        "power_w",
        "sm_busy",
    ):
        assert getattr(sample, field) is None
        assert sample.missing[field].startswith("the driver said")
    assert sample.clock_hz is None
    assert sample.rates is None
    assert missing_has_reasons(sample)
    assert worker.log.count("2147483632 %, out of 0 … 100") == 1
    assert worker.log.count("temperature_c") == 1
    nvml.set({"gpu0.gpu_busy": 50})
    assert worker.next(FIRST, lambda s: s.load is not None).load == 0.5


def test_zero_with_activity_is_not_sampled(nvml: NvmlDouble, start: Callable[..., Worker]) -> None:
    nvml.write(h200())
    nvml.set({"gpu0.gpm.dram_bw_util": 0, "gpu0.gpm.fp32_util": 0})
    sample = start().settled()
    assert sample.rates is None
    assert "read zero" in sample.missing["rates"]


def test_before_hopper_there_is_everything_but_the_point(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(a100())
    worker = start()
    sample = worker.settled()
    assert set(sample.missing) == {
        "rates",
        "rates_clock_hz",
        "mean_clock_hz",
        "sm_busy",
        "occupancy",
        "nvlink_in_bytes_per_s",
        "nvlink_out_bytes_per_s",
    }
    assert sample.missing["rates"].startswith("GPM needs Hopper or later")
    assert sample.pcie_in_bytes_per_s == 11500 * 1024
    assert sample.pcie_out_bytes_per_s == 11800 * 1024
    dram = worker.rooflines[FIRST].bandwidth("dram")
    assert dram is not None
    assert dram.value == pytest.approx(2.039e12, rel=1e-3)  # A100 80GB data sheet


def test_instances_have_the_bounds_of_their_slice(
    nvml: NvmlDouble, start: Callable[..., Worker]
) -> None:
    nvml.write(h200_mig() | {"gpu0.mig0.gpm.fp32_util": 50.0})
    worker = start(CUDA_VISIBLE_DEVICES=mig_uuid(1))
    half = worker.settled(mig_uuid(0))
    eighth = worker.settled(mig_uuid(1))
    assert [d.uuid for d in worker.devices.values()] == [FIRST, mig_uuid(0), mig_uuid(1)]
    described = worker.devices[mig_uuid(0)]
    assert (described.parent, described.mig_profile, described.cores) == (FIRST, "3g.71gb", 60)
    assert [d.selected for d in worker.devices.values()] == [False, False, True]
    bound = worker.rooflines[mig_uuid(0)]
    dram, fp32 = bound.bandwidth("dram"), bound.compute(Pipe("vector", "fp32"))
    assert dram is not None
    assert fp32 is not None
    assert dram.value == pytest.approx(4.814e12 / 2, rel=1e-3)
    assert fp32.value == pytest.approx(66.9e12 * 60 / 132, rel=1e-3)
    assert half.rates is not None
    assert half.rates["dram"] == pytest.approx(0.4 * 4.814e12 / 2, rel=1e-3)
    assert half.rates["vector/fp32"] == pytest.approx(0.5 * 66.9e12 * 60 / 132, rel=1e-3)
    assert eighth.rates is not None
    assert eighth.rates["dram"] == pytest.approx(0.4 * 4.814e12 / 8, rel=1e-3)
    assert (half.memory_used_bytes, half.sm_busy, half.clock_hz) == (2**30, 0.5, 1980e6)
    assert half.load is None
    assert half.power_w is None
    assert half.missing["power_w"] == "it is measured for the whole GPU only"
    assert missing_has_reasons(half)


def test_an_old_library_gives_what_it_can(nvml: NvmlDouble, start: Callable[..., Worker]) -> None:
    nvml.use_library(old=True)
    nvml.write(h200() | {"gpu0.processes": f"{os.getpid()}:1048576"})
    worker = start()
    sample = worker.settled()
    assert sample.memory_used_bytes == 40 * 2**30 + 600 * 2**20
    assert sample.event_reasons == ()
    assert sample.processes is not None
    assert sample.processes[0].memory_bytes == 2**20
    assert "too old" in sample.missing["rates"]
    assert worker.devices[FIRST].cores is None
    assert missing_has_reasons(sample)
    assert "Traceback" not in worker.log


@pytest.mark.parametrize(
    ("name", "shown"),
    [("H200\x1b[2J\x07", "H200 [2J "), (b"\xff\xfe", "NVIDIA GPU"), ("x" * 95, "x" * 79 + "…")],
)
def test_a_name_cannot_reach_the_terminal(
    nvml: NvmlDouble, start: Callable[..., Worker], name: object, shown: str
) -> None:
    nvml.write(h200() | {"gpu0.name": name})
    worker = start()
    worker.until(lambda: worker.ticks)
    assert worker.devices[FIRST].name == shown
