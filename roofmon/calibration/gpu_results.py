"""Whether a kernel computed what it says: elements of the arrays against NumPy, and sinks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from roofmon.calibration.gpu_device import Gpu
from roofmon.calibration.probe import Probe

_CHECKED = 512  # numbers at each of three places
_DTYPES = {"fp64": "f8", "fp32": "f4", "fp16": "f2"}
_TOLERANCES = {"fp64": 1e-14, "fp32": 1e-6, "fp16": 5e-3}

Array = NDArray[np.float64]


def check_stream(gpu: Gpu, probe: Probe, starts: Sequence[int], size: int) -> None:
    """Check what a stream kernel left in its arrays of `size` bytes, after a launch.

    All numbers must be finite. Where the kernel has a name of STREAM's, its first array must hold what
    that name says of the others, whatever the constant. Raises ArithmeticError.
    """
    dtype = _DTYPES[probe.precision]
    value_bytes = np.dtype(dtype).itemsize
    last = size - _CHECKED * value_bytes
    # The beginning, the end, and somewhere between that is no round number.
    places = (0, last // 3 // value_bytes * value_bytes, last)
    arrays = [
        np.concatenate([gpu.read(start + place, _CHECKED, dtype) for place in places])
        for start in starts
    ]
    wrong = wrong_result(probe.kernel or "", arrays, _TOLERANCES[probe.precision])
    if wrong:
        raise ArithmeticError(wrong)


def wrong_result(kernel: str, arrays: Sequence[Array], tolerance: float) -> str:
    """What is wrong with elements of the arrays after a kernel of this name; "" where nothing is.

    copy: a = b · scale: a = s·b · add: a = b + c · triad: a = b + s·c, with one s for all that is neither
    0 nor ±1.
    """
    if not all(np.isfinite(array).all() for array in arrays):
        return "the kernel left numbers that are not finite"
    arrays = [array.astype("f8") for array in arrays]
    match kernel, arrays:
        case "copy", [a, b]:
            correct = np.array_equal(a, b)
        case "scale", [a, b]:
            correct = _is_multiple(a, b, tolerance)
        case "add", [a, b, c]:
            correct = bool(np.allclose(a, b + c, rtol=tolerance, atol=tolerance))
        case "triad", [a, b, c]:
            correct = _is_multiple(a - b, c, 4 * tolerance)
        case _:
            correct = True
    return "" if correct else f"the kernel {kernel!r} computed a wrong result"


def check_sink(gpu: Gpu, address: int, size: int) -> None:
    """Check that a sink of `size` bytes, zero before, was not written: that is where a kernel puts what it
    cannot have computed. Raises ArithmeticError."""
    if gpu.read(address, size, "u1").any():
        raise ArithmeticError("the kernel wrote to its sink: what it computed left its range")


def _is_multiple(product: Array, factor: Array, tolerance: float) -> bool:
    """Whether `product` is one constant times `factor`, to rounding."""
    there = factor != 0
    constant = float(np.median(product[there] / factor[there]))
    plain = min(abs(constant), abs(abs(constant) - 1)) < 0.001
    return not plain and bool(
        np.allclose(product, constant * factor, rtol=tolerance, atol=tolerance)
    )
