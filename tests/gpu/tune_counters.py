"""What sampling costs by set of counters, and which of their samples are whole.

    python tests/gpu/tune_counters.py [--seconds 1.5] [--only NAME …]

For each set, beside a bf16 GEMM and beside an idle GPU: whether its samples complete, ms of a core for each
sample of 1 ms (reading it, and evaluating it), and where in a read a sample lacks most tensor cycles.
About two minutes. Needs an NVIDIA GPU with permission for its counters, torch and cupti-python.
"""

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from counter_watch import Loads

from roofmon.collector.rungs import nvidia_gpu_present
from roofmon.counters.cupti_library import device_index, load_cupti
from roofmon.counters.metric_sets import DRAM_READ, DRAM_WRITE, L2, SETS
from roofmon.counters.pm_sampling import PmSampling
from roofmon.counters.weights import CYCLES, DMMA, FMA_HEAVY, FMA_LITE, FP64_PIPE, TENSOR
from roofmon.telemetry.nvidia.calibration_readings import list_gpus

MEMORY = (DRAM_READ, DRAM_WRITE, L2)
FULL = SETS[0]
OTHER_CYCLES = ("gpc__cycles_elapsed.max", "gpc__cycles_elapsed.avg", "sm__cycles_elapsed.max")
TYPES_APART = tuple(f"sm__pipe_tensor_op_{t}_cycles_active_realtime.sum" for t in ("hmma", "imma"))
OTHER_FMA = ("sm__inst_executed_pipe_fma_realtime.sum", "sm__inst_executed_pipe_fma.sum")
CANDIDATES: dict[str, tuple[str, ...]] = {
    "as it is": FULL,
    "memory": MEMORY,
    "memory, cycles": (*MEMORY, CYCLES),
    "memory, tensor": (*MEMORY, TENSOR),
    "types apart": (*(n for n in FULL if n != TENSOR), *TYPES_APART),
    **{
        f"without {name.partition('.')[0]}": tuple(n for n in FULL if n != name)
        for name in (DMMA, FP64_PIPE, FMA_HEAVY, FMA_LITE, CYCLES)
    },
    **{f"with {name}": tuple(name if n == CYCLES else n for n in FULL) for name in OTHER_CYCLES},
    **{
        f"with {name}": (*(n for n in FULL if n not in (FMA_HEAVY, FMA_LITE)), name)
        for name in OTHER_FMA
    },
}
SLOTS, READ_S, INTERVAL_NS = 600, 0.25, 1_000_000


def measure(sampling: PmSampling, metrics: tuple[str, ...], seconds: float) -> str:
    """Of a set that is sampled: ms of a core a sample, and which samples of a read lack tensor cycles."""
    time.sleep(READ_S)
    sampling.read()
    spent, samples, low = 0.0, 0, []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(READ_S)
        begun = time.thread_time()
        part = sampling.read()
        spent += time.thread_time() - begun
        samples += len(part.start_ns)
        if TENSOR in metrics and len(part.start_ns):
            cycles = part.values[:, metrics.index(TENSOR)]
            places = np.flatnonzero(cycles < 0.2 * np.median(cycles)).tolist()
            low.append(",".join(str(p if p < len(cycles) / 2 else p - len(cycles)) for p in places))
    if not samples:
        return "no sample completes"
    return f"{1e3 * spent / samples:6.3f} ms a sample; low at {' '.join(low) or '-'}"


def tell(cupti: Any, index: int, program: Loads, metrics: tuple[str, ...], seconds: float) -> str:
    sampling = PmSampling(cupti, index)
    try:
        if not sampling.accepts(*metrics):
            return "not accepted"
        sampling.start(metrics, INTERVAL_NS, 128 << 20, SLOTS, by_time=True)
        idle = measure(sampling, metrics, 0.5).partition(";")[0]
        program.start(f"run gemm_bf16 {seconds + 3 * READ_S}")
        busy = measure(sampling, metrics, seconds)
        program.result(seconds)
    except cupti.cuptiError as error:
        return f"failed: {error}"
    finally:
        sampling.close()
    return f"idle {idle}; GEMM {busy}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each set")
    parser.add_argument("--only", nargs="*", help="these sets")
    arguments = parser.parse_args()
    needed = ("torch", "cupti")
    if not nvidia_gpu_present() or not all(map(importlib.util.find_spec, needed)):
        print("skipped: this needs an NVIDIA GPU, torch and cupti-python")
        return
    program = Loads(traced=False)
    try:
        program.wait_ready()
        program.run("gemm_bf16", 0.05)
        cupti = load_cupti()
        index = device_index(list_gpus()[0].uuid)
        for label in arguments.only or CANDIDATES:
            metrics = CANDIDATES[label]
            told = tell(cupti, index, program, metrics, arguments.seconds)
            print(f"{label:60}{len(metrics):3} counters  {told}", flush=True)
    finally:
        program.close()


if __name__ == "__main__":
    main()
