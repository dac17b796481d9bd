"""What watching a GPU costs, and how well its live point agrees with known work.

    python tests/gpu/bench_telemetry.py [--pairs 30]

Prints the live screen beside `nvitop --interval 1` where that is installed; the throughput of a program's
loops with and without the monitor, in interleaved pairs; and the device's point against loops of known
work. Needs a GPU and torch; says so and ends well where one is missing.
"""

import argparse
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import numpy as np
import psutil
from bench_screen import Case, Terminal, measure, shown

from roofmon.collector.rungs import nvidia_gpu_present
from roofmon.model.snapshot import Snapshot
from roofmon.model.stats import median_with_interval
from roofmon.resources import python_module
from roofmon.stream.consumer import Consumer

LOOPS = Path(__file__).with_name("loops.py")
ROOFMON = (*python_module("roofmon"), "live")
ENVIRONMENT = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
PAIR_S = 1.0
SLICES = 8  # of a pair: a loop bound by launching drifts by several percent within seconds
SETTLE_S = 0.05


class Loop:
    """A running loops.py, pinned to a core."""

    def __init__(self, name: str, core: int | None = None) -> None:
        pinned = [] if core is None else [str(core)]
        self._process = subprocess.Popen(
            [sys.executable, str(LOOPS), name, *pinned],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "ready"

    def start(self, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, float]:
        assert self._process.stdout is not None
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return found

    def run(self, seconds: float) -> dict[str, float]:
        self.start(seconds)
        return self.result()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)


def screen_costs() -> None:
    """The screen beside nvitop, in one table."""
    cases = [Case("roofmon", ROOFMON, "\0", 5.0)]
    if importlib.util.find_spec("nvitop") or shutil.which("nvitop"):
        nvitop = [sys.executable, "-m", "nvitop", "--interval", "1"]
        cases.append(Case("nvitop", tuple(nvitop), "\0", 5.0, b"NVITOP", b"NVITOP"))
    else:
        print("nvitop is not installed: no ratio to it")
    print(
        f"{'':10}{'first frame':>12}{'keys':>8}{'screen':>9}{'children':>10}"
        f"{'memory':>10}{'painted':>12}"
    )
    first: dict[str, float | None] = {}
    for case in cases:
        costs = [measure(case, 15.0 if turn == 0 else 0.5, ENVIRONMENT) for turn in range(3)]
        first[case.name] = _median([cost.first_frame_s for cost in costs])
        ready = _median([cost.ready_s for cost in costs])
        cost = costs[0]
        print(
            f"{case.name:10}{shown(first[case.name], '.2f'):>10} s{shown(ready, '.2f'):>6} s"
            f"{shown(cost.screen_percent, '.2f'):>7} %{shown(cost.children_percent, '.2f'):>8} %"
            f"{shown(cost.rss_mib, '.0f'):>6} MiB{shown(cost.painted_bytes_per_s, ',.0f'):>8} B/s"
        )
    ours, theirs = first["roofmon"], first.get("nvitop")
    if ours and theirs:
        print(
            f"first frame / nvitop = {ours / theirs:.2f} (goal ≤ 1.6); its keys work from then on,"
        )
        print("ours when textual has been imported: the column `keys`")
    print("goals: collector with telemetry 2 %, screen with 30 kernels 4 %, memory 220 MiB")


def _median(times: list[float | None]) -> float | None:
    known = [seconds for seconds in times if seconds is not None]
    return statistics.median(known) if known else None


class Monitor:
    """The live screen in a pseudo-terminal, which can be frozen and let go on."""

    def __init__(self) -> None:
        self._terminal = Terminal(ROOFMON, ENVIRONMENT)
        self._draining = True
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()
        time.sleep(4.0)
        self._screen = psutil.Process(self._terminal.pid)

    def _drain(self) -> None:
        while self._draining:
            self._terminal.pump(0.2)

    def freeze(self, frozen: bool) -> None:
        for process in (self._screen, *self._screen.children(recursive=True)):
            process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def close(self) -> None:
        self.freeze(False)
        self._draining = False
        self._thread.join()
        self._terminal.close()


