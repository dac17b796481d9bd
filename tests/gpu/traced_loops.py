"""A user's program for the tests and benchmarks of tracing: does what its standard input says.

    NAME COUNT     runs a piece of work COUNT times, checks its result, and prints one JSON line
    NAME SECONDS s runs it for so long, and prints the same
    profile COUNT  runs COUNT kernels under torch.profiler, and prints how many that saw
    profiler NAME  keeps a profiler running from here on: torch or proton

Pieces of work: eager, before (a CUDA graph captured at the start), after (one captured then), threads
(8), streams (4), tiny (a graph of 100 kernels of 1 µs), gemm (of 2048, or of the number behind it), add,
softmax, copies, long (one kernel of six seconds). With unwaited- before it, work that runs for a time
never waits for the GPU. The JSON: kernels, seconds, event_us (of CUDA events, a kernel), good.
"""

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable

import torch

faulthandler.enable()  # a crash, and the SIGABRT that ends one that hangs, say where each thread is
torch.manual_seed(0)

GRAPH = 100
UNWAITED = "unwaited-"
THREADS, STREAMS = 8, 4


def counter(rows: int = 1) -> torch.Tensor:
    """Numbers that count; rows are 256 KiB apart."""
    return torch.zeros(rows, 1 << 15, dtype=torch.int64, device="cuda")[:, :32]


def captured(numbers: torch.Tensor) -> torch.cuda.CUDAGraph:
    """100 kernels that add 1, to one row after the other."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for place in range(GRAPH):
            numbers[place % len(numbers)].add_(1)
    return graph


class Work:
    """Launches `batch` kernels a call of `run`, which add `each` to its numbers; or whatever it likes."""

    each = 1

    def __init__(self, run: Callable[[], object], batch: int, numbers: list[torch.Tensor]) -> None:
        self.run, self.batch, self.numbers = run, batch, numbers

    def repeat(self, count: int) -> None:
        for _ in range(count):
            self.run()


class Spread(Work):
    """The same in several threads, or round robin on several streams."""

    def __init__(self, parts: int, threads: bool) -> None:
        self.numbers = [counter() for _ in range(parts)]
        self.streams = [torch.cuda.Stream() for _ in range(parts)]
        self.batch, self.threads = parts, threads

    def _one(self, part: int, count: int) -> None:
        number = self.numbers[part]
        with torch.cuda.stream(self.streams[part]):
            for _ in range(count):
                number.add_(1)

    def repeat(self, count: int) -> None:
        torch.cuda.synchronize()
        if self.threads:
            parts = range(len(self.numbers))
            started = [threading.Thread(target=self._one, args=(part, count)) for part in parts]
            for thread in started:
                thread.start()
            for thread in started:
                thread.join()
        else:
            for _ in range(count):
                for part in range(len(self.numbers)):
                    self._one(part, 1)


def make(name: str) -> Work:  # noqa: PLR0911 - a table of small recipes
    if name == "eager":
        number = counter()
        return Work(lambda: number.add_(1), 1, [number])
    if name in ("before", "after", "tiny"):
        # Of kernels of 1 µs the way to memory is a large part, and programs differ by 15 % in where one
        # number lies: 100 of them are near and far alike.
        number = counter(GRAPH if name == "tiny" else 1)
        graph = captured(number)
        number.zero_()  # nothing ran while it was captured, but let that not matter
        work = Work(graph.replay, GRAPH, [number])
        work.each = GRAPH // len(number)
        return work
    if name == "threads":
        return Spread(THREADS, threads=True)
    if name == "streams":
        return Spread(STREAMS, threads=False)
    if name.startswith("gemm"):
        size = int(name.removeprefix("gemm") or 2048)
        a, b = (torch.randn(size, size, device="cuda").to(torch.bfloat16) for _ in range(2))
        out = torch.empty_like(a)
        return Work(lambda: torch.mm(a, b, out=out), 1, [])
    if name == "add":
        a, b = (torch.randn(1 << 28, device="cuda") for _ in range(2))
        out = torch.empty_like(a)
        return Work(lambda: torch.add(a, b, out=out), 1, [])
    if name == "softmax":
        a = torch.randn(65536, 4096, device="cuda")
        return Work(lambda: torch.softmax(a, -1), 1, [])
    if name == "copies":
        host = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
        here = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")

        def copy() -> None:
            here.copy_(host, non_blocking=True)
            host.copy_(here, non_blocking=True)

        return Work(copy, 0, [])
    if name == "long":
        return Work(lambda: torch.cuda._sleep(11_400_000_000), 1, [])
    sys.exit(f"no work is called {name}")


works = {"before": make("before")}
running: list[object] = []


def measure(name: str, amount: float, by_time: bool) -> dict[str, object]:
    waits = not name.startswith(UNWAITED)
    name = name.removeprefix(UNWAITED)
    if name == "after":
        works.pop(name, None)
    if name not in works:
        works[name] = make(name)
    work = works[name]
    begun = [int(number.min().item()) for number in work.numbers]
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    began = time.perf_counter()
    events[0].record()
    count = 0
    if by_time:
        while time.perf_counter() - began < amount:
            work.repeat(200 if work.batch < GRAPH else 20)
            count += 200 if work.batch < GRAPH else 20
            if waits:
                torch.cuda.synchronize()
    else:
        count = int(amount)
        work.repeat(count)
    events[1].record()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    wanted = count * work.each
    good = all(
        int(number.min().item()) == int(number.max().item()) == start + wanted
        for number, start in zip(work.numbers, begun, strict=True)
    )
    return {
        "kernels": count * work.batch,
        "seconds": seconds,
        "event_us": events[0].elapsed_time(events[1]) * 1e3 / max(count * work.batch, 1),
        "good": good,
    }


def profile(count: int) -> dict[str, object]:
    """What the program's own profiler sees of `count` kernels."""
    number = counter()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(count):
            number.add_(1)
        torch.cuda.synchronize()
    kinds = torch.autograd.DeviceType.CUDA
    seen = [e for e in profiler.events() if e.device_type == kinds and "elementwise" in e.name]
    return {"kernels": count, "seen": len(seen), "good": int(number.min().item()) == count}


def start_profiler(name: str) -> dict[str, object]:
    if name == "torch":
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        profiler.start()
        running.append(profiler)
        return {"good": True}
    try:
        from triton import profiler as proton
    except ImportError as error:
        return {"good": False, "why": str(error)}
    try:
        proton.start("/dev/shm/proton-bench", hook=None)
    except Exception as error:
        return {"good": False, "why": repr(error)}
    running.append(proton)
    return {"good": True}


make("eager").repeat(20)
torch.cuda.synchronize()
if len(sys.argv) > 1:
    # Of this thread alone: those that CUDA and the library started have the other cores, as they have where
    # nothing is pinned. On the same core they would take turns with what is measured.
    os.sched_setaffinity(0, {int(sys.argv[1])})
print("ready", flush=True)
for line in sys.stdin:
    name, value, *rest = line.split()
    if name == "profile":
        result = profile(int(value))
    elif name == "profiler":
        result = start_profiler(value)
    else:
        result = measure(name, float(value), rest == ["s"])
    print(json.dumps(result), flush=True)
print("bye", flush=True)
if running:
    os._exit(0)  # stopping a profiler that holds millions of records takes minutes
