"""What roofs are compared with: the best of torch, measured in a process of its own that stays.

    calibration_peers.py

reads names from stdin, a line each, and answers with a line of JSON: {"value": …, "n": …} in byte/s or
FLOP/s. Names are add (out = x + 2·w on 2^29 floats), fp64, tf32, fp16, bf16 (torch.mm of the best shape),
and versions. Between requests nothing runs, and no memory but the context's is held.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

from roofmon.calibration.gpu_timer import EventTimer

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
REST_S, WARM_S, COUNTED_S = 0.2, 0.15, 0.2
"""As our GEMMs are held, so that the power cap is in the same state."""
SAMPLE_S = 0.01

torch.backends.cuda.matmul.allow_tf32 = True
best_shape: dict[str, tuple[int, int, int]] = {}


class Event:
    """torch's event, for our timer."""

    def __init__(self) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record()

    @property
    def done(self) -> bool:
        return bool(self.event.query())

    def synchronize(self) -> None:
        self.event.synchronize()


def seconds_of(launch: Callable[[], None]) -> tuple[float, int]:
    """Median device seconds of a launch, and of how many samples, from rest and warmed up.

    Launches are queued without a gap: at a power cap each gap lets the next launches run at a higher clock,
    small ones by 5 % and more.
    """
    timer = EventTimer(launch, Event, lambda a, b: a.event.elapsed_time(b.event) / 1000)
    timer.alone()  # loads the kernel
    launches = max(1, round(SAMPLE_S / timer.alone()))
    time.sleep(REST_S)
    spans: list[float] = []
    began = time.perf_counter()
    while (now := time.perf_counter() - began) < WARM_S + COUNTED_S or not spans:
        span = timer.measure(launches)
        if now >= WARM_S:
            spans.append(span)
    torch.cuda.synchronize()
    return statistics.median(spans) / launches, len(spans)


def add() -> tuple[float, int]:
    n = 1 << 29
    x, w = (torch.randn(n, device="cuda") for _ in range(2))
    out = torch.empty_like(x)

    def launch() -> None:
        torch.add(x, w, alpha=2.0, out=out)

    seconds, count = seconds_of(launch)
    return 12 * n / seconds, count


def product(precision: str, shape: tuple[int, int, int]) -> tuple[float, int]:
    m, n, k = shape
    kind = TYPES[precision]  # made as such: a converted float leaves half the bits of an fp64 zero
    a, b = (torch.randn(rows, k, device="cuda", dtype=kind) for rows in (m, n))
    b = b.t()
    out = torch.empty(m, n, device="cuda", dtype=kind)

    def launch() -> None:
        torch.mm(a, b, out=out)

    seconds, count = seconds_of(launch)
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