def _pair(loop: Loop, freeze: Callable[[bool], None]) -> float:
    """Throughput with the monitor over without, a second of each.

    The two take turns in slices, in the order ABBA BAAB, so that a drift of the clock favours neither.
    """
    counts, seconds = [0.0, 0.0], [0.0, 0.0]
    for number in range(SLICES):
        watched = number % 4 in (0, 3) if number < SLICES // 2 else number % 4 in (1, 2)
        freeze(not watched)
        time.sleep(SETTLE_S)
        result = loop.run(2 * PAIR_S / SLICES)
        counts[watched] += result["iterations"]
        seconds[watched] += result["seconds"]
    return counts[1] / seconds[1] * seconds[0] / counts[0]


def overhead(name: str, pairs: int) -> None:
    """Throughput of one loop with the monitor over without, in interleaved pairs."""
    core = sorted(os.sched_getaffinity(0))[-1]
    monitor, loop = Monitor(), Loop(name, core)
    try:
        loop.run(PAIR_S)
        ratios = [_pair(loop, monitor.freeze) for _ in range(pairs)]
        monitor.freeze(True)
        against_itself = [_pair(loop, lambda frozen: None) for _ in range(10)]
    finally:
        monitor.close()
        loop.close()
    _, low, _ = median_with_interval(np.array(ratios))
    _, itself_low, itself_high = median_with_interval(np.array(against_itself))
    print(
        f"{name}: with / without = {statistics.median(ratios):.4f} (goal ≥ 0.995), "
        f"lower 95 % bound {low:.4f} (goal ≥ 0.98), {len(ratios)} pairs "
        f"from {min(ratios):.3f} to {max(ratios):.3f}; "
        f"the loop against itself {itself_low:.3f}–{itself_high:.3f}"
    )


def point_agreement() -> None:
    """The device's own point while loops of known work run."""
    snapshots: list[Snapshot] = []
    consumer = Consumer(
        (*python_module("roofmon.collector"), "--interval", "0.25"),
        lambda: snapshots.append(consumer.snapshot) if consumer.snapshot else None,
    )
    consumer.start()
    try:
        for name, key, own in (
            ("add", "dram", "bytes_per_s"),
            ("gemm_fp32", "vector/fp32", "flops_per_s"),
            ("gemm_bf16", "tensor/bf16", "flops_per_s"),
        ):
            loop = Loop(name)
            try:
                loop.run(1.0)
                loop.start(4.0)
                time.sleep(1.0)
                snapshots.clear()
                time.sleep(2.5)
                seen = {
                    (d.sample.device, d.sample.time_unix_ns): d.sample.rates[key]
                    for s in list(snapshots)
                    for d in s.devices
                    if d.sample and d.sample.rates and key in d.sample.rates
                }
                true = loop.result()[own]
            finally:
                loop.close()
            if not seen:
                print(f"point, {name}: no rate of {key} was sampled")
                continue
            values = sorted(seen.values())
            ratio = statistics.median(values) / true
            print(
                f"point, {name}: {key} {statistics.median(values):.4g} of the loop's own {true:.4g}"
                f" = {ratio:.3f} (goal 0.95–1.05), {len(values)} samples,"
                f" {values[0] / true:.3f}–{values[-1] / true:.3f}"
            )
    finally:
        consumer.close()


def main() -> int:
    """Run everything that can run here."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=30)
    arguments = parser.parse_args()
    if not nvidia_gpu_present():
        print("skipped: no NVIDIA GPU here")
        return 0
    screen_costs()
    if importlib.util.find_spec("torch") is None:
        print("skipped: the loops need torch")
        return 0
    for name in ("gemm", "launches"):
        overhead(name, arguments.pairs)
    point_agreement()
    return 0


if __name__ == "__main__":
    sys.exit(main())
