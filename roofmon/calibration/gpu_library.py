"""CuPy: imported with the right environment, and what is wrong with it in words.

Of CuPy only the thin layer over CUDA is used (memory, events, modules, cuBLAS): nothing that compiles
kernels of its own, which would take seconds and a cache of its own.
"""

import os
from typing import Any

from roofmon.errors import ExitCode, RoofmonError

_HINDRANCES = (
    "CUDA_LAUNCH_BLOCKING",  # each launch would be waited for
    "CUDA_INJECTION64_PATH",  # a profiler's library, ours among them: it would slow down launches
    "NVIDIA_TF32_OVERRIDE",  # would turn TF32 off, or on where it is not meant
    "CUBLAS_EMULATE_DOUBLE_PRECISION",  # other arithmetic than the pipe's own
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY",
)


def prepare_environment(visible: str) -> dict[str, str]:
    """The environment of a process that is to see the devices `visible` and nothing that slows it down."""
    environment = {name: value for name, value in os.environ.items() if name not in _HINDRANCES}
    # Lazily loaded, cuBLAS takes tens of milliseconds instead of a second.
    return environment | {"CUDA_VISIBLE_DEVICES": visible, "CUDA_MODULE_LOADING": "LAZY"}


def import_cupy(driver_version: int) -> Any:
    """CuPy, fit for a driver that supports CUDA `driver_version` (13000 is 13.0).

    Raises RoofmonError with what to install where it is missing or for another CUDA.
    """
    extra = extra_for(driver_version // 1000)
    supported = f"the driver supports CUDA {_dotted(driver_version)}"
    install = f"pip install 'roofmon[{extra}]' into roofmon's own environment ({supported})"
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise RoofmonError(f"CuPy cannot be loaded: {error}", install) from None
        what = "the roofs of a GPU are measured with CuPy, which is not installed"
        raise RoofmonError(what, install, ExitCode.NO_DEVICE) from None
    except Exception as error:  # CuPy wraps whatever its libraries say in several types
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise RoofmonError(f"CuPy cannot be loaded: {first[0]}", install) from None
    built = int(cupy.cuda.runtime.runtimeGetVersion())
    if built // 1000 > driver_version // 1000:
        raise RoofmonError(
            f"this CuPy is for CUDA {built // 1000}, but {supported} at most",
            f"pip uninstall cupy-cuda{built // 1000}x, then {install}; or update the driver",
            ExitCode.NO_DEVICE,
        )
    return cupy


def extra_for(major: int) -> str:
    """The extra of roofmon for a driver that supports CUDA `major`."""
    return "cuda13" if major >= 13 else "cuda12"


def library_missing(cupy: Any, library: str, error: Exception) -> RoofmonError:
    """That a CUDA library which CuPy needs cannot be loaded, and where to get it."""
    major = int(cupy.cuda.runtime.runtimeGetVersion()) // 1000
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return RoofmonError(
        f"{library} of CUDA {major} cannot be loaded: {first.partition(': No such file')[0]}",
        f"pip install 'roofmon[{extra_for(major)}-ctk]' into roofmon's own environment, or install the "
        f"CUDA toolkit {major} and set CUDA_PATH to it",
    )


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
