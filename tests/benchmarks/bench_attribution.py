"""What attribution costs, and how well it tells kernels apart on a recording of an H200.

Run directly: `python tests/benchmarks/bench_attribution.py [ROUNDS]`. Time is CPU time on one core for a
window of 1 s with 1,000 samples of 7 counters and 100,000 launches of 200 kernels; goal: a median of
150 ms. The first window, in which the clocks are searched for, is shown apart. The accuracy is that of one
session over the whole recording where it lies beside the repository, else over the excerpt in the tests.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "counters"))

from recording import (
    KERNELS,
    RECORDING,
    in_order,
    kernel_bytes,
    load_excerpt,
    load_whole,
    moved,
    truth,
)

from roofmon.counters.attribution import Attributor
from roofmon.counters.overlap import Cells, Launches
from roofmon.counters.samples import Samples

LAUNCHES, KERNEL_COUNT, SAMPLES, COUNTERS = 100_000, 200, 1000, 7
T0 = 1_796_007_743_000_000_000
GEMV_BYTES = 2 * 4096 * 4096


def busy_window(seed: int, streams: int) -> tuple[Samples, Launches]:
    """One second of many kernels of 1 to 50 µs, a few of which take most of the time."""
    kernels = np.random.default_rng(0)
    length = 10 ** kernels.uniform(-0.8, 0.8, KERNEL_COUNT)
    frequency = 1.0 / np.arange(1, KERNEL_COUNT + 1) ** 0.7
    amounts = np.maximum(kernels.normal(size=(KERNEL_COUNT, COUNTERS)), 0) * 1e6
    random = np.random.default_rng(seed)
    kernel = random.choice(KERNEL_COUNT, LAUNCHES, p=frequency / frequency.sum())
    duration = length[kernel] * random.uniform(0.97, 1.03, LAUNCHES)
    duration *= 0.9e9 * streams / duration.sum()
    gap = random.exponential(0.09e9 * streams / LAUNCHES, LAUNCHES)
    each = LAUNCHES // streams
    end = np.concatenate(
        [
            np.cumsum((duration + gap)[number * each : (number + 1) * each])
            for number in range(streams)
        ]
    )
    start = T0 + seed * 10**9 + (end - duration).astype(np.int64)
    launches = Launches(kernel.astype(np.int64), start, start + duration.astype(np.int64))
    edges = T0 + seed * 10**9 + np.linspace(0, 1e9, SAMPLES + 1).astype(np.int64)
    names = ("dram__bytes_read.sum", "dram__bytes_write.sum", *(f"m{n}" for n in range(5)))
    samples = Samples(names, edges[:-1], edges[1:], np.zeros((SAMPLES, COUNTERS)))
    weight = 1.0 / np.maximum(launches.end_ns - launches.start_ns, 1)
    table = Cells.of(samples).overlaps(
        launches.kernel, KERNEL_COUNT, launches.start_ns, launches.end_ns, weight
    )
    counts = (table @ amounts) * (1 + 0.01 * random.normal(size=(SAMPLES, COUNTERS)))
    return Samples(names, samples.start_ns, samples.end_ns, counts), launches


def cost(rounds: int) -> None:
    """Print the time of windows, one and two streams."""
    for streams in (1, 2):
        attributor, times = Attributor(busy_window(0, streams)[0].metrics), []
        for number in range(rounds + 1):
            samples, launches = busy_window(number, streams)
            before = time.process_time()
            found = attributor.window(samples, launches)
            times.append(1e3 * (time.process_time() - before))
            assert found is not None
        print(
            f"{streams} stream(s): median {statistics.median(times[1:]):.0f} ms, "
            f"best {min(times[1:]):.0f}, worst {max(times[1:]):.0f}; first window {times[0]:.0f} ms  "
            f"(goal ≤ 150; {len(found.kernels)} kernels listed, {len(found.pooled)} pooled, clocks "
            f"{'found' if found.clock.certain else 'uncertain'})"
        )


def accuracy() -> None:
    """Print what each workload must move, and what was attributed to it."""
    whole = (RECORDING / "pm_200us.npz").exists()
    recording = load_whole() if whole else load_excerpt()
    print(f"{'whole recording' if whole else 'excerpt'}; DRAM MB per iteration")
    print(f"{'workload':26}{'must move':>10}{'0.2 ms':>10}{'error':>8}{'1 ms':>10}{'error':>8}")
    known = {factor: in_order(recording, factor) for factor in (1, 5)}
    for phase in KERNELS:
        must = truth(recording, phase)["bytes"]
        cells = [f"{phase:26}{must / 1e6:10.1f}"]
        for factor in (1, 5):
            mine = moved(known[factor][phase], recording, phase)
            cells.append(f"{mine / 1e6:10.1f}{100 * (mine / must - 1):+7.1f}%")
        print("".join(cells))
    for phase in ("decode_eager_bf16", "decode_graph_bf16"):
        cells = [f"{'  each GEMV, ' + phase[7:12]:26}{GEMV_BYTES / 1e6:10.2f}"]
        for factor in (1, 5):
            mine = kernel_bytes(known[factor][phase], recording, "splitK_NNT")
            cells.append(f"{mine / 1e6:10.2f}{100 * (mine / GEMV_BYTES - 1):+7.1f}%")
        print("".join(cells))
    print("GEMMs and the gather move more than they must: operands are read again.")


if __name__ == "__main__":
    cost(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
    accuracy()
