"""A user's program for the benchmarks: a loop of known work, timed by itself.

    loops.py NAME [CORE]

reads seconds from stdin, one line a run, runs for so long, and prints one JSON line: iterations, seconds,
and byte/s and FLOP/s by the algorithm's least work. NAME is launches, gemm, add, gemm_fp32 or gemm_bf16.
"""

import json
import os
import sys
import time

import torch

if len(sys.argv) > 2:
    os.sched_setaffinity(0, {int(sys.argv[2])})
name = sys.argv[1]
torch.backends.cuda.matmul.allow_tf32 = False
torch.manual_seed(0)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


if name == "launches":  # about 6 µs each: bound by launching
    x = random(32)
    work, flops, moved, batch = (lambda: x.add_(1.0)), 32.0, 256.0, 1000
elif name == "gemm":  # about 24 µs each
    a, b = (random(2048, 2048, dtype=torch.bfloat16) for _ in range(2))
    work, flops, moved, batch = (lambda: torch.mm(a, b)), 2 * 2048.0**3, 3 * 2 * 2048.0**2, 500
elif name == "add":
    n = 1 << 27
    a, b = random(n), random(n)
    out = torch.empty_like(a)
    work, flops, moved, batch = (lambda: torch.add(a, b, out=out)), float(n), 12.0 * n, 50
elif name in ("gemm_fp32", "gemm_bf16"):
    size = 8192
    kind = torch.float32 if name == "gemm_fp32" else torch.bfloat16
    a, b = (random(size, size, dtype=kind) for _ in range(2))
    out = torch.empty_like(a)
    work, flops = (lambda: torch.mm(a, b, out=out)), 2.0 * size**3
    moved, batch = 3.0 * a.element_size() * size**2, 2 if name == "gemm_fp32" else 10
else:
    sys.exit(f"no loop is called {name}")

for _ in range(20):
    work()
torch.cuda.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    limit, done = float(line), 0
    began = time.perf_counter()
    while time.perf_counter() - began < limit:
        for _ in range(batch):
            work()
        torch.cuda.synchronize()
        done += batch
    seconds = time.perf_counter() - began
    rate = done / seconds
    print(
        json.dumps(
            {
                "iterations": done,
                "seconds": seconds,
                "rate": rate,
                "bytes_per_s": moved * rate,
                "flops_per_s": flops * rate,
            }
        ),
        flush=True,
    )
