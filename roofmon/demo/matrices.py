"""Matrix products: square GEMMs, and the chain of matrix-vector products of a decoder at batch one."""

import math

from roofmon.demo.device import Array, Device
from roofmon.demo.kernel import Kernel, expect_close, sample
from roofmon.demo.sizes import Sizes
from roofmon.model import operators

_GEMM_TOLERANCE = {"fp64": 1e-12, "fp32": 1e-5, "fp16": 2e-3}  # relative to the largest element


def gemm(
    device: Device, sizes: Sizes, source: Array, scratch: Array, precision: str, unit: str
) -> Kernel:
    """C = A·B of square matrices on the library's GEMM."""
    xp = device.xp
    n = sizes.fp64_gemm_n if precision == "fp64" else sizes.gemm_n
    name = f"gemm_{precision}"
    dtype = {"fp64": xp.float64, "fp32": xp.float32, "fp16": xp.float16}[precision]
    a, b = (
        source[i * n * n : (i + 1) * n * n].reshape(n, n).astype(dtype, copy=False) for i in (0, 1)
    )
    c = scratch.view(dtype)[: n * n].reshape(n, n)

    def check() -> None:
        rows, cols = sample(n), sample(n)
        expected = device.to_host(a[rows]) @ device.to_host(b[:, cols])
        expect_close(name, device.to_host(c[rows, cols]), expected, _GEMM_TOLERANCE[precision])

    work = operators.gemm(n, n, n, precision, unit)
    return Kernel(name, work, sizes.level(work.bytes), lambda: device.matmul(a, b, c), check)


def decode_chain(device: Device, sizes: Sizes, source: Array) -> Kernel:
    """x ← W·x through all layers, each weight read once: the memory roof of generating text."""
    xp, n, layers = device.xp, sizes.layer_n, sizes.layers
    weights = source[: layers * n * n].reshape(layers, n, n)
    states = xp.ones((layers + 1, n), xp.float32)
    keep = math.sqrt(3 / n)  # weights uniform in (−1, 1) would make |x| grow by √(n/3) a layer

    def step(layer: int) -> None:
        weight, x, y = weights[layer], states[layer], states[layer + 1]
        device.parallel(n, lambda i, j: xp.dot(weight[i:j], x, out=y[i:j]))
        xp.multiply(y, keep, out=y)

    def launch() -> None:
        for layer in range(layers):
            step(layer)

    def check() -> None:
        rows = sample(n)
        for layer in range(layers):
            x, y = device.to_host(states[layer]), device.to_host(states[layer + 1][rows])
            expected = device.to_host(weights[layer][rows]) @ x * keep
            expect_close("decode_gemv_chain", y, expected, 1e-5)

    work = operators.gemv(n, n, layers)
    return Kernel("decode_gemv_chain", work, sizes.level(work.bytes), launch, check)
