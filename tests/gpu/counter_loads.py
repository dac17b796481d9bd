"""A user's program of known traffic and FLOPs for the benchmark of the counters.

Its standard input says what to do, and each line is answered by one line of JSON:

    run NAME SECONDS          one of WORKLOADS or of the HARD ones, again and again
    mix STREAMS SECONDS SEED  the HARD ones in random order, on one or two streams
    beside SECONDS DUTY       additions in bursts of 40 ms × DUTY, as another process would do beside
    list                      the names of the HARD ones

`counter_loads.py --once NAME…` runs each workload three times and then twice between cudaProfilerStart and
cudaProfilerStop, for Nsight Compute. All data is random and from one seed.
"""

import collections
import faulthandler
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

faulthandler.enable()  # the SIGABRT that ends one that hangs says where each thread is
N = 1 << 26  # elements of a long vector
SIZE = 4096  # of a matrix
LAYERS = 8
BATCH_S = 0.005  # between two waits for the GPU
PERIOD_S = 0.040
GIB = 1 << 30
DEVICE = torch.device("cuda")


@dataclass(frozen=True)
class Work:
    """`run` launches one iteration, which must move `bytes` of DRAM and do `flops` on `pipe`."""

    run: Callable[[], object]
    bytes: float
    flops: float = 0.0
    pipe: str = ""


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype)


def add() -> Work:
    a, b = normal(N), normal(N)
    out = torch.empty_like(a)
    return Work(lambda: torch.add(a, b, out=out), 12.0 * N)


def reduce_sum() -> Work:
    a = normal(N)
    return Work(lambda: torch.sum(a), 4.0 * N)


def softmax() -> Work:
    a = normal(16384, 4096)
    return Work(lambda: torch.softmax(a, -1), 8.0 * a.numel())


def transpose() -> Work:
    a = normal(8192, 8192)
    out = torch.empty_like(a)
    return Work(lambda: out.copy_(a.t()), 8.0 * a.numel())


def attention(flash: bool) -> Work:
    """B 4, H 16, S 2048, E 128 in bf16. Unfused, the scores are written and read three times."""
    q, k, v = (normal(4, 16, 2048, 128, dtype=torch.bfloat16) for _ in range(3))
    scale = 1 / math.sqrt(128)
    least = 2.0 * 4 * q.numel()

    def fused() -> object:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return functional.scaled_dot_product_attention(q, k, v)

    def unfused() -> object:
        return torch.softmax((q @ k.transpose(-1, -2)) * scale, -1) @ v

    if flash:
        return Work(fused, least)
    return Work(unfused, least + 2.0 * 6 * 4 * 16 * 2048 * 2048)


def decode(graph: bool) -> Work:
    """Eight layers of a GEMV and three tiny kernels; the weights are read once."""
    weights = [normal(SIZE, SIZE, dtype=torch.bfloat16) for _ in range(LAYERS)]
    first = normal(1, SIZE, dtype=torch.bfloat16)

    def step() -> torch.Tensor:
        hidden = first
        for weight in weights:
            hidden = functional.silu(hidden @ weight) * 0.5
        return hidden

    moved = 2.0 * LAYERS * SIZE * SIZE
    if not graph:
        return Work(step, moved)
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        kept = step()

    def replay() -> torch.Tensor:
        captured.replay()
        return kept  # its memory and that of the weights belong to the graph

    return Work(replay, moved)


def gemm(precision: str, size: int = SIZE) -> Work:
    pipe = "vector/fp32" if precision == "fp32" else f"tensor/{precision}"
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    kind = kinds.get(precision, torch.float32)
    a, b = (normal(size, size, dtype=kind) for _ in range(2))
    flops = 2.0 * size**3
    least = 3.0 * a.element_size() * size**2
    if precision == "fp8":
        eighth = torch.float8_e4m3fn
        left, right, one = a.to(eighth), b.to(eighth).t(), torch.ones((), device=DEVICE)

        def scaled() -> torch.Tensor:
            return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        return Work(scaled, 4.0 * size**2, flops, pipe)
    out = torch.empty_like(a)
    if kind is not torch.float32:
        return Work(lambda: torch.mm(a, b, out=out), least, flops, pipe)

    def multiply() -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        return torch.mm(a, b, out=out)

    return Work(multiply, least, flops, pipe)


WORKLOADS: dict[str, Callable[[], Work]] = {
    "add": add,
    "sum": reduce_sum,
    "softmax": softmax,
    "attention": lambda: attention(flash=False),
    "flash": lambda: attention(flash=True),
    "decode": lambda: decode(graph=False),
    "decode_graph": lambda: decode(graph=True),
    "transpose": transpose,
    **{
        f"gemm_{precision}": lambda precision=precision: gemm(precision)
        for precision in ("bf16", "fp16", "tf32", "fp8", "fp32")
    },
    "gemm_2048": lambda: gemm("bf16", 2048),  # about 24 µs
}


