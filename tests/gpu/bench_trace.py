"""What tracing costs a program: throughput dormant, attached and after a detach, over untraced.

    python tests/gpu/bench_trace.py [--pairs 30] [--seconds 0.12] [--limit 150] [--loop eager]

Beside it, what torch.profiler and, where it runs, proton cost the same loops: eager, tiny, gemm. Programs
share a core; the two of a pair take turns in slices, so that a drift of the clock favours neither. The
monitor reads on other cores. About two minutes; what is not measured within --limit seconds says so. Needs
a GPU and torch; says so and ends well where one is missing.

The lines «x µs a kernel; attached +y µs, after +z µs» are what roofmon/model/tracing_cost.py holds.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from asked_program import core_apart
from traced_gpu_program import TracedLoops, start_together

from roofmon.collector.rungs import nvidia_gpu_present
from roofmon.model.stats import median_with_interval

TITLES = {
    "eager": "6 µs launches (eager)",
    "tiny": "graph of 100 × 1 µs kernels",
    "gemm": "24 µs GEMM",
}
GOALS = {
    "dormant": {"eager": 0.99, "tiny": 0.99, "gemm": 0.99},
    "attached": {"eager": 0.85, "tiny": 0.70, "gemm": 0.985},
    "after the detach": {"eager": 0.88, "tiny": 0.98, "gemm": 0.99},
}
TOOLS = ("torch", "proton")
FEW = 6  # pairs of what has no goal: a program against itself, and other profilers
SLICES = 8  # of a pair, in the order ABBA BAAB; each holds several batches of the loop


class Bench:
    """The programs, and the rows of the table: ratios by loop and label."""

    def __init__(self, loops: list[str], pairs: int, seconds: float, limit: float) -> None:
        self.loops, self.pairs, self.seconds = loops, pairs, seconds
        self.until = time.monotonic() + limit
        self.found: dict[tuple[str, str], list[float]] = {}
        self.untraced_us: dict[str, list[float]] = {name: [] for name in loops}
        self.missed = 0

    def pair(self, one: TracedLoops, other: TracedLoops, name: str) -> float:
        """Throughput of `one` over that of `other`, each running `seconds` in all."""
        kernels, spent = [0.0, 0.0], [0.0, 0.0]
        for number in range(SLICES):
            first = number % 4 in (0, 3) if number < SLICES // 2 else number % 4 in (1, 2)
            found = (one if first else other).run(f"{name} {2 * self.seconds / SLICES} s")
            kernels[first] += found["kernels"]
            spent[first] += found["seconds"]
        self.untraced_us[name].append(1e6 * spent[0] / kernels[0])
        return kernels[1] / spent[1] * spent[0] / kernels[0]

    def row(self, label: str, name: str, one: TracedLoops, other: TracedLoops) -> None:
        """Measures and prints one row: after a pair that does not count, some that do."""
        goal = GOALS.get(label, {}).get(name)
        ratios: list[float] = []
        for number in range(1 + (FEW if goal is None else self.pairs)):
            if time.monotonic() > self.until:
                break
            ratio = self.pair(one, other, name)
            ratios += [ratio] if number else []
        self.found[name, label] = ratios
        line = f"  {TITLES[name]:29}{label:18}"
        if len(ratios) < FEW:
            self.missed += goal is not None
            print(f"{line}not measured: the time was up", flush=True)
            return
        median, low, high = median_with_interval(np.array(ratios))
        reached = goal is None or median >= goal
        self.missed += not reached
        aim = "" if goal is None else f"≥ {goal:.3f}"
        print(
            f"{line}{aim:>8}{median:8.4f}{f'[{low:.4f}, {high:.4f}]':>18}"
            f"{f'{min(ratios):.3f} … {max(ratios):.3f}':>16}{len(ratios):>4}"
            f"{'' if goal is None else '  reached' if reached else '  MISSED'}",
            flush=True,
        )

    def beside(self, tool: str, program: "TracedLoops | str", untraced: TracedLoops) -> None:
        """The same loops under another profiler, which must cost more than ours."""
        label = f"under {tool}"
        if isinstance(program, str):
            print(f"  {label}: {program}")
            return
        try:
            for name in self.loops:  # what is made at a first run is not to be profiled
                program.run(f"{name} 0.01 s")
            program.start(f"profiler {tool}")
            started = program.result()
            if not started["good"]:
                print(f"  {label}: does not run here: {started['why']}")
                return
            for name in self.loops:
                self.row(label, name, program, untraced)
                ours, theirs = self.found[name, "attached"], self.found[name, label]
                if ours and theirs and statistics.median(ours) <= statistics.median(theirs):
                    self.missed += 1
                    print(f"  {TITLES[name]:29}MISSED: ours must cost less than {tool}")
        except AssertionError as error:
            print(f"  {label}: did not last: {str(error)[-300:]}")

    def costs(self) -> None:
        """What a launch takes, and what is added to it."""
        for name in self.loops:
            told = []
            for label, word in (("attached", "attached"), ("after the detach", "after")):
                each_us = statistics.median(self.untraced_us[name] or [float("nan")])
                ratio = statistics.median(self.found[name, label] or [float("nan")])
                told.append(f"{word} {each_us * (1 / ratio - 1):+.2f} µs")
            print(f"  {TITLES[name]:29}{each_us:.2f} µs a kernel; {', '.join(told)}", flush=True)


def measure(bench: Bench, programs: "dict[str, TracedLoops | str]") -> None:
    """All rows: of each state all loops, as a program that was attached to is never dormant again."""
    untraced, traced, twin = (programs[name] for name in ("untraced", "traced", "itself"))
    for program in (untraced, traced, twin):
        if isinstance(program, str):
            sys.exit(f"a program {program}")
    head = f"  {'throughput / untraced':47}{'goal':>8}{'median':>8}{'95 % of it':>18}"
    print(f"{head}{'least … most':>16}{'n':>4}")
    for name in bench.loops:
        bench.row("dormant", name, traced, untraced)
    monitor = traced.attach()
    monitor.keep = False
    for name in bench.loops:
        bench.row("attached", name, traced, untraced)
    monitor.settle()
    print(f"  {monitor.kernels + monitor.drops:,} records, of which {monitor.drops:,} were dropped")
    monitor.detach()
    time.sleep(0.2)  # it leaves with its next flush
    for name in bench.loops:
        bench.row("after the detach", name, traced, untraced)
    bench.costs()
    for tool in TOOLS:
        bench.beside(tool, programs[tool], untraced)
    for name in bench.loops:
        bench.row("itself, untraced", name, twin, untraced)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.12, help="of each program in a pair")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for all")
    parser.add_argument("--loop", choices=list(TITLES), action="append", help="only this one")
    arguments = parser.parse_args()
    if not nvidia_gpu_present() or not importlib.util.find_spec("torch"):
        print("skipped: this needs an NVIDIA GPU and torch")
        return
    core = core_apart()
    began = time.monotonic()
    bench = Bench(
        arguments.loop or list(TITLES), arguments.pairs, arguments.seconds, arguments.limit
    )
    names = ("untraced", "traced", "itself", *TOOLS)
    programs = start_together(
        **{name: {"traced": name == "traced", "core": core} for name in names}
    )
    print(f"{len(names)} programs started in {time.monotonic() - began:.0f} s", flush=True)
    try:
        measure(bench, programs)
    finally:
        for program in programs.values():
            if isinstance(program, TracedLoops):
                program.close()
    print(f"measured in {time.monotonic() - began:.0f} s")
    print(f"{bench.missed} goals were MISSED" if bench.missed else "all goals were reached")


if __name__ == "__main__":
    main()
