"""How close the CPU roofs come to a C STREAM and to `numpy.matmul` called directly.

Run directly, on a quiet machine: `python tests/benchmarks/bench_roofs.py [ROUNDS]`. Each round runs STREAM,
the DRAM probes, STREAM again, and each GEMM probe beside direct calls; ratios are of the medians over the
rounds. The two STREAM runs of a round show how far the machine agrees with itself. Needs gcc.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from roofmon.calibration.cpu_bench import DRAM_FACTOR, CpuBench
from roofmon.calibration.manifest import load_probes
from roofmon.calibration.probe import Probe, probes_for
from roofmon.resources import probes_dir
from roofmon.telemetry.contention import ForeignLoad, own_family
from roofmon.telemetry.host import ASSUMED_LLC_BYTES, Host, read_host

STREAM = ("copy", "scale", "add", "triad", "sum")
SIZES = (1024, 1536, 2048)
TRIES = 5
SOURCE = Path(__file__).with_name("stream.c")

T = TypeVar("T")
disturbed: list[int] = []  # one entry for each try that others disturbed


def compile_stream(folder: Path) -> Path:
    """Build the C program. Raises where there is no compiler."""
    program = folder / "stream"
    flags = ["-O3", "-march=native", "-fopenmp"]
    subprocess.run(["gcc", *flags, "-o", str(program), str(SOURCE)], check=True)
    return program


def run_stream(program: Path, host: Host) -> dict[str, float]:
    """Byte/s by kernel; each array is as large as the whole set of a probe, as STREAM's rules ask."""
    elements = DRAM_FACTOR * (host.caches.llc_bytes or ASSUMED_LLC_BYTES) // 8
    output = subprocess.run(
        [str(program), str(elements), "8"], capture_output=True, text=True, check=True
    ).stdout
    return {name: float(rate) for name, rate in map(str.split, output.splitlines())}


def direct_matmul(precision: str) -> dict[int, float]:
    """FLOP/s of `numpy.matmul` by matrix size: the median of five calls."""
    kind = np.float64 if precision == "fp64" else np.float32
    rates = {}
    for size in SIZES:
        generator = np.random.default_rng(size)
        a, b = ((generator.random((size, size)) - 0.5).astype(kind) for _ in range(2))
        c = np.empty((size, size), kind)
        seconds = []
        for _ in range(6):
            start = time.perf_counter()
            np.matmul(a, b, out=c)
            seconds.append(time.perf_counter() - start)
        rates[size] = 2 * size**3 / statistics.median(seconds[1:])
    return rates


def dram_rates(host: Host, probes: list[Probe]) -> dict[str, float]:
    """Byte/s of each DRAM probe."""
    bench = CpuBench(host, "full")
    rates = {p.name: bench.measure(p).value for p in probes if p.level == "dram"}
    bench.close()
    return rates


def gemm_pair(host: Host, probe: Probe) -> tuple[float, dict[int, float]]:
    """FLOP/s of a GEMM probe, and of direct calls by size."""
    bench = CpuBench(host, "full")
    rate = bench.measure(probe).value
    bench.close()
    return rate, direct_matmul(probe.precision)


def undisturbed(measure: Callable[[], T]) -> T:
    """What `measure` returns, of the first try while others used under 0.1 cores, else of the fifth."""
    load = ForeignLoad(own_family())
    for _ in range(TRIES):
        load.cores()
        value = measure()
        if (load.cores() or 0.0) < 0.1:
            break
        disturbed.append(1)
    return value


def spread(first: list[float], second: list[float]) -> float:
    """Median over the rounds of how far two runs of the same thing differ."""
    return statistics.median(abs(a / b - 1) for a, b in zip(first, second, strict=True))


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    host = read_host()
    probes = probes_for(load_probes([probes_dir()])[0], "cpu")
    runs: list[list[dict[str, float]]] = [[], []]
    roofs: list[dict[str, float]] = []
    gemms: dict[str, list[tuple[float, dict[int, float]]]] = {"fp32": [], "fp64": []}
    with tempfile.TemporaryDirectory() as folder:
        stream = compile_stream(Path(folder))
        for turn in range(rounds):
            runs[0].append(run_stream(stream, host))
            roofs.append(undisturbed(lambda: dram_rates(host, probes)))
            for precision, pairs in gemms.items():
                probe = next(p for p in probes if p.name == f"gemm-{precision}")
                pairs.append(undisturbed(partial(gemm_pair, host, probe)))
            runs[1].append(run_stream(stream, host))
            print(f"round {turn + 1}/{rounds}, {len(disturbed)} tries disturbed", flush=True)

    def median(of: list[dict[str, float]], names: tuple[str, ...] | list[str]) -> float:
        return statistics.median(max(values[name] for name in names) for values in of)

    both = runs[0] + runs[1]
    for name in both[0]:
        print(f"C {name:8} {median(both, [name]) / 1e9:8.2f} GB/s")
    for name in roofs[0]:
        print(f"probe {name:8} {median(roofs, [name]) / 1e9:4.2f} GB/s")
    roof = median(roofs, list(roofs[0]))
    best = [[max(values[name] for name in STREAM) for values in run] for run in runs]
    print(f"STREAM against itself ±{100 * spread(*best):.1f} % within a round")
    print(f"DRAM roof / best C STREAM = {roof / median(both, STREAM):.3f} (goal ≥ 0.85)")
    print(f"DRAM roof / best C kernel of any kind = {roof / median(both, list(both[0])):.3f}")
    for precision, pairs in gemms.items():
        ours = statistics.median(rate for rate, _ in pairs)
        direct = max(statistics.median(rates[size] for _, rates in pairs) for size in SIZES)
        print(
            f"GEMM roof / numpy.matmul called directly = {ours / direct:.3f} (goal ≥ 0.97)  "
            f"{precision}: {ours / 1e9:.1f} and {direct / 1e9:.1f} GFLOP/s"
        )


if __name__ == "__main__":
    main()
