"""NVML's own life: loaded once, opened anew when the driver was reloaded, and its errors in words."""

import contextlib
import threading

import pynvml as nvml  # type: ignore[import-untyped, unused-ignore]

from roofmon.errors import ExitCode, RoofmonError

PERMANENT = frozenset(
    {
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        nvml.NVML_ERROR_DEPRECATED,
    }
)
"""A call that says this will say so again: it is not asked each time."""

DRIVER_GONE = frozenset(
    {
        nvml.NVML_ERROR_UNINITIALIZED,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""The driver went away or came back as another one: all handles are void."""

DEVICE_GONE = frozenset({nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED})
"""This one GPU does not answer any more."""

_OPEN_FAILURES = {
    nvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "no NVIDIA driver was found (libnvidia-ml.so.1 is not installed)",
        "install the NVIDIA driver; in a container, start it with the GPUs (--gpus all)",
    ),
    nvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA driver is installed but not loaded",
        "load it (modprobe nvidia), or give the container its GPUs (--gpus all)",
    ),
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA library and the loaded driver are of different versions",
        "restart the machine, or unload and load the driver, after its update",
    ),
    nvml.NVML_ERROR_NO_PERMISSION: (
        "no permission to use the NVIDIA driver",
        "ask for access to /dev/nvidiactl and /dev/nvidia* (often the group video or render)",
    ),
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND: (
        "the NVIDIA driver is too old to be read",
        "update it to version 450 or newer",
    ),
}

_REASONS = {
    nvml.NVML_ERROR_NOT_SUPPORTED: "this GPU or driver does not tell it",
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND: "this driver is too old to tell it: update the driver",
    nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "this driver is too old to tell it: update the driver",
    nvml.NVML_ERROR_NO_PERMISSION: "the driver tells it to administrators only",
    nvml.NVML_ERROR_GPU_IS_LOST: "GPU is lost: it fell off the bus (the kernel log names the Xid error)",
    nvml.NVML_ERROR_RESET_REQUIRED: "GPU is lost: it needs a reset (nvidia-smi --gpu-reset, as root)",
    nvml.NVML_ERROR_UNINITIALIZED: "the driver was reloaded",
    nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the driver is not loaded",
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was replaced by another version",
}


def reason(error: nvml.NVMLError) -> str:
    """Why a call failed, as one phrase."""
    return _REASONS.get(error.value) or f"the driver said: {str(error).rstrip('.').lower()}"


def raise_if_gone(error: nvml.NVMLError) -> None:
    """Raise `error` again where it says that the GPU or the whole driver no longer answers."""
    if error.value in DEVICE_GONE | DRIVER_GONE:
        raise error


class Library:
    """NVML opened for this process. Threads share it, and tell by `generation` whether it was reopened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.generation = 0

    def open(self) -> int:
        """Load and initialize NVML; returns how many GPUs there are.

        Raises RoofmonError saying which of the library, the driver, the permission or the GPUs is missing.
        """
        try:
            nvml.nvmlInit()
            count = int(nvml.nvmlDeviceGetCount())
        except nvml.NVMLError as error:
            what, fix = _OPEN_FAILURES.get(
                error.value, (f"the NVIDIA driver cannot be used: {reason(error)}", "")
            )
            raise RoofmonError(what, fix, ExitCode.NO_DEVICE) from None
        if count == 0:
            raise RoofmonError(
                "the NVIDIA driver shows no GPU",
                "in a container or a job, ask for one",
                ExitCode.NO_DEVICE,
            )
        return count

    def reopen(self, generation: int) -> None:
        """Initialize again what failed in `generation`, unless another thread did. Raises NVMLError."""
        with self._lock:
            if self.generation != generation:
                return
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
            nvml.nvmlInit()
            self.generation += 1


def driver_version() -> str | None:
    """For example "580.159"; None where it is not told."""
    try:
        return str(nvml.nvmlSystemGetDriverVersion())
    except (nvml.NVMLError, UnicodeDecodeError):
        return None