def ring(
    *shape: int, dtype: torch.dtype = torch.float32
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Inputs and as many outputs, 1 GiB of them or more: none is in a cache when its turn comes."""
    each = 2 * math.prod(shape) * dtype.itemsize
    count = max(1, GIB // each)
    inputs = (torch.rand(count, *shape, device=DEVICE) + 0.5).to(dtype)
    return list(inputs.unbind()), list(torch.empty_like(inputs).unbind())


def in_turn(
    operation: Callable[..., object], *shape: int, dtype: torch.dtype = torch.float32
) -> Work:
    """`operation(input, out=…)` from one buffer of a ring to another."""
    pairs = list(zip(*ring(*shape, dtype=dtype), strict=True))
    at = 0

    def run() -> None:
        nonlocal at
        source, out = pairs[at]
        at = (at + 1) % len(pairs)
        operation(source, out=out)

    return Work(run, 2.0 * math.prod(shape) * dtype.itemsize)


def by_rows(operation: Callable[[torch.Tensor], torch.Tensor], rows: int) -> Work:
    """`operation(input)` on rows of 4096 numbers, whose results stay for a few rounds."""
    inputs, _ = ring(rows, 4096)
    kept: collections.deque[torch.Tensor] = collections.deque(maxlen=4)
    at = 0

    def run() -> None:
        nonlocal at
        kept.append(operation(inputs[at]))
        at = (at + 1) % len(inputs)

    return Work(run, 2.0 * rows * 4096 * 4)


def turned(size: int) -> Work:
    return in_turn(lambda source, out: out.copy_(source.t()), size, size)


# Eight kernels of 5 to 300 µs, and how often each is launched. Each reads and writes as much: what a kernel
# leaves in L2 to be written back, the next one writes back, and loses as much to the one after it.
HARD: dict[str, tuple[Callable[[], Work], int]] = {
    "hard_neg": (lambda: in_turn(torch.neg, 1 << 27), 1),
    "hard_softmax": (lambda: by_rows(lambda rows: torch.softmax(rows, -1), 8192), 2),
    "hard_transpose": (lambda: turned(4096), 2),
    "hard_erf": (lambda: in_turn(torch.erf, 1 << 24), 2),
    "hard_lgamma": (lambda: in_turn(torch.lgamma, 1 << 23), 4),
    "hard_exp_bf16": (lambda: in_turn(torch.exp, 1 << 24, dtype=torch.bfloat16), 4),
    "hard_abs": (lambda: in_turn(torch.abs, 1 << 22), 8),
    "hard_sqrt": (lambda: in_turn(torch.sqrt, 1 << 21), 8),
}
made: dict[str, Work] = {}


def work_named(name: str) -> Work:
    if name not in made:
        make = WORKLOADS[name] if name in WORKLOADS else HARD[name][0]
        made[name] = make()
        for _ in range(3):
            made[name].run()
        torch.cuda.synchronize()
    return made[name]


def run(name: str, seconds: float) -> dict[str, object]:
    work = work_named(name)
    began = time.perf_counter()
    for _ in range(10):
        work.run()
    torch.cuda.synchronize()
    batch = min(500, max(1, round(10 * BATCH_S / (time.perf_counter() - began))))
    iterations, start_ns, began = 0, time.time_ns(), time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(batch):
            work.run()
        torch.cuda.synchronize()
        iterations += batch
    spent = time.perf_counter() - began
    return {
        "name": name,
        "start_ns": start_ns,
        "end_ns": time.time_ns(),
        "iterations": iterations,
        "seconds": spent,
        "bytes": work.bytes,
        "flops": work.flops,
        "pipe": work.pipe,
    }


def mix(streams: int, seconds: float, seed: int) -> dict[str, object]:
    chance = random.Random(seed)
    names = list(HARD)
    works = [work_named(name).run for name in names]
    order = chance.choices(range(len(names)), [weight for _, weight in HARD.values()], k=1 << 14)
    usual = torch.cuda.current_stream()
    queues = [torch.cuda.Stream() for _ in range(streams)] if streams > 1 else [usual]
    counts = [0] * len(names)
    start_ns, began, at = time.time_ns(), time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(256):
            if streams > 1:
                torch.cuda.set_stream(queues[chance.randrange(streams)])
            which = order[at % len(order)]
            works[which]()
            counts[which] += 1
            at += 1
        torch.cuda.synchronize()
    torch.cuda.set_stream(usual)
    return {
        "name": f"mix of {streams}",
        "start_ns": start_ns,
        "end_ns": time.time_ns(),
        "seconds": time.perf_counter() - began,
        "launches": dict(zip(names, counts, strict=True)),
    }


def beside(seconds: float, duty: float) -> dict[str, object]:
    work = work_named("add")
    start_ns, began, count, period = time.time_ns(), time.perf_counter(), 0, 0
    while time.perf_counter() - began < seconds:
        burst = time.perf_counter()
        while time.perf_counter() - burst < duty * PERIOD_S:
            for _ in range(4):
                work.run()
            torch.cuda.synchronize()
            count += 4
        period += 1
        time.sleep(max(0.0, began + period * PERIOD_S - time.perf_counter()))
    return {
        "name": "beside",
        "start_ns": start_ns,
        "end_ns": time.time_ns(),
        "seconds": time.perf_counter() - began,
        "moved": count * work.bytes,
    }


def once(names: list[str]) -> None:
    for name in names:
        work = work_named(name)
        torch.cuda.profiler.start()
        for _ in range(2):
            work.run()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def answer(line: str) -> dict[str, object]:
    what, *values = line.split()
    if what == "list":
        return {"hard": list(HARD)}
    try:
        if what == "run":
            return run(values[0], float(values[1]))
        if what == "mix":
            return mix(int(values[0]), float(values[1]), int(values[2]))
        return beside(float(values[0]), float(values[1]))
    except (RuntimeError, KeyError, AttributeError) as error:
        return {"name": line, "error": f"{type(error).__name__}: {error}".splitlines()[0]}


def main() -> None:
    torch.manual_seed(0)
    if sys.argv[1:2] == ["--once"]:
        once(sys.argv[2:])
        return
    if sys.argv[1:]:
        # Of this thread alone: CUDA's own and the tracing library's have the other cores.
        os.sched_setaffinity(0, {int(sys.argv[1])})
    torch.zeros(1, device=DEVICE).add_(1)
    torch.cuda.synchronize()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


if __name__ == "__main__":
    main()
