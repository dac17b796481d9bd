"""What the records of traced programs cost the collector, and whether its memory stays flat.

Run directly: `python tests/benchmarks/bench_trace_reader.py [SECONDS]`. A program floods a real collector
through a real socket, at two rates and with 5,000 different kernels; the collector's CPU time is told with
and without it. Then an hour of launches is fed to the same parts in this process.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from roofmon.collector.kernels import KernelRegistry
from roofmon.collector.launches import LaunchRows
from roofmon.resources import python_module
from roofmon.stream.consumer import Consumer
from roofmon.tracing import trace_protocol as wire
from roofmon.tracing.activity import Timeline
from roofmon.tracing.demangle import Demangler
from roofmon.tracing.trace_protocol import Device, Name

sys.path.insert(0, str(Path(__file__).parent.parent / "doubles"))
import traced_program as double

KERNELS = 5_000
RATES = (5_000, 200_000)
GOALS = {5_000: 2, 200_000: 15}  # % of a core, on the machine with the H200
STEP_S = 0.05
MANGLED = "_ZN2at6native29vectorized_elementwise_kernelILi{}ENS0_15CUDAFunctor_addIfEEEEviT0_"


def records(count: int, random: np.random.Generator) -> np.ndarray:
    """`count` launches one after the other, each of one of the kernels; times from 0 on, within STEP_S."""
    made = np.zeros(count, dtype=wire.KERNEL_DTYPE)
    which = random.integers(0, KERNELS, count)
    made["start_ns"] = np.linspace(0, STEP_S * 1e9, count, endpoint=False)
    length = STEP_S * 1e9 / count
    # Each kernel has its own length, and varies by 2 %.
    lengths = length * (0.4 + 0.4 * which / KERNELS) * random.lognormal(0, 0.02, count)
    made["end_ns"] = made["start_ns"] + lengths.astype(np.uint64)
    made["name"] = 1 + which // 5  # five launch configurations a name
    made["grid"][:, 0] = 1 + which % 5
    made["grid"][:, 1:] = 1
    made["block"] = (128, 1, 1)
    made["registers"] = 32
    made["stream"] = 7 + which % 3
    made["graph"] = which % 2
    return made


def flood(rate: int) -> None:
    """Be a program that launches `rate` kernels a second for its only monitor, until that leaves."""
    directory = Path(os.environ["XDG_RUNTIME_DIR"], "roofmon")
    directory.mkdir(mode=0o700, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(directory / f"{os.getpid()}-{double.start_time()}.trace.sock"))
    listener.listen(1)
    print("listening", flush=True)
    monitor, _ = listener.accept()
    names = b"".join(
        double.message(wire.NAME, n.to_bytes(4, "little") + MANGLED.format(n).encode())
        for n in range(1, KERNELS // 5 + 1)
    )
    monitor.sendall(double.greeting({"name": "flood"}) + names)
    batches = [records(round(rate * STEP_S), np.random.default_rng(seed)) for seed in range(20)]
    most = (1 << 20) // wire.KERNEL_DTYPE.itemsize
    due, sent = time.monotonic(), 0
    while True:
        batch = batches[sent % len(batches)].copy()
        begin = np.uint64(time.time_ns() - int(STEP_S * 1e9))
        batch["start_ns"] += begin
        batch["end_ns"] += begin
        try:
            for at in range(0, len(batch), most):
                monitor.sendall(double.message(wire.KERNELS, batch[at : at + most].tobytes()))
        except OSError:
            return
        sent += 1
        due += STEP_S
        time.sleep(max(0.0, due - time.monotonic()))


def collector_cost(rate: int, seconds: float) -> dict[str, float]:
    """% of a core that the collector takes while `rate` launches/s come, and what came of them."""
    command = [sys.executable, __file__, "--flood", str(rate)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE) if rate else None
    if program is not None:
        assert program.stdout is not None
        program.stdout.readline()
    attach = [f"--attach={program.pid}"] if program is not None else []
    collector = [*python_module("roofmon.collector"), "--device", "cpu", "--no-calibration"]
    consumer = Consumer([*collector, *attach], lambda: None)
    consumer.start()
    try:
        time.sleep(5)  # imports, and all kernels are new
        process = next(
            child
            for child in psutil.Process().children(recursive=True)
            if "roofmon.collector" in child.cmdline()
        )
        times, began = process.cpu_times(), time.monotonic()
        before = consumer.snapshot
        time.sleep(seconds)
        spent, after = process.cpu_times(), consumer.snapshot
        passed = time.monotonic() - began
        assert before is not None
        assert after is not None
        came = sum(p.records for p in after.traced) - sum(p.records for p in before.traced)
        return {
            "cpu %": (spent.user + spent.system - times.user - times.system) / passed * 100,
            "records/s": came / passed,
            "dropped": float(after.dropped),
            "kernels": float(len(after.kernels)),
            "rss MiB": process.memory_info().rss / 2**20,
        }
    finally:
        consumer.close()
        if program is not None:
            program.kill()
            program.wait()


def memory_over_an_hour(rate: int) -> list[float]:
    """RSS in MiB of this process after 1, 10, 20 … 60 simulated minutes of `rate` launches/s."""
    registry, demangler = KernelRegistry(), Demangler()
    launches = LaunchRows(registry, demangler, 1, "program")
    gpu = Device(index=0, uuid="GPU-0", name="", compute_capability=(9, 0), sm_count=132)
    launches.take_device(gpu, "GPU-0")
    launches.take_names([Name(n, MANGLED.format(n)) for n in range(1, KERNELS // 5 + 1)])
    timeline = Timeline("GPU-0")
    batches = [records(round(rate * STEP_S), np.random.default_rng(seed)) for seed in range(20)]
    now = time.time_ns()
    sizes = []
    for step in range(round(3600 / STEP_S)):
        batch = batches[step % len(batches)]
        start = batch["start_ns"].astype(np.int64) + now
        duration = (batch["end_ns"] - batch["start_ns"]).astype(np.int64)
        rows, streams = launches.of_kernels(batch), launches.stream_bits(batch["stream"])
        registry.add_on_gpu(rows, start, duration, streams, batch["graph"] != 0)
        timeline.add_kernels(start, start + duration, rows, 7, 0)
        now += int(STEP_S * 1e9)
        if step % round(0.5 / STEP_S) == 0:
            _, gaps = timeline.advance(now)
            registry.add_gaps(gaps.rows, gaps.gap_ns)
            registry.columns(500_000_000, everything=step % round(30 / STEP_S) == 0)
        minutes = step * STEP_S / 60
        if minutes in (1, 10, 20, 30, 40, 50) or step == round(3600 / STEP_S) - 1:
            sizes.append(psutil.Process().memory_info().rss / 2**20)
    demangler.close()
    return sizes


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.environ["XDG_RUNTIME_DIR"] = directory
        idle = collector_cost(0, seconds)["cpu %"]
        print(f"collector without records: {idle:.1f} % of a core")
        for rate in RATES:
            cost = collector_cost(rate, seconds)
            print(
                f"at {rate:>7,} launches/s: {cost['cpu %'] - idle:.1f} % more (goal on the H200's ",
                end="",
            )
            print(
                f"machine {GOALS[rate]} %); {json.dumps({k: round(v, 1) for k, v in cost.items()})}"
            )
    sizes = memory_over_an_hour(5_000)
    text = " ".join(f"{size:.1f}" for size in sizes)
    print(f"RSS after 1, 10, 20 … 60 minutes at 5,000 launches/s of 5,000 kernels, MiB: {text}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--flood"]:
        flood(int(sys.argv[2]))
    else:
        main()
