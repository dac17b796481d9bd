"""Kernels that pass over memory: vector add, triad, sum, softmax in separate passes, a tiny add."""

import numpy as np

from roofmon.demo.device import Array, Device
from roofmon.demo.kernel import Kernel, expect_close, sample
from roofmon.demo.sizes import Sizes
from roofmon.model import operators

TRIAD_SCALAR = 3.0

TINY = 4096
"""Elements of the tiny add: 2 µs on a CPU, 20 µs on a GPU, most of it the launch itself."""

SOFTMAX_COLS = 4096


def vector_add(device: Device, sizes: Sizes, source: Array, scratch: Array) -> Kernel:
    """c = a + b, near the DRAM roof."""
    xp, n = device.xp, source.size // 2
    a, b, c = source[:n], source[n:], scratch[:n]

    def launch() -> None:
        device.parallel(n, lambda i, j: xp.add(a[i:j], b[i:j], out=c[i:j]))

    def check() -> None:
        x, y, z = (device.to_host(array[sample(n, 4096)]) for array in (a, b, c))
        expect_close("vector_add", z, x + y, 1e-6)

    work = operators.vector_add(n)
    return Kernel("vector_add", work, sizes.level(work.bytes), launch, check)


def triad(device: Device, sizes: Sizes, source: Array, scratch: Array) -> Kernel:
    """a = b + s·c, near the DRAM roof."""
    n = source.size // 2
    b, c, a = source[:n], source[n:], scratch[:n]

    def check() -> None:
        y, z, x = (device.to_host(array[sample(n, 4096)]) for array in (b, c, a))
        expect_close("triad", x, y + TRIAD_SCALAR * z, 1e-6)

    work = operators.triad(n)
    return Kernel(
        "triad",
        work,
        sizes.level(work.bytes),
        lambda: device.triad(b, c, TRIAD_SCALAR, a),
        check,
    )


def reduce_sum(device: Device, sizes: Sizes, source: Array) -> Kernel:
    """Σ a, which reads only."""
    xp, n = device.xp, source.size
    parts: list[Array] = []

    def launch() -> None:
        parts.clear()
        device.parallel(n, lambda i, j: parts.append(xp.sum(source[i:j])))

    def check() -> None:
        got = np.float64(sum(float(part) for part in parts))
        expected = np.float64(float(xp.sum(source, dtype=xp.float64)))
        # Values in (−1, 1) nearly cancel: the error is judged by their spread, 0.58·√n.
        expect_close("reduce_sum", got, expected, 1e-2, scale=0.58 * n**0.5)

    work = operators.reduce_sum(n)
    return Kernel("reduce_sum", work, sizes.level(work.bytes), launch, check)


def softmax(device: Device, sizes: Sizes, source: Array, scratch: Array) -> Kernel:
    """Softmax as five passes over memory, each in parallel: far below the roof of its least bytes."""
    xp, n = device.xp, source.size // 2
    cols = min(SOFTMAX_COLS, n)
    rows = n // cols
    x, y = source[:n].reshape(rows, cols), scratch[:n].reshape(rows, cols)
    of_row = xp.empty((rows, 1), xp.float32)
    passes = (
        lambda i, j: xp.max(x[i:j], axis=1, keepdims=True, out=of_row[i:j]),
        lambda i, j: xp.subtract(x[i:j], of_row[i:j], out=y[i:j]),
        lambda i, j: xp.exp(y[i:j], out=y[i:j]),
        lambda i, j: xp.sum(y[i:j], axis=1, keepdims=True, out=of_row[i:j]),
        lambda i, j: xp.divide(y[i:j], of_row[i:j], out=y[i:j]),
    )

    def launch() -> None:
        for one_pass in passes:
            device.parallel(rows, one_pass)

    def check() -> None:
        of_rows = sample(rows)
        powers = np.exp(device.to_host(x[of_rows]))
        expected = powers / powers.sum(axis=1, keepdims=True)
        expect_close("softmax", device.to_host(y[of_rows]), expected, 1e-5)

    work = operators.softmax(rows, cols)
    return Kernel("softmax", work, sizes.level(work.bytes), launch, check)


def tiny_add(device: Device, sizes: Sizes, source: Array) -> Kernel:
    """c = a + b of a few kilobytes: a kernel too short for anything but its launch to count."""
    xp = device.xp
    a, b = source[:TINY], source[TINY : 2 * TINY]
    c = xp.empty_like(a)

    def check() -> None:
        x, y, z = (device.to_host(array) for array in (a, b, c))
        expect_close("vector_add_tiny", z, x + y, 1e-6)

    # The set fits in a nearer cache than the one named, whose roof is the nearest that is measured.
    work = operators.vector_add(TINY)
    return Kernel(
        "vector_add_tiny", work, sizes.level(work.bytes), lambda: xp.add(a, b, out=c), check
    )
