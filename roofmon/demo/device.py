"""What a kernel needs from the device it runs on: an array module and the few operations that differ."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from roofmon.demo.sizes import Limits
from roofmon.errors import ExitCode, RoofmonError

Array: TypeAlias = Any
"""A numpy.ndarray or a cupy.ndarray: kernels are written for both."""


class Device(Protocol):
    """NumPy on all cores, or CuPy on one GPU.

    Attributes:
        xp: the array module, numpy or cupy.
        limits: what the sizes of the working sets follow from.
        fp64_gemm_unit: the unit that the library's FP64 GEMM runs on.
        half_gemm: whether an FP16 GEMM has hardware of its own.
        note: what a reader of the times must know; printed once, may be empty.
        uuid, name: of the GPU; "cpu" and "" for the CPU.
    """

    xp: Any
    limits: Limits
    fp64_gemm_unit: str
    half_gemm: bool
    note: str
    uuid: str
    name: str

    def parallel(self, count: int, body: Callable[[int, int], object]) -> None:
        """Calls `body(begin, end)` on ranges that together are [0, count), on all cores at once."""

    def triad(self, b: Array, c: Array, scalar: float, out: Array) -> None:
        """out = b + scalar·c in one pass over memory."""

    def softmax_rows(self, x: Array) -> None:
        """Softmax along the last axis of three, in place, reading and writing memory once."""

    def matmul(self, a: Array, b: Array, out: Array) -> None:
        """out = a·b for matrices, on all cores."""

    def to_host(self, array: Array) -> Array:
        """A float64 NumPy copy."""

    def synchronize(self) -> None:
        """Waits for what was launched."""

    def close(self) -> None:
        """Ends the threads, so that the interpreter can exit."""


def open_device(backend: str, llc_bytes: int | None, threads: int | None) -> Device:
    """The device for `backend`: numpy, cupy, or auto, which is cupy where it works.

    `llc_bytes` and `threads` are for the CPU; None asks the system. Raises RoofmonError when cupy is
    asked for and it or a GPU is missing.
    """
    from roofmon.demo.numpy_device import NumpyDevice

    note = ""
    if backend in ("auto", "cupy"):
        try:
            from roofmon.demo.cupy_device import CupyDevice

            return CupyDevice()
        except Exception as error:  # CuPy missing or broken, no driver, no device: all the same
            reason = (" ".join(str(error).split()) or type(error).__name__)[:300]
            if backend == "cupy":
                raise RoofmonError(
                    f"the demo cannot use a GPU through CuPy: {reason}",
                    "install roofmon with its GPU extra, or run it with --backend numpy",
                    ExitCode.NO_DEVICE,
                ) from error
            if not isinstance(error, ModuleNotFoundError):
                note = f"runs on the CPU, because CuPy cannot use a GPU: {reason}"
    return NumpyDevice(llc_bytes, threads, note)
