"""NumPy on all cores of a CPU: a pool of threads over operations that release the GIL."""

import os
import queue
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from roofmon.demo.device import Array
from roofmon.demo.sizes import Limits, cpu_gemm_n

_Task = tuple[Callable[[int, int], object], int, int]

_PARTS_PER_THREAD = 4
"""More ranges than threads even out a core that something else uses; one costs about 1 µs."""

_BLOCK = 1 << 17
"""Elements between which a two-step operation stays in cache. Threads hand the GIL over at each call:
with 4,096 elements triad reaches 5 GB/s, with 131,072 it reaches 22 (two cores, copy 26)."""

_TILE_ROWS, _TILES_PER_THREAD = 256, 2
"""Of a matrix product. Four tiles on two cores are as fast as BLAS on its own threads (FP32 14.5 ms and
13.5, FP64 25.9 and 26.9), eight 10 % slower."""

_ASSUMED_CACHE_BYTES = 32 << 20


class NumpyDevice:
    """See `device.Device`. While it is open BLAS runs one thread a call: the pool does the spreading.

    A BLAS with its own threads spins on the cores that the pool and the monitor need, which made single
    launches of the small products in attention take up to ten times their median.
    """

    xp: Any = np
    fp64_gemm_unit = "vector"
    half_gemm = False

    def __init__(
        self, llc_bytes: int | None = None, threads: int | None = None, note: str = ""
    ) -> None:
        self.note = note
        self.uuid, self.name = "cpu", ""
        self._threads = threads or len(os.sched_getaffinity(0))
        cache = llc_bytes or _cache_bytes()
        gemm_n = cpu_gemm_n(cache, self._threads)
        self.limits = Limits(
            cache_level="llc",
            cache_bytes=cache,
            memory_bytes=_memory_bytes(),
            set_bytes=0,
            gemm_n=gemm_n,
            fp64_gemm_n=gemm_n,
            layer_n=2048,
            seq=256,
            head_dim=64,
            block_bytes=1 << 20,
        )
        self._blas_limit = threadpool_limits(1, "blas")  # type: ignore[no-untyped-call]
        self._closing = False
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._workers = [
            threading.Thread(target=self._work, name=f"demo-{i}", daemon=True)
            for i in range(1, self._threads)
        ]
        for worker in self._workers:
            worker.start()

    def parallel(self, count: int, body: Callable[[int, int], object]) -> None:
        """Calls `body` on up to 4 ranges a thread; raises the first error once all have ended."""
        parts = max(1, min(count, _PARTS_PER_THREAD * self._threads))
        edges = [count * i // parts for i in range(parts + 1)]
        for begin, end in pairwise(edges):
            self._tasks.put((body, begin, end))
        while True:  # the calling thread works too
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                break
            self._run(task)
        errors = [error for _ in range(parts) if (error := self._done.get()) is not None]
        if errors:
            raise errors[0]

    def triad(self, b: Array, c: Array, scalar: float, out: Array) -> None:
        """Blocked, because NumPy has no FMA of arrays: the product stays in cache for the sum."""

        def part(begin: int, end: int) -> None:
            for first in range(begin, end, _BLOCK):
                block = slice(first, min(first + _BLOCK, end))
                np.multiply(c[block], scalar, out=out[block])
                np.add(out[block], b[block], out=out[block])

        self.parallel(out.size, part)

    def softmax_rows(self, x: Array) -> None:
        """In five passes over blocks that stay in cache."""
        step = max(1, _BLOCK // (x.shape[1] * x.shape[2]))
        for first in range(0, len(x), step):
            block = x[first : first + step]
            np.subtract(block, block.max(axis=2, keepdims=True), out=block)
            np.exp(block, out=block)
            np.divide(block, block.sum(axis=2, keepdims=True), out=block)

    def matmul(self, a: Array, b: Array, out: Array) -> None:
        """In tiles of the output, each a single-threaded BLAS call on views of a and b."""
        rows, cols = out.shape
        down = max(1, rows // _TILE_ROWS)
        across = max(1, _TILES_PER_THREAD * self._threads // down)

        def tiles(begin: int, end: int) -> None:
            for tile in range(begin, end):
                i, j = divmod(tile, across)
                of_rows = slice(rows * i // down, rows * (i + 1) // down)
                of_cols = slice(cols * j // across, cols * (j + 1) // across)
                np.matmul(a[of_rows], b[:, of_cols], out=out[of_rows, of_cols])

        self.parallel(down * across, tiles)

    def to_host(self, array: Array) -> Array:
        """A float64 copy."""
        return np.array(array, dtype=np.float64)

    def synchronize(self) -> None:
        """Nothing to wait for: `parallel` returns when all is done."""

    def close(self) -> None:
        """A daemon thread inside NumPy while the interpreter is torn down could crash it."""
        self._closing = True
        for _ in self._workers:
            self._tasks.put((lambda _begin, _end: None, 0, 0))  # wakes one
        for worker in self._workers:
            worker.join()
        self._blas_limit.restore_original_limits()  # type: ignore[no-untyped-call]

    def _work(self) -> None:
        while not self._closing:
            self._run(self._tasks.get())

    def _run(self, task: _Task) -> None:
        body, begin, end = task
        try:
            body(begin, end)
        except BaseException as error:
            self._done.put(error)
        else:
            self._done.put(None)


def _cache_bytes() -> int:
    """Last-level cache of the CPUs this process may use, all instances together."""
    caches: dict[str, int] = {}
    for cpu in os.sched_getaffinity(0):
        try:
            last = max(Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index[0-9]*"))
            size = (last / "size").read_text().strip()  # "32768K"
            caches[(last / "shared_cpu_list").read_text()] = int(size.rstrip("K")) << 10
        except (OSError, ValueError):
            continue
    return sum(caches.values()) or _ASSUMED_CACHE_BYTES


def _memory_bytes() -> int:
    """Memory available on the host or, if less, in this control group."""
    host = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(host["MemAvailable"].split()[0]) << 10  # "23456789 kB"
    group = Path("/sys/fs/cgroup")
    try:
        left = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no control group of version 2, or no limit ("max")
        return available
    return min(available, left)
