"""What a monitor hears of regions: real programs, real sockets."""

import math
import time

import numpy as np
import pytest

from roofmon.tracing.protocol import MAX_DESCRIPTIONS, OTHER, UNUSABLE_WORK, Hello

ATTACHED = """
import sys, time
from region import region
region("start")
print("ready", flush=True); input()
"""


# A program that ends gives its monitors a moment to take the last records, which a busy machine may let
# pass: here it ends when they have been handed over.
HANDED_OVER = """
import region as sender
deadline = time.monotonic() + 20
while time.monotonic() < deadline and (
    sender._buffer or any(monitor.pending for monitor in sender._listener.monitors)
):
    time.sleep(0.01)
"""


def run(start, body: str):
    """Runs `body` in a program with a monitor attached, to its end."""
    program = start(ATTACHED + body + HANDED_OVER)
    assert program.read() == "ready"
    monitor = program.attach()
    program.step()
    monitor.wait_for_end()
    program.finish()
    return monitor


def test_record_has_name_work_and_times(start):
    before = time.time_ns()
    monitor = run(
        start,
        """
with region("copy", bytes=1e9, level="llc"):
    time.sleep(0.05)
with region("gemm", precision="bf16", unit="tensor") as r:
    with region("inner"): pass
    r.flops = 12
""",
    )
    after = time.time_ns()
    hello = monitor.events[0]
    assert isinstance(hello, Hello)
    assert hello.process.startswith("python")
    (copy,), (gemm,), (inner,) = map(monitor.named, ("copy", "gemm", "inner"))
    assert copy["bytes"] == 1e9
    assert math.isnan(copy["flops"])
    assert 50e6 <= copy["duration_ns"] < 1e9
    assert before < copy["start_ns"] < copy["start_ns"] + copy["duration_ns"] < after
    assert (gemm["flops"], gemm["depth"], inner["depth"]) == (12, 0, 1)
    assert gemm["start_ns"] <= inner["start_ns"]
    described = {d.name: (d.level, d.unit, d.precision) for d in monitor.descriptions.values()}
    assert described["copy"] == ("llc", "vector", "fp32")
    assert described["gemm"] == ("dram", "tensor", "bf16")


def test_functions_coroutines_and_generators_are_decorated(start):
    monitor = run(
        start,
        """
import asyncio
@region("factorial", flops=2)
def factorial(n):
    "Documented."
    return n * factorial(n - 1) if n else 1
@region("wait")
async def wait():
    await asyncio.sleep(0.01)
    return 5
@region("count")
def count():
    got = yield 1
    return got
def outer():
    got = yield from count()
    assert got == "sent"
    yield 2
assert factorial(3) == 6 and factorial.__doc__ == "Documented."
assert asyncio.run(wait()) == 5
steps = outer()
assert next(steps) == 1 and steps.send("sent") == 2
""",
    )
    assert sorted(record["depth"] for record in monitor.named("factorial")) == [0, 1, 2, 3]
    assert {record["flops"] for record in monitor.named("factorial")} == {2}
    (wait,) = monitor.named("wait")
    assert wait["duration_ns"] >= 10e6
    assert len(monitor.named("count")) == 1


def test_exception_is_recorded_and_passes_through(start):
    monitor = run(
        start,
        """
try:
    with region("fails"):
        raise KeyError("own")
except KeyError as error:
    assert error.args == ("own",)
else:
    sys.exit(1)
with region("after"): pass
""",
    )
    assert [len(monitor.named(name)) for name in ("fails", "after")] == [1, 1]
    assert monitor.named("after")[0]["depth"] == 0


