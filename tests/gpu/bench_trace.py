"""What tracing costs a program: throughput dormant, attached and after a detach, over untraced.

    python tests/gpu/bench_trace.py [--pairs 30] [--seconds 0.3]

Beside it, what torch.profiler and, where it runs, proton cost the same three loops. Programs take turns in
interleaved pairs on one core while the other waits; the monitor reads on another core. Needs a GPU and
torch; says so and ends well where one is missing.
"""

import argparse
import importlib.util
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from traced_gpu_program import TracedLoops

from roofmon.collector.rungs import nvidia_gpu_present
from roofmon.model.stats import median_with_interval

LOOPS = {
    "eager": ("6 µs launches (eager)", {"dormant": 0.99, "attached": 0.85, "detached": 0.88}),
    "tiny": ("graph of 100 × 1 µs kernels", {"dormant": 0.99, "attached": 0.70, "detached": 0.98}),
    "gemm": ("24 µs GEMM", {"dormant": 0.99, "attached": 0.985, "detached": 0.99}),
}
FEW = 10  # pairs of the other profilers, which keep every record


def rate(program: TracedLoops, name: str, seconds: float) -> float:
    """Kernels a second."""
    found = program.run(f"{name} {seconds} s")
    return float(found["kernels"] / found["seconds"])


def ratios(
    one: TracedLoops, other: TracedLoops, name: str, pairs: int, seconds: float
) -> list[float]:
    """Throughput of `one` over that of `other`, in pairs; who begins alternates."""
    found = []
    for number in range(pairs):
        order = (one, other) if number % 2 else (other, one)
        measured = {id(program): rate(program, name, seconds) for program in order}
        found.append(measured[id(one)] / measured[id(other)])
    return found


def show(label: str, found: list[float], goal: float | None = None) -> bool:
    median, low, high = median_with_interval(np.array(found))
    reached = goal is None or median >= goal
    aim = "" if goal is None else f"  goal ≥ {goal:.3f}  {'reached' if reached else 'MISSED'}"
    print(
        f"  {label:22}{median:7.3f}  [{low:.3f}, {high:.3f}]  {len(found)} pairs{aim}", flush=True
    )
    return reached


def bench(name: str, pairs: int, seconds: float, core: int) -> bool:
    """One loop in all states; whether its goals were reached."""
    title, goals = LOOPS[name]
    print(title)
    untraced, other = TracedLoops(traced=False, core=core), TracedLoops(traced=False, core=core)
    traced = TracedLoops(core=core)
    try:
        for program in (untraced, other, traced):
            rate(program, name, seconds)
        good = [show("untraced (itself)", ratios(other, untraced, name, pairs, seconds))]
        measure: Callable[[], list[float]] = lambda: ratios(traced, untraced, name, pairs, seconds)  # noqa: E731
        good.append(show("dormant", measure(), goals["dormant"]))
        monitor = traced.attach()
        monitor.keep = False
        rate(traced, name, seconds)
        good.append(show("attached", attached := measure(), goals["attached"]))
        monitor.settle()
        seen = monitor.kernels + monitor.drops
        print(f"  {'':22}{seen:,} records, of which {monitor.drops:,} were dropped")
        monitor.detach()
        rate(traced, name, seconds)
        good.append(show("after the detach", measure(), goals["detached"]))
        untraced_us = 1e6 / statistics.median(rate(untraced, name, seconds) for _ in range(5))
        cost = untraced_us * (1 / statistics.median(attached) - 1)
        print(f"  {'':22}{untraced_us:.2f} µs a kernel; attached costs {cost:.2f} µs of it")
        good += [
            beside(untraced, name, tool, seconds, core, attached) for tool in ("torch", "proton")
        ]
        return all(good)
    finally:
        for program in (untraced, other, traced):
            program.close()


def beside(
    untraced: TracedLoops, name: str, tool: str, seconds: float, core: int, ours: list[float]
) -> bool:
    """The same loop under another profiler; whether ours costs less."""
    program = TracedLoops(traced=False, core=core)
    try:
        rate(program, name, seconds)
        program.start(f"profiler {tool}")
        found = program.result()
        if not found["good"]:
            print(f"  {tool:22}does not run here: {found['why']}")
            return True
        rate(program, name, seconds)
        theirs = ratios(program, untraced, name, FEW, seconds)
        show(f"under {tool}", theirs)
        less = statistics.median(ours) > statistics.median(theirs)
        if not less:
            print(f"  {'':22}MISSED: ours must cost less than {tool}")
        return less
    except AssertionError as error:
        print(f"  {tool:22}did not last: {error}")
        return True
    finally:
        program.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.3)
    arguments = parser.parse_args()
    if not nvidia_gpu_present() or not importlib.util.find_spec("torch"):
        print("skipped: this needs an NVIDIA GPU and torch")
        return
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[:-1]) or set(cores))
    reached = [bench(name, arguments.pairs, arguments.seconds, cores[-1]) for name in LOOPS]
    print("all goals were reached" if all(reached) else "some goals were MISSED")


if __name__ == "__main__":
    main()
