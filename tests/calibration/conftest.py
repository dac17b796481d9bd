"""A machine with GPUs as far as NVML and the driver tell: the double of NVML with what a calibration asks
beyond it, and a driver that answers until CuPy is loaded."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_double import NvmlDouble

_HERE = Path(__file__).parent
_NVML = _HERE.parent / "doubles" / "nvml"
_FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread")


@pytest.fixture(scope="session")
def gpu_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both libraries."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the doubles need a C compiler (cc)")
    folder = tmp_path_factory.mktemp("gpu")
    nvml = sorted(_NVML.glob("*.c"))
    for name, sources in (
        ("libnvidia-ml.so.1", ["-fvisibility=hidden", f"-I{_NVML}", *nvml]),
        ("libcuda.so.1", [_HERE / "cuda_driver.c"]),
    ):
        command = [compiler, *_FLAGS, "-o", folder / name, *sources]
        subprocess.run(command, check=True, timeout=60)
    return folder


@pytest.fixture
def gpus(gpu_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlDouble:
    """GPUs for every process that the test starts: write a scenario to say which."""
    folder = tmp_path / "nvml-double"
    folder.mkdir()
    libraries: Callable[[bool], Path] = lambda old: gpu_libraries  # noqa: E731
    double = NvmlDouble(libraries, folder)
    for name, value in double.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return double


@pytest.fixture
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folders for configuration, cache, state, data and sockets."""
    for name in ("CONFIG", "CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path
