"""What tracing costs a program: throughput dormant, attached and after a detach, over untraced.

    python tests/gpu/bench_trace.py [--pairs 30] [--seconds 0.24] [--loop eager]

Beside it, what torch.profiler and, where it runs, proton cost the same loops: eager, tiny and gemm. Two
programs share a core; in each pair they take turns in slices, so that a drift of the clock favours neither.
The monitor reads on other cores. About five minutes for all. Needs a GPU and torch; says so and ends well
where one is missing.
"""

import argparse
import importlib.util
import os
import statistics
import sys
import time
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
FEW = 10  # pairs of what has no goal: a program against itself, and other profilers
SLICES = 8  # of a pair, in the order ABBA BAAB


def pair(one: TracedLoops, other: TracedLoops, name: str, seconds: float) -> float:
    """Throughput of `one` over that of `other`, each running `seconds` in all."""
    kernels, spent = [0.0, 0.0], [0.0, 0.0]
    for number in range(SLICES):
        first = number % 4 in (0, 3) if number < SLICES // 2 else number % 4 in (1, 2)
        found = (one if first else other).run(f"{name} {2 * seconds / SLICES} s")
        kernels[first] += found["kernels"]
        spent[first] += found["seconds"]
    return kernels[1] / spent[1] * spent[0] / kernels[0]


def measure(
    one: TracedLoops, other: TracedLoops, name: str, pairs: int, seconds: float
) -> list[float]:
    """Ratios of some pairs, after one that does not count."""
    return [pair(one, other, name, seconds) for _ in range(pairs + 1)][1:]


def head(title: str) -> None:
    print(
        f"\n{title}\n  {'throughput / untraced':24}{'goal':>9}{'median':>9}{'95 % of the median':>20}",
        end="",
    )
    print(f"{'least … most':>17}{'pairs':>7}")


def show(label: str, found: list[float], goal: float | None = None) -> bool:
    median, low, high = median_with_interval(np.array(found))
    reached = goal is None or median >= goal
    aim = "" if goal is None else f"≥ {goal:.3f}"
    print(
        f"  {label:24}{aim:>9}{median:9.4f}{f'[{low:.4f}, {high:.4f}]':>20}"
        f"{f'{min(found):.3f} … {max(found):.3f}':>17}{len(found):>7}"
        f"{'' if goal is None else '  reached' if reached else '  MISSED'}",
        flush=True,
    )
    return reached


def bench(name: str, pairs: int, seconds: float, core: int) -> bool:
    """One loop in all states; whether its goals were reached."""
    title, goals = LOOPS[name]
    head(title)
    untraced, other = TracedLoops(traced=False, core=core), TracedLoops(traced=False, core=core)
    traced = TracedLoops(core=core)
    try:
        show("untraced (itself)", measure(other, untraced, name, FEW, seconds))
        other.close()
        dormant = measure(traced, untraced, name, pairs, seconds)
        good = [show("dormant", dormant, goals["dormant"])]
        monitor = traced.attach()
        monitor.keep = False
        attached = measure(traced, untraced, name, pairs, seconds)
        good.append(show("attached", attached, goals["attached"]))
        monitor.settle()
        seen, drops = monitor.kernels, monitor.drops
        monitor.detach()
        time.sleep(0.2)
        detached = measure(traced, untraced, name, pairs, seconds)
        good.append(show("after the detach", detached, goals["detached"]))
        good += [
            beside(untraced, name, tool, seconds, core, attached) for tool in ("torch", "proton")
        ]
        found = [untraced.run(f"{name} {seconds} s") for _ in range(5)]
        each_us = 1e6 * statistics.median(run["seconds"] / run["kernels"] for run in found)
        costs = (each_us * (1 / statistics.median(ratios) - 1) for ratios in (attached, detached))
        print("  {:.2f} µs a kernel; attached {:+.2f} µs, after {:+.2f} µs".format(each_us, *costs))
        print(f"  {seen + drops:,} records, of which {drops:,} were dropped", flush=True)
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
        program.run(f"{name} {seconds} s")
        program.start(f"profiler {tool}")
        found = program.result()
        if not found["good"]:
            print(f"  under {tool:18}does not run here: {found['why']}")
            return True
        theirs = measure(program, untraced, name, FEW, seconds)
        show(f"under {tool}", theirs)
        less = statistics.median(ours) > statistics.median(theirs)
        if not less:
            print(f"  {'':24}MISSED: ours must cost less than {tool}")
        return less
    except AssertionError as error:
        print(f"  under {tool:18}did not last: {str(error)[-300:]}")
        return True
    finally:
        program.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.24, help="of each program in a pair")
    parser.add_argument("--loop", choices=list(LOOPS), action="append", help="only this one")
    arguments = parser.parse_args()
    if not nvidia_gpu_present() or not importlib.util.find_spec("torch"):
        print("skipped: this needs an NVIDIA GPU and torch")
        return
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[:-1]) or set(cores))
    loops = arguments.loop or list(LOOPS)
    reached = [bench(name, arguments.pairs, arguments.seconds, cores[-1]) for name in loops]
    print("all goals were reached" if all(reached) else "some goals were MISSED")


if __name__ == "__main__":
    main()
