"""What roofs are compared with: the best of torch, measured in a process of its own that stays.

    calibration_peers.py

reads names from stdin, a line each, and answers with a line of JSON: {"value": …, "n": …} in byte/s or
FLOP/s. Names are add (out = x + 2·w on 2^29 floats), fp64, tf32, fp16, bf16 (torch.mm of the best shape),
and versions. Between requests nothing runs, and no memory but the context's is held.
"""

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

SHAPES = (
    *((8192, 8192, 8192), (4224, 2048, 8192), (8448, 8192, 8192)),
    *((2048, 2048, 13312), (4096, 4096, 4096)),
)
TYPES = {
    "fp64": torch.float64,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
COUNTED_S = 0.2
WARM_S = 1.0
"""Until the power cap holds the clock as it does from then on, as under a roof that is measured after other
GEMMs: from idle an H200 multiplies bf16 up to 4 % faster in the first 0.7 s."""
BATCH = 5

torch.backends.cuda.matmul.allow_tf32 = True
best_shape: dict[str, tuple[int, int, int]] = {}


def seconds_of(launch: Callable[[], object]) -> tuple[float, int]:
    """Median device seconds of a launch, and of how many, after some time to warm up."""
    spans: list[float] = []
    began = time.perf_counter()
    while (now := time.perf_counter() - began) < WARM_S + COUNTED_S or not spans:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(BATCH + 1)]
        events[0].record()
        for event in events[1:]:
            launch()
            event.record()
        torch.cuda.synchronize()
        if now >= WARM_S:
            spans += [a.elapsed_time(b) for a, b in itertools.pairwise(events)]
    return statistics.median(spans) / 1000, len(spans)


def add() -> tuple[float, int]:
    n = 1 << 29
    x, w = (torch.randn(n, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    seconds, count = seconds_of(lambda: torch.add(x, w, alpha=2.0, out=out))
    return 12 * n / seconds, count


def product(precision: str, shape: tuple[int, int, int]) -> tuple[float, int]:
    m, n, k = shape
    kind = TYPES[precision]  # made as such: a converted float leaves half the bits of an fp64 zero
    a, b = (torch.randn(rows, k, device="cuda", dtype=kind) for rows in (m, n))
    b = b.t()
    out = torch.empty(m, n, device="cuda", dtype=kind)
    seconds, count = seconds_of(lambda: torch.mm(a, b, out=out))
    return 2.0 * m * n * k / seconds, count


def measure(name: str) -> tuple[float, int]:
    if name == "add":
        return add()
    if name not in best_shape:
        best_shape[name] = max(SHAPES, key=lambda shape: product(name, shape)[0])
        print(name, best_shape[name], file=sys.stderr)
    return product(name, best_shape[name])


for line in sys.stdin:
    name = line.strip()
    if name == "versions":
        answer: dict[str, object] = {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(),
        }
    else:
        value, n = measure(name)
        answer = {"value": value, "n": n}
    torch.cuda.empty_cache()
    print(json.dumps(answer), flush=True)
