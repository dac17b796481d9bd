"""The GPU bench on a simulated device of known rates: what it counts, checks, flags and chooses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from calibration.simulated_gpu import (
    DRAM,
    FLOPS,
    GEMM_FLOPS,
    L1,
    L2,
    PCIE,
    SimulatedGpu,
    SimulatedReadings,
)

from roofmon.calibration.ceilings import between_runs
from roofmon.calibration.gpu_bench import GpuBench
from roofmon.calibration.gpu_load import HeldClocks
from roofmon.calibration.manifest import load_probes
from roofmon.calibration.probe import Mode, Probe
from roofmon.errors import RoofmonError
from roofmon.model.roofline import Ceiling, Pipe, Roofline
from roofmon.resources import probes_dir

PROBES = {probe.name: probe for probe in load_probes([probes_dir()])[0]}
SMALL, WIDE, TALL = (64, 64, 64), (32, 256, 512), (256, 32, 512)


def gemm(precision: str) -> Probe:
    return msgspec.structs.replace(PROBES[f"gpu-gemm-{precision}"], shapes=(SMALL, WIDE, TALL))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def gpu() -> SimulatedGpu:
    return SimulatedGpu()


@pytest.fixture
def readings() -> SimulatedReadings:
    return SimulatedReadings()


@pytest.fixture
def measure(gpu: Any, readings: Any) -> Callable[[Probe], Ceiling]:
    bench = GpuBench(gpu, "full", HeldClocks(readings), Roofline())
    bench.warm_up()
    return bench.measure


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        *((f"gpu-dram-{kernel}", DRAM) for kernel in ("copy", "read", "write", "scale", "triad")),
        ("gpu-l2-read", L2),
        ("gpu-shared-read", L1),
        ("gpu-l1-read", L1),
        ("gpu-pcie-h2d", PCIE),
        ("gpu-pcie-d2h", PCIE),
        ("gpu-fma-fp64", FLOPS),
        ("gpu-fma-fp32", FLOPS),
        ("gpu-fma-fp16", FLOPS),
        ("gpu-imad-int32", FLOPS),
    ],
)
def test_every_probe_comes_out_at_the_rate_of_the_device(
    measure: Callable[[Probe], Ceiling], name: str, rate: float
) -> None:
    ceiling = measure(PROBES[name])
    assert ceiling.value == pytest.approx(rate, rel=1e-6)
    margin = between_runs(ceiling)
    assert ceiling.ci_low == pytest.approx(rate * (1 - margin), rel=1e-6)
    assert ceiling.ci_high == pytest.approx(rate * (1 + margin), rel=1e-6)
    assert ceiling.n >= (10 if "pcie" in name else 20)
    assert (ceiling.clock_hz, ceiling.memory_clock_hz) == (1.98e9, 3.2e9)
    # 96 MiB are little for arrays of DRAM and for copies, and enough for the rest.
    assert ("small-set" in ceiling.flags) is ("dram" in name or "pcie" in name)
    assert "not-converged" not in ceiling.flags


@pytest.mark.parametrize("precision", ["fp64", "tf32", "fp16", "bf16"])
def test_the_fastest_shape_is_sustained_and_its_product_is_right(
    gpu: SimulatedGpu, measure: Callable[[Probe], Ceiling], precision: str
) -> None:
    # As wide as it is tall for the flops, so that only rows and columns in their places find it.
    gpu.efficiency = {TALL: 0.9, WIDE: 0.7}
    ceiling = measure(gemm(precision))
    assert ceiling.value == pytest.approx(0.9 * GEMM_FLOPS, rel=1e-6)
    assert (ceiling.regime, ceiling.pipe) == ("gemm", Pipe("tensor", precision))
    assert ceiling.flags == ()
    assert gpu.device_s > 0.3  # a third to heat up, two thirds that count


def test_the_shape_that_does_most_under_the_power_cap_is_found_and_kept(
    cache: Path, readings: Any
) -> None:
    def measured(tall: float, wide: float, mode: Mode = "full") -> float:
        """The roof on a GPU that sustains so much of each shape; at first TALL is ahead."""
        gpu: Any = SimulatedGpu()
        gpu.efficiency, gpu.sustained = {TALL: 0.9, WIDE: 0.88}, {TALL: tall, WIDE: wide}
        bench = GpuBench(gpu, mode, HeldClocks(readings), Roofline())
        return round(bench.measure(gemm("bf16")).value / GEMM_FLOPS, 4)

    assert measured(tall=0.7, wide=0.8) == 0.8
    assert measured(tall=0.85, wide=0.8) == 0.8  # nothing else is tried
    assert measured(tall=0.85, wide=0.8, mode="thorough") == 0.85  # which trusts nothing kept
    assert measured(tall=0.85, wide=0.9) == 0.85
    (file,) = cache.rglob("gemm/*.json")
    for damage in (b"[1,2", b"[1,2,3]"):
        file.write_bytes(damage)
        assert measured(tall=0.7, wide=0.8) == 0.8
        assert measured(tall=0.85, wide=0.8) == 0.8
    file.unlink()
    file.mkdir()  # nothing can be written there
    assert measured(tall=0.7, wide=0.8) == 0.8
    assert measured(tall=0.85, wide=0.8) == 0.85


@pytest.mark.parametrize(
    ("fault", "probe"),
    [
        ("copy", PROBES["gpu-dram-copy"]),
        ("scale", PROBES["gpu-dram-scale"]),
        ("triad", PROBES["gpu-dram-triad"]),
        ("fma_fp32", PROBES["gpu-fma-fp32"]),
        ("l2_read", PROBES["gpu-l2-read"]),
        ("transfer", PROBES["gpu-pcie-h2d"]),
        ("gemm", gemm("bf16")),
        ("gemm", gemm("tf32")),
    ],
)
def test_a_wrong_result_is_no_ceiling(
    gpu: SimulatedGpu, measure: Callable[[Probe], Ceiling], fault: str, probe: Probe
) -> None:
    gpu.faults.add(fault)
    with pytest.raises(ArithmeticError):
        measure(probe)
    gpu.faults.clear()
    gpu._computed.clear()
    assert measure(probe).value > 0  # the next one is not its heir


def test_a_capped_clock_is_part_of_the_result(
    readings: SimulatedReadings, measure: Callable[[Probe], Ceiling]
) -> None:
    readings.bits = 0x4 | 0x40 | 0x1
    ceiling = measure(PROBES["gpu-fma-fp32"])
    assert ceiling.event_reasons == ("power cap", "thermal slowdown (hardware)")
    assert ceiling.flags == ("power-capped", "thermal")
    readings.bits = 0
    assert measure(PROBES["gpu-fma-fp32"]).flags == ()


def test_without_any_memory_the_probe_says_so(
    gpu: SimulatedGpu, measure: Callable[[Probe], Ceiling]
) -> None:
    gpu._free_bytes = 2**20
    for name in ("gpu-dram-triad", "gpu-pcie-h2d"):
        with pytest.raises(RoofmonError, match="of GPU memory are free"):
            measure(PROBES[name])
    assert measure(PROBES["gpu-fma-fp32"]).value > 0
