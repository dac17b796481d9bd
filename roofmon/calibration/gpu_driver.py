"""The CUDA driver, asked before CuPy is loaded: whether it works, for which CUDA, and which device we see.

What is wrong with a driver is said here in words; the libraries above it only say a number. Loading the
driver takes no GPU memory: that begins with a context.
"""

import ctypes
import threading
import uuid
from collections.abc import Callable
from typing import Any

from roofmon.errors import ExitCode, RoofmonError

_LIBRARY = "libcuda.so.1"

# Return codes of cuInit and cuDevicePrimaryCtxRetain (cuda.h, CUresult).
_FAULTS = {
    2: (
        "the GPU has no memory left for a CUDA context (about 0.5 GB)",
        "end other programs on it",
    ),
    34: (
        f"{_LIBRARY} is the stub of a CUDA toolkit, not a driver",
        "take the toolkit's stubs folder out of LD_LIBRARY_PATH",
    ),
    46: (
        "the GPU is in an exclusive or prohibited compute mode, and not ours",
        "end the program that has it, or: nvidia-smi --compute-mode=DEFAULT, as root",
    ),
    100: (
        "the CUDA driver shows no GPU",
        "in a container or a job, ask for one; roofmon doctor shows what NVML sees",
    ),
    802: (
        "the GPUs are not ready: the fabric manager of this NVSwitch machine is not running",
        "start nvidia-fabricmanager, of the driver's version",
    ),
    803: (
        "the CUDA library and the loaded driver are of different versions",
        "restart the machine, or unload and load the driver, after its update",
    ),
    804: (
        "the CUDA compatibility library does not support this GPU",
        "take the cuda-compat folder out of LD_LIBRARY_PATH, or update the driver",
    ),
    999: (
        "the CUDA driver does not start (unknown error)",
        "load the module nvidia-uvm (nvidia-modprobe -u), or restart the machine after a suspend",
    ),
}


class Driver:
    """The driver, initialized. Raises RoofmonError where there is none or it does not start."""

    def __init__(self) -> None:
        try:
            self._library: Any = ctypes.CDLL(_LIBRARY)
        except OSError:
            raise RoofmonError(
                f"no CUDA driver was found ({_LIBRARY})",
                "install the NVIDIA driver; in a container, start it with the GPUs and with "
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
                ExitCode.NO_DEVICE,
            ) from None
        _raise_fault(self._library.cuInit(0), "the CUDA driver does not start")

    def version(self) -> int:
        """The CUDA version that it supports: 13000 is 13.0."""
        version = ctypes.c_int()
        self._library.cuDriverGetVersion(ctypes.byref(version))
        return version.value

    def create_context(self, ordinal: int) -> Callable[[], None]:
        """Begin to create the context that all of a process shares, in a thread: it takes 0.4 s.

        Returns: to be called before the context is used; waits for it, and raises RoofmonError where
        there is none.
        """
        codes: list[int] = []

        def create() -> None:
            handle, context = ctypes.c_int(), ctypes.c_void_p()
            code = self._library.cuDeviceGet(ctypes.byref(handle), ordinal)
            retain = self._library.cuDevicePrimaryCtxRetain
            codes.append(code or retain(ctypes.byref(context), handle))

        thread = threading.Thread(target=create, daemon=True)
        thread.start()

        def finish() -> None:
            thread.join()
            _raise_fault(codes[0] if codes else -1, "no CUDA context can be made")

        return finish

    def uuid(self, ordinal: int) -> uuid.UUID:
        """The UUID of a visible device, of the instance under MIG. Raises RoofmonError.

        CuPy cannot be asked: it cuts a UUID at its first zero byte.
        """
        handle, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if self._library.cuDeviceGet(
            ctypes.byref(handle), ordinal
        ) or self._library.cuDeviceGetUuid_v2(raw, handle):
            raise RoofmonError(
                f"the CUDA driver does not tell the UUID of device {ordinal}",
                "update it to version 470 or newer",
                ExitCode.NO_DEVICE,
            )
        return uuid.UUID(bytes=bytes(raw))


def _raise_fault(code: int, what: str) -> None:
    if code:
        unknown = (f"{what} (the driver says {code})", "see the kernel log")
        raise RoofmonError(*_FAULTS.get(code, unknown), ExitCode.NO_DEVICE)


def same_uuid(nvml: str, cuda: uuid.UUID) -> bool:
    """Whether NVML's name (GPU-… or MIG-…) and the driver's UUID mean one device."""
    try:
        return uuid.UUID(nvml.partition("-")[2]) == cuda
    except ValueError:
        return False
