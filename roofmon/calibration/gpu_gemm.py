"""GEMM through cuBLAS on random matrices: the fastest of several shapes, each checked once.

cuBLAS is called by its one typed entry, so that the arithmetic is what the precision says: CuPy's own
`matmul` switches TF32 for the whole process, and computes some fp16 products in fp32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofmon.calibration.gpu_device import Gpu
from roofmon.calibration.gpu_library import library_missing
from roofmon.errors import RoofmonError
from roofmon.units import mebibytes

Shape = tuple[int, int, int]

# Numbers of library_types.h and cublas_api.h: cudaDataType_t, cublasComputeType_t, cublasOperation_t,
# cublasGemmAlgo_t.
_REAL_32, _REAL_64, _REAL_16, _REAL_BF16 = 0, 1, 2, 14
_COMPUTE_32, _COMPUTE_64, _COMPUTE_32_TF32 = 68, 70, 77
_PLAIN, _TRANSPOSED = 0, 1
_DEFAULT_ALGORITHM = -1

_CHECKED = 24
_FREE_SHARE = 0.5  # cuBLAS needs memory as well


@dataclass(frozen=True)
class _Arithmetic:
    """`tolerance`: of an element over √k; its standard deviation is 0.19 of that (σ² of `gpu_fill`)."""

    data: int
    compute: int
    size: int
    scalar: str
    tolerance: float


# Above the rounding of a result of 4 deviations (2⁻⁹ of it in bf16) and of the factors (2⁻¹¹ in TF32).
_ARITHMETIC = {
    "fp64": _Arithmetic(_REAL_64, _COMPUTE_64, 8, "f8", 1e-12),
    "tf32": _Arithmetic(_REAL_32, _COMPUTE_32_TF32, 4, "f4", 3e-3),
    "fp16": _Arithmetic(_REAL_16, _COMPUTE_32, 2, "f4", 3e-3),
    "bf16": _Arithmetic(_REAL_BF16, _COMPUTE_32, 2, "f4", 1e-2),
}


class GemmSet:
    """Matrices for the largest of `shapes` (m, n, k): C ← A·B, all rows contiguous, B given transposed.

    Raises RoofmonError without cuBLAS or memory.
    """

    def __init__(self, gpu: Gpu, precision: str, shapes: Sequence[Shape]) -> None:
        self._gpu = gpu
        self._how = _ARITHMETIC[precision]
        size = self._how.size
        sizes = _elements(shapes)
        self._a, self._b, self._c = (gpu.allocate(size * elements) for elements in sizes)
        for memory, elements in zip((self._a, self._b), sizes, strict=False):
            gpu.fill(memory, size * elements, precision)
        self._cublas, self._handle = _cublas(gpu)
        self._one = np.ones(1, self._how.scalar)
        self._zero = np.zeros(1, self._how.scalar)

    @property
    def version(self) -> int:
        """Of cuBLAS, 130100 for 13.1."""
        return int(self._cublas.getVersion(self._handle))

    def launch(self, shape: Shape) -> None:
        """Queue one product."""
        m, n, k = shape
        how = self._how
        # cuBLAS counts in columns: it computes Cᵀ = Bᵀ·Aᵀ, n × m.
        self._cublas.gemmEx(
            self._handle,
            *(_TRANSPOSED, _PLAIN, n, m, k, self._one.ctypes.data),
            *(self._b.ptr, how.data, k, self._a.ptr, how.data, k),
            *(self._zero.ctypes.data, self._c.ptr, how.data, n),
            *(how.compute, _DEFAULT_ALGORITHM),
        )

    def check(self, shape: Shape) -> None:
        """Compare some elements of the last product with their dot products computed here.

        Raises ArithmeticError where they differ by more than rounding.
        """
        m, n, k = shape
        random = np.random.default_rng(k)
        for row, column in zip(
            random.integers(0, m, _CHECKED), random.integers(0, n, _CHECKED), strict=True
        ):
            a = self._numbers(self._a, int(row) * k, k)
            b = self._numbers(self._b, int(column) * k, k)
            found = self._numbers(self._c, int(row) * n + int(column), 1)[0]
            error = abs(found - float(a @ b)) / k**0.5
            if not error <= self._how.tolerance:
                raise ArithmeticError(f"the product {m}×{n}×{k} is wrong by {error:.1e} of √k")

    def _numbers(self, memory: Any, first: int, count: int) -> NDArray[np.float64]:
        dtype = {_REAL_64: "f8", _REAL_32: "f4", _REAL_16: "f2", _REAL_BF16: "u2"}[self._how.data]
        values = self._gpu.read(memory.ptr + first * self._how.size, count, dtype)
        if self._how.data == _REAL_BF16:  # the upper half of a float
            values = (values.astype("u4") << 16).view("f4")
        return values.astype("f8")


def fitting_shapes(precision: str, shapes: Sequence[Shape], free_bytes: int) -> tuple[Shape, ...]:
    """Those whose matrices fit into GPU memory. Raises RoofmonError where none does."""
    size = _ARITHMETIC[precision].size
    fitting = tuple(s for s in shapes if size * sum(_elements([s])) <= _FREE_SHARE * free_bytes)
    if not fitting:
        raise RoofmonError(
            f"only {mebibytes(free_bytes)} of GPU memory are free", "end other programs on the GPU"
        )
    return fitting


def _elements(shapes: Sequence[Shape]) -> tuple[int, int, int]:
    """Elements of A, B and C for the largest of the shapes."""
    return (
        max(m * k for m, _, k in shapes),
        max(n * k for _, n, k in shapes),
        max(m * n for m, n, _ in shapes),
    )


def _cublas(gpu: Gpu) -> tuple[Any, int]:
    """(the binding, a handle); CuPy has each call work on the current stream, which is ours."""
    try:
        cublas = gpu.cupy.cuda.cublas
    except Exception as error:  # ImportError or RuntimeError, by version
        raise library_missing(gpu.cupy, "cuBLAS", error) from None
    try:
        handle = gpu.cupy.cuda.get_cublas_handle()
    except cublas.CUBLASError as error:
        raise RoofmonError(
            f"cuBLAS does not start: {error}", "end other programs on the GPU"
        ) from None
    return cublas, int(handle)
