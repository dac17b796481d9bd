"""What a region costs the annotated program, and what its records cost the collector.

Run directly: `python tests/benchmarks/bench_region.py`. The goals are of a whole `with region(…)` with
two numbers, less the loop around it: median of 15 loops, in a program of its own.
"""

import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import roofmon
from roofmon.tracing.endpoints import find_endpoints
from roofmon.tracing.protocol import RECORD_DTYPE, Records
from roofmon.tracing.reader import RegionConnection
from roofmon.tracing.statistics import KernelStatistics

PROGRAM = """
import statistics, time
from region import region
LOOPS, N = 15, 20_000
def regions():
    for _ in range(N):
        with region("softmax", flops=1e9, bytes=2e9):
            pass
def nothing():
    for _ in range(N):
        pass
def timed(loop):
    begin = time.perf_counter()
    loop()
    return (time.perf_counter() - begin) / N
def cost():
    spent = []
    for _ in range(LOOPS):
        spent.append(timed(regions) - timed(nothing))
        time.sleep(0.05)
    return statistics.median(spent)
print(cost(), flush=True)
input()
print(cost(), flush=True)
"""


def region_cost() -> tuple[float, float]:
    """Seconds of one region while nobody listens, and while a monitor does."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, "region.py")
        copy.write_text((Path(roofmon.__file__).parent / "region.py").read_text())
        os.environ["XDG_RUNTIME_DIR"] = directory
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONPATH": directory},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert program.stdin is not None
        assert program.stdout is not None
        dormant = float(program.stdout.readline())
        (endpoint,) = (e for e in find_endpoints() if e.pid == program.pid)
        connection = RegionConnection(endpoint)
        while not connection.receive():
            time.sleep(0.01)
        program.stdin.write("\n")
        program.stdin.flush()
        while connection.closed is None:
            select.select([connection], [], [], 1)
            connection.receive()
        return dormant, float(program.stdout.read())


def collector_cost(records_a_second: int, rows: int, batches: int = 20) -> float:
    """Share of a core that decoding and statistics take, of records that come in `batches` a second."""
    random = np.random.default_rng(1)
    statistics = KernelStatistics()
    events = [batch(random, records_a_second // batches, rows) for _ in range(batches)]
    statistics.add(*(np.ones(1) for _ in range(6)))  # numpy loads parts of itself at first use
    statistics.take_changes()
    seconds = 3
    begin = time.process_time()
    for _ in range(seconds):
        for number, event in enumerate(events):
            records = event.records
            statistics.add(
                records["id"],
                records["start_ns"],
                records["duration_ns"],
                records["flops"],
                records["bytes"],
                records["depth"],
            )
            if number % (batches // 2) == 0:
                statistics.take_changes()
    return (time.process_time() - begin) / seconds


def batch(random: np.random.Generator, n: int, rows: int) -> Records:
    records = np.zeros(n, dtype=RECORD_DTYPE)
    records["id"] = random.integers(0, rows, n)
    records["duration_ns"] = 1e4 * (1 + records["id"]) * random.lognormal(0, 0.02, n)
    records["flops"] = records["bytes"] = 1e6
    return Records(records)


if __name__ == "__main__":
    dormant, listened = region_cost()
    print(f"region: dormant {dormant * 1e6:.2f} us, listened {listened * 1e6:.2f} us (goals 1, 5)")
    for rate, rows in ((5_000, 30), (200_000, 30), (200_000, 5_000)):
        share = 100 * collector_cost(rate, rows)
        print(f"statistics: {rate} records/s of {rows} rows take {share:.1f} % of a core")
