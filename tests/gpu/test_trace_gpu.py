"""The injected library in real CUDA programs: exact counts and times, program and its profiler unharmed.

ROOFMON_SAFETY_CYCLES (200) is how often each safety run attaches and detaches, ROOFMON_TRACE_RECORDS
(3,000,000) how many records of graphs are looked at, ROOFMON_CUDA12_PYTHON an interpreter whose torch is
of CUDA 12.
"""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import pytest
from traced_gpu_program import TracedLoops

from roofmon.tracing.trace_protocol import TRANSFER_KINDS

CYCLES = int(os.environ.get("ROOFMON_SAFETY_CYCLES", "200"))
RECORDS = int(os.environ.get("ROOFMON_TRACE_RECORDS", "3000000"))
MODES = ("eager", "before", "after", "threads", "streams")
MIB = 1 << 20

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed"),
]


def interpreters() -> list[str]:
    other = os.environ.get("ROOFMON_CUDA12_PYTHON")
    return [sys.executable, *([other] if other else [])]


@pytest.fixture
def start() -> Iterator[Callable[..., TracedLoops]]:
    programs: list[TracedLoops] = []

    def start_program(**options) -> TracedLoops:
        programs.append(TracedLoops(**options))
        return programs[-1]

    yield start_program
    for program in programs:
        program.close()


