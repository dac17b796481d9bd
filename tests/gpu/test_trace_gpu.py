"""The injected library in real CUDA programs: exact counts and times, program and its profiler unharmed.

ROOFMON_SAFETY_CYCLES (200) is how often each safety run attaches and detaches (1,000 take about a minute a
run), ROOFMON_TRACE_RECORDS (3,000,000) how many records of graphs are looked at (a million takes about
two seconds), ROOFMON_CUDA12_PYTHON an interpreter whose torch is of CUDA 12.
"""

import importlib.util
import json
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
PAUSES_S = (0.0, 0.05, 0.005, 0.02)  # attached and detached: within a flush, and over some
STRETCH_S = 2.0
# 14 alone, bounded by the pool of CUPTI's buffers (32). In a container the driver tells only what all
# programs hold, so that those of tests that run side by side count too.
MOST_MIB = 64 * int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
MIB = 1 << 20

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed"),
]


def interpreters() -> list[str]:
    other = os.environ.get("ROOFMON_CUDA12_PYTHON")
    return [sys.executable, *([other] if other else [])]


def adds(monitor) -> list[int]:
    """Numbers of the names of the kernels that add, without those that set the first value."""
    return [number for number, name in monitor.names.items() if "_add" in name]


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
    ours = records[np.isin(records["name"], adds(monitor))]
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


def test_attach_while_the_driver_is_being_initialised(start) -> None:
    program = start(early=True)
    monitor = program.monitor
    monitor.wait(lambda: monitor.state in ("tracing", "failed"))
    monitor.settle()
    assert [state.state for state in monitor.states] == ["starting", "tracing"], monitor.states
    seen = sum(map(len, monitor.batches))
    print(f"{seen} of the program's first kernels were seen, {monitor.drops} drops")
    monitor.batches.clear()
    kernels = program.run("eager 1000")["kernels"] + program.run("before 10")["kernels"]
    monitor.settle()
    assert np.isin(monitor.records["name"], adds(monitor)).sum() == kernels
    program.finish()


def test_run_shows_the_kernels_of_a_short_program(tmp_path: Path) -> None:
    script = tmp_path / "short.py"
    script.write_text(
        "import torch\nx = torch.zeros(32, device='cuda')\n"
        "for _ in range(5000): x.add_(1)\nprint('sum', x.sum().item())\n"
    )
    command = [sys.executable, "-m", "roofmon", "run", "--json", "--", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "sum 160000.0" in done.stderr
    found = json.loads(done.stdout)
    rows = [row for row in found["kernels"] if row["kind"] == "kernel"]
    print(found["traced"], [(row["name"], row["launches"]) for row in rows])
    most = max(rows, key=lambda row: row["launches"])
    assert most["launches"] + found["dropped"] >= 4900  # the first may come before CUPTI is there
    gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    assert most["device"] in gpus


def test_durations_agree_with_cuda_events(start) -> None:
    """Of kernels of half a millisecond and more: events count the gap before each kernel too."""
    program = start()
    monitor = program.attach()
    agreement = {}
    for work, count in (("add", 300), ("softmax", 300), ("gemm8192", 200)):
        program.run(f"{work} 100")
        monitor.settle()
        monitor.batches.clear()
        event_us = program.run(f"{work} {count}")["event_us"]
        monitor.settle()
        records = monitor.records
        durations = (records["end_ns"] - records["start_ns"]) / 1e3
        longest = records["name"][durations.argmax()]
        ours = durations[records["name"] == longest]
        assert len(ours) == count
        agreement[work] = ours.mean() / event_us
    print({work: f"{ratio:.4f}" for work, ratio in agreement.items()})
    assert agreement == pytest.approx(dict.fromkeys(agreement, 1.0), rel=0.01)
    assert monitor.drops == 0
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
    program.run(f"{mode} 10")
    program.run("eager 10")
    held = program.held_bytes()
    cycles = records = drops = 0
    began = time.monotonic()
    while cycles < CYCLES:
        program.start(f"{mode} {STRETCH_S} s")
        until = time.monotonic() + STRETCH_S
        while cycles < CYCLES and time.monotonic() < until:
            monitor = program.attach()
            time.sleep(PAUSES_S[cycles % 4])
            monitor.detach()
            records += monitor.kernels
            drops += monitor.drops
            time.sleep(PAUSES_S[cycles // 4 % 4] / 4)
            cycles += 1
        result = program.result()
        assert result["good"], (cycles, result)
    seconds = time.monotonic() - began
    program.run("eager 1000")
    grown = (program.held_bytes() - held) / MIB
    print(
        f"{mode}: {cycles} cycles in {seconds:.0f} s, {records:,} records, {drops:,} drops, "
        f"GPU memory {grown:+.0f} MiB"
    )
    monitor = program.attach()  # and it still traces
    kernels = program.run("eager 1000")["kernels"] + program.run(f"{mode} 100")["kernels"]
    monitor.settle()
    assert monitor.kernels + monitor.drops >= kernels
    assert monitor.drops < 0.01 * kernels
    assert records > CYCLES
    assert grown < MOST_MIB
    program.finish()


def test_millions_of_graph_records_keep_their_times_and_memory(start) -> None:
    program = start()
    program.run("tiny 100")
    monitor = program.attach()
    program.run("tiny 100")
    held = program.held_bytes()
    latest = seen = 0
    monitor.settle()
    while seen < RECORDS:
        monitor.batches.clear()
        began, dropped = time.time_ns(), monitor.drops
        wanted = program.run("tiny 30000")["kernels"]
        monitor.settle()
        times = np.concatenate(monitor.batches)
        times = times[times["graph"] != 0]
        dropped = monitor.drops - dropped
        grown = (program.held_bytes() - held) / MIB
        print(f"from {seen:,}: {len(times):,} records, {dropped:,} drops, {grown:+.1f} MiB")
        seen += wanted
        assert len(times) + dropped == wanted
        assert dropped < 0.01 * wanted
        assert began < times["start_ns"].min()
        assert latest < times["end_ns"].max() < time.time_ns()
        latest = int(times["end_ns"].max())
        assert grown < 40
    program.finish()


def test_programs_own_profiler_sees_all_while_dormant_and_after_a_detach(start) -> None:
    program = start()
    assert program.run("profile 200")["seen"] == 200
    monitor = program.attach()
    began = time.time_ns()
    program.run("eager 1000")  # where only records can tell that the profiler left another clock
    monitor.settle()
    print(f"at first {monitor.kernels} kernels, {monitor.drops} drops")
    monitor.batches.clear()
    program.run("eager 1000")
    monitor.settle()
    times = monitor.records
    assert len(times) >= 1000
    assert began < times["start_ns"].min() < times["end_ns"].max() < time.time_ns()
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
    for _ in range(2):
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
    for _ in range(2):
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
