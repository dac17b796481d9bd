from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from roofmon.calibration.ceilings import to_ceiling
from roofmon.calibration.cpu_bench import CpuBench
from roofmon.calibration.manifest import Probe, load_probes
from roofmon.calibration.timing import Timing
from roofmon.errors import RoofmonError
from roofmon.model.roofline import Pipe
from roofmon.resources import probes_dir
from roofmon.telemetry.host import Caches, read_host

PROBES: dict[str, Probe] = {probe.name: probe for probe in load_probes([probes_dir()])[0]}
SCALE = 0.02


@pytest.fixture
def bench() -> Iterator[CpuBench]:
    bench = CpuBench(read_host(), "quick", SCALE)
    yield bench
    bench.close()


def test_a_bandwidth_probe_gives_a_plausible_ceiling(bench: CpuBench) -> None:
    ceiling = bench.measure(PROBES["axpy"])
    assert (ceiling.kind, ceiling.level, ceiling.pipe) == ("bandwidth", "dram", None)
    assert (ceiling.regime, ceiling.probe) == ("sustained", "axpy")
    assert ceiling.ci_low <= ceiling.value <= ceiling.ci_high
    assert ceiling.n >= 1
    assert 1e8 < ceiling.value < 1e13
    assert "small-set" in ceiling.flags  # a fiftieth of the set is no DRAM roof, and says so


def test_a_compute_probe_gives_a_plausible_ceiling(bench: CpuBench) -> None:
    ceiling = bench.measure(PROBES["gemm-fp64"])
    assert (ceiling.kind, ceiling.level) == ("compute", None)
    assert (ceiling.pipe, ceiling.regime) == (Pipe("vector", "fp64"), "gemm")
    assert ceiling.ci_low <= ceiling.value <= ceiling.ci_high
    assert 1e7 < ceiling.value < 1e15


def test_the_rate_is_the_work_over_the_median_and_the_interval_turns_round() -> None:
    timing = Timing(median_s=2e-3, low_s=1e-3, high_s=4e-3, n=12, launches=5, converged=False)
    ceiling = to_ceiling(PROBES["copy"], 8e6, timing, ("small-set",))
    assert (ceiling.value, ceiling.ci_low, ceiling.ci_high) == (4e9, 2e9, 8e9)
    assert (ceiling.n, ceiling.clock_hz) == (12, None)
    assert ceiling.flags == ("small-set", "not-converged")
    steady = replace(timing, converged=True, clock_hz=3e9)
    assert to_ceiling(PROBES["copy"], 8e6, steady, ()).flags == ()
    assert to_ceiling(PROBES["copy"], 8e6, steady, ()).clock_hz == 3e9


def test_a_matrix_that_takes_too_long_is_refused_beforehand(bench: CpuBench) -> None:
    hopeless = msgspec.structs.replace(PROBES["gemm-fp64"], sizes=(65536 * 50,))
    with pytest.raises(RoofmonError, match="every matrix size takes too long"):
        bench.measure(hopeless)


def test_a_cache_of_unknown_size_has_no_roof_but_dram_has() -> None:
    host = replace(read_host(), caches=Caches(None, 0))
    bench = CpuBench(host, "quick", SCALE)
    with pytest.raises(RoofmonError, match="does not tell the size"):
        bench.measure(PROBES["llc-update"])
    assert bench.measure(PROBES["copy"]).value > 0
    bench.close()