def test_interleaved_tasks_leave_the_depth_as_it_was(start):
    monitor = run(
        start,
        """
import asyncio
async def task(name, first, second):
    await asyncio.sleep(first)
    with region(name):
        await asyncio.sleep(second)
async def main():
    await asyncio.gather(task("a", 0, 0.03), task("b", 0.01, 0.06))
asyncio.run(main())
with region("after"): pass
""",
    )
    (a,), (b,), (after,) = map(monitor.named, ("a", "b", "after"))
    assert 30e6 <= a["duration_ns"] < 55e6 <= b["duration_ns"]
    assert after["depth"] == 0


def test_depth_is_of_the_thread(start):
    monitor = run(
        start,
        """
import threading
def work():
    with region("thread"): pass
with region("main"):
    thread = threading.Thread(target=work); thread.start(); thread.join()
r = region("again")
with r:
    with r: time.sleep(0.01)
""",
    )
    assert monitor.named("thread")[0]["depth"] == 0
    inner, outer = monitor.named("again")
    assert (inner["depth"], outer["depth"]) == (1, 0)
    assert outer["start_ns"] < inner["start_ns"]


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("-1", None),
        ("float('inf')", None),
        ("'many'", None),
        ("10 ** 400", None),
        ("object()", None),
        ("True", 1.0),
        ("__import__('fractions').Fraction(1, 2)", 0.5),
    ],
)
def test_odd_work_is_unknown_and_never_raises(start, work, expected):
    monitor = run(start, f"\nwith region('odd', flops={work}, bytes=3): pass")
    (odd,) = monitor.named("odd")
    assert odd["bytes"] == 3
    if expected is None:
        assert math.isnan(odd["flops"])
        assert odd["flags"] == UNUSABLE_WORK
    else:
        assert (odd["flops"], odd["flags"]) == (expected, 0)


def test_descriptions_beyond_the_limit_share_one_without_work(start):
    monitor = run(
        start,
        f"""
for i in range({MAX_DESCRIPTIONS + 100}):
    with region(f"region {{i}}", flops=1): pass
for i in range(2):
    with region("region 7", flops=1): pass
""",
    )
    # "start" is one of them.
    assert len(monitor.descriptions) == MAX_DESCRIPTIONS + 1
    other = monitor.named(OTHER)
    assert len(other) == 101
    assert all(math.isnan(record["flops"]) for record in other)
    assert len(monitor.named("region 7")) == 3


def test_names_are_bounded_and_stripped(start):
    monitor = run(
        start,
        r"""
with region("\x1b]0;owned\x07 \ud800" + "x" * 5000): pass
""",
    )
    name = next(d.name for d in monitor.descriptions.values() if "owned" in d.name)
    assert len(name) <= 256
    assert name.isprintable()


def test_region_entered_before_the_monitor_came_is_not_sent(start):
    program = start(
        """
from region import region
with region("early"):
    with region("first"): pass
    print("ready", flush=True); input()
    with region("inside"): pass
with region("late"): pass
"""
    )
    assert program.read() == "ready"
    monitor = program.attach()
    program.step()
    monitor.wait_for_end()
    assert [record["name"] for record in monitor.records] == ["inside", "late"]
    assert [record["depth"] for record in monitor.records] == [0, 0]
    program.finish()


def test_last_records_before_the_end_arrive(start):
    # As many as fit into the socket, so that they arrive however late they are read.
    program = start(ATTACHED + "\nfor _ in range(3000):\n    with region('x'): pass")
    assert program.read() == "ready"
    monitor = program.attach()
    program.step()
    monitor.wait_for_end()
    program.finish()
    assert monitor.count == 3000
    assert monitor.drops == 0


def test_durations_are_those_the_program_measured(start):
    monitor = run(
        start,
        """
spent = []
for _ in range(200):
    begin = time.perf_counter_ns()
    with region("timed"): time.sleep(0.0002)
    spent.append(time.perf_counter_ns() - begin)
with region("sum", flops=sum(spent)): pass
""",
    )
    (total,) = monitor.named("sum")
    timed = np.concatenate(monitor.batches)[:-1]["duration_ns"]
    assert 0.9 * total["flops"] < timed.sum() <= total["flops"]