def test_every_kernel_is_counted_and_described(start) -> None:
    program = start()
    program.run("eager 10")
    program.run("before 2")
    monitor = program.attach()
    before = time.time_ns()
    kernels = program.run("eager 5000")["kernels"] + program.run("before 30")["kernels"]
    after = time.time_ns()
    monitor.settle()
    records = monitor.records
    assert before < records["start_ns"].min() < records["end_ns"].max() < after
    adds = [number for number, name in monitor.names.items() if "elementwise" in name]
    ours = records[np.isin(records["name"], adds)]
    assert (len(ours), monitor.drops) == (kernels, 0)
    assert ((ours["graph"] == 0).sum(), (ours["graph"] != 0).sum()) == (5000, 3000)
    assert (records["block"] > 0).all()
    assert (records["grid"] > 0).all()
    assert records["registers"].max() > 0
    (device,) = monitor.devices
    command = ["nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert device.uuid in listed
    assert device.name in listed
    assert device.sm_count > 0
    assert device.max_threads_per_sm >= 1024
    monitor.detach()
    program.finish()


@pytest.mark.parametrize("work", ["add", "softmax", "gemm4096"])
def test_durations_agree_with_cuda_events(start, work: str) -> None:
    program = start()
    program.run(f"{work} 200")
    monitor = program.attach()
    event_us = program.run(f"{work} 500")["event_us"]
    monitor.settle()
    records = monitor.records
    common = np.bincount(records["name"]).argmax()
    durations = (records["end_ns"] - records["start_ns"])[records["name"] == common] / 1e3
    assert len(durations) == 500
    assert durations.mean() == pytest.approx(event_us, rel=0.01)
    monitor.detach()
    program.finish()


def test_transfers_have_their_direction_and_size(start) -> None:
    program = start()
    monitor = program.attach()
    program.run("copies 50")
    monitor.settle()
    transfers = np.concatenate(monitor.transfer_batches)
    large = transfers[transfers["bytes"] == MIB]
    kinds = [TRANSFER_KINDS[kind] for kind in large["kind"]]
    assert (kinds.count("memcpy h2d"), kinds.count("memcpy d2h")) == (50, 50)
    rates = large["bytes"] / (large["end_ns"] - large["start_ns"])
    assert 5 < np.median(rates) < 500  # GB/s
    program.finish()


@pytest.mark.parametrize("python", interpreters())
@pytest.mark.parametrize("mode", MODES)
def test_attaching_and_detaching_under_load_does_no_harm(start, mode: str, python: str) -> None:
    program = start(python=python)
    program.run("eager 10")
    program.run(f"{mode} 10")
    free = program.run("eager 10")["free_bytes"]
    records = drops = 0
    for cycle in range(CYCLES):
        program.start(f"{mode} 0.15 s")
        time.sleep(0.01 * (cycle % 4))
        monitor = program.attach()
        time.sleep(0.03 + 0.01 * (cycle % 3))
        monitor.detach()
        records += monitor.kernels
        drops += monitor.drops
        result = program.result()
        assert result["good"], (cycle, result)
    left = program.run("eager 1000")["free_bytes"]
    print(
        f"{mode}: {CYCLES} cycles, {records} records, {drops} drops, {(free - left) / MIB:.0f} MiB"
    )
    assert records > CYCLES
    assert free - left < 100 * MIB
    program.finish()


def test_millions_of_graph_records_keep_their_times_and_memory(start) -> None:
    program = start()
    program.run("tiny 100")
    monitor = program.attach()
    monitor.keep = False
    free = program.run("tiny 1000")["free_bytes"]
    latest = drops = 0
    while monitor.graph_kernels + monitor.drops < RECORDS:
        monitor.settle()
        monitor.keep = True
        monitor.batches.clear()
        began = time.time_ns()
        program.run("tiny 10000")
        monitor.settle()
        times = monitor.records
        assert began < times["start_ns"].min()
        assert times["end_ns"].max() < time.time_ns()
        assert times["end_ns"].max() > latest
        latest = int(times["end_ns"].max())
        drops = monitor.drops
    left = program.run("tiny 1000")["free_bytes"]
    print(f"{monitor.graph_kernels} graph records, {drops} drops, {(free - left) / MIB:.1f} MiB")
    assert drops < 0.01 * monitor.graph_kernels
    assert free - left < 40 * MIB
    program.finish()


def test_programs_own_profiler_sees_all_while_dormant_and_after_a_detach(start) -> None:
    program = start()
    assert program.run("profile 200")["seen"] == 200
    monitor = program.attach()
    program.run("eager 1000")
    monitor.settle()
    assert monitor.kernels >= 1000
    monitor.detach()
    time.sleep(0.3)
    assert program.run("profile 200")["seen"] == 200
    program.finish()


def test_library_yields_to_the_programs_own_profiler(start) -> None:
    program = start()
    monitor = program.attach()
    program.run("eager 1000")
    monitor.settle()
    seen = program.run("profile 200")["seen"]
    print(f"attached, the program's profiler saw {seen} of 200")
    monitor.wait(lambda: monitor.state == "yielded", 30)
    assert "profiler" in monitor.states[-1].reason
    assert program.run("profile 200")["seen"] == 200
    monitor.detach()
    again = program.attach()
    program.run("eager 1000")
    again.settle()
    assert again.kernels >= 1000
    program.finish()


def test_silence_and_long_kernels_are_no_reason_to_yield(start) -> None:
    program = start()
    monitor = program.attach()
    program.run("eager 10")
    time.sleep(6)
    program.run("long 1")
    program.run("eager 10")
    monitor.settle()
    assert [state.state for state in monitor.states] == ["starting", "tracing"]
    assert monitor.kernels >= 21
    program.finish()


@pytest.mark.parametrize("attached", [True, False])
def test_program_that_ends_at_work_ends_well(start, attached: bool) -> None:
    for _ in range(5):
        program = start()
        monitor = program.attach() if attached else None
        program.run("threads 200")
        program.run("before 200")
        program.finish()
        if monitor is not None:
            monitor.wait(lambda: monitor.connection.closed is not None)  # noqa: B023
            assert monitor.kernels + monitor.drops >= 21_600


def test_two_monitors_get_the_same(start) -> None:
    program = start()
    first, second = program.attach(), program.attach()
    program.run("streams 500")
    first.settle()
    second.settle()
    assert first.kernels == second.kernels >= 2000
    assert (first.records == second.records).all()
    program.finish()
