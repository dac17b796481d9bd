"""How long a chart takes: 11 lines and 200 points at 120×40. Run as a script."""

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from roofmon.chart import Point, Roof, Scene, cell_key, render

ROUNDS = 100


def scene() -> Scene:
    """Roofs of an H200, two of them dotted and one dashed, under a cloud of kernels."""
    bandwidths = {"L1": 33.5e12, "L2": 9.6e12, "DRAM": 4.39e12}
    computes = {
        "fp8": 1355e12,
        "bf16 issue": 866e12,
        "bf16": 753e12,
        "fp16": 705e12,
        "tf32": 366e12,
        "tf32 issue": 453e12,
        "fp64": 62e12,
        "fp32": 51.9e12,
    }
    roofs = [
        Roof("bandwidth", value, name, "roof.memory", name, emphasised=name == "DRAM")
        for name, value in bandwidths.items()
    ]
    lines = {"bf16 issue": "dotted", "tf32 issue": "dotted", "fp64": "dashed"}
    roofs += [
        Roof("compute", value, name, "roof.compute", name, lines.get(name, "solid"), name == "bf16")  # type: ignore[arg-type]
        for name, value in computes.items()
    ]
    dice = random.Random(1)
    points = tuple(
        Point(10 ** dice.uniform(-1, 3), 10 ** dice.uniform(10, 14.5), str(number), "point.memory")
        for number in range(1, 201)
    )
    return Scene(tuple(roofs), points)


def milliseconds(work: Callable[[], object]) -> tuple[float, float]:
    """The median and the 95th percentile of `ROUNDS` rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    return statistics.median(times), times[int(ROUNDS * 0.95)]


def main() -> None:
    chart = scene()
    start = time.perf_counter()
    render(chart, 120, 40)
    first = (time.perf_counter() - start) * 1e3
    median, p95 = milliseconds(lambda: render(chart, 120, 40))
    print(
        f"chart: render {median:.1f} ms (goal 20)  p95 {p95:.1f} ms, 120×40, 11 lines, 200 points"
    )
    median, p95 = milliseconds(lambda: cell_key(chart, 120, 40))
    print(f"chart: cell key {median:.2f} ms, p95 {p95:.2f} ms")
    print(f"chart: first render, with the import of plotext {first:.0f} ms")
    code = (
        "import time; t = time.perf_counter(); import roofmon.chart; print(time.perf_counter() - t)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print(f"chart: import {float(done.stdout) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
