"""Loading CUPTI: the copy that cupti-python was made for, and no other that happens to be found first.

With an older libcupti.so.13, such as the one in a CUDA toolkit's folder, cupti-python 13.4 fails in its
first call on the profiler's host side (ERROR_INVALID_PARAMETER). The dynamic linker gives whoever asks for
a library by name the copy that is loaded already, so ours is loaded by its path first.
"""

import ctypes
import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

from roofmon.calibration.gpu_driver import Driver
from roofmon.errors import ExitCode, RoofmonError

INSTALL = "pip install 'roofmon[counters]' into roofmon's own environment"
LEAST_CUDA = 13_000
_FOLDER = Path("cu13", "lib")  # in the package `nvidia`, by nvidia-cuda-cupti
_CUPTI = "libcupti.so.13"
# In this order: CUPTI looks for the other two by name.
_LIBRARIES = ("libnvperf_host.so", "libnvperf_target.so", _CUPTI)


def load_cupti() -> Any:
    """The module `cupti.cupti`, over the right library. Raises RoofmonError."""
    if importlib.util.find_spec("cupti") is None:
        raise RoofmonError("cupti-python is not installed", INSTALL, ExitCode.NO_DEVICE)
    folder = _library_folder()
    for name in _LIBRARIES:
        try:
            ctypes.CDLL(str(folder / name))  # local: the two nvperf export the same names
        except OSError as error:
            raise RoofmonError(f"{name} cannot be loaded: {error}", INSTALL) from None
    other = loaded_cupti() - {str((folder / _CUPTI).resolve())}
    if other:
        what = f"another CUPTI was loaded first: {min(other)}"
        raise RoofmonError(what, "take it out of LD_PRELOAD", ExitCode.NO_DEVICE)
    try:
        return importlib.import_module("cupti.cupti")
    except ImportError as error:
        raise RoofmonError(f"cupti-python cannot be loaded: {error}", INSTALL) from None


def device_index(uuid: str) -> int:
    """The number by which CUDA (and so CUPTI) knows a GPU, "GPU-…" or "MIG-…". Raises RoofmonError.

    Takes no GPU memory: there is no context. To be called before anything else uses CUDA in this process:
    all GPUs are made visible, in one order, whatever the environment says.
    """
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if uuid.startswith("MIG-"):
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    else:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    driver = Driver()
    version = driver.version()
    if version < LEAST_CUDA:
        what = f"the driver supports CUDA {version // 1000}.{version % 1000 // 10} only"
        fix = "counters need a driver for CUDA 13 (version 580 or newer)"
        raise RoofmonError(what, fix, ExitCode.NO_DEVICE)
    wanted = uuid.partition("-")[2].lower()
    for index in range(64):
        try:
            if str(driver.uuid(index)) == wanted:
                return index
        except RoofmonError:
            break
    raise RoofmonError(
        f"CUDA shows no GPU {uuid}", "nvidia-smi -L lists the GPUs", ExitCode.NO_DEVICE
    )


def loaded_cupti() -> set[str]:
    """The paths of every copy of CUPTI 13 in this process."""
    with Path("/proc/self/maps").open() as maps:
        paths = {line.rstrip("\n").split(maxsplit=5)[-1] for line in maps if _CUPTI in line}
    return {path for path in paths if Path(path).name.startswith(_CUPTI)}


def _library_folder() -> Path:
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations if spec else None) or ():
        if (folder := Path(place) / _FOLDER).joinpath(_CUPTI).is_file():
            return folder
    raise RoofmonError(
        "the CUPTI of the package nvidia-cuda-cupti is not installed", INSTALL, ExitCode.NO_DEVICE
    )
