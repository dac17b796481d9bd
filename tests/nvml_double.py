"""A `libnvidia-ml.so.1` for tests: compiled from `doubles/nvml`, driven by a scenario file.

`nvml` is the fixture: write a scenario, start a process with `nvml.env`, and change the scenario while
the process runs. Import `nvml` and `nvml_libraries` in a `conftest.py` to use them.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from nvml_scenarios import Scenario

_SOURCES = sorted(Path(__file__).parent.glob("doubles/nvml/*.c"))
_FLAGS = (
    "-shared",
    "-fPIC",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fvisibility=hidden",
    "-pthread",
)


class Call(NamedTuple):
    """One call that reached the library: when (monotonic seconds), and of which GPU ("" for none)."""

    at_s: float
    function: str
    device: str


class NvmlDouble:
    """A scenario, and the environment of a process that is to see it. Values are in NVML's units.

    Writing is atomic: the library reads the file as it was before or as it is after.
    """

    def __init__(self, libraries: Callable[[bool], Path], folder: Path) -> None:
        self._libraries = libraries
        self._path = folder / "scenario"
        self._calls = folder / "calls"
        self._scenario: Scenario = {}
        self.env = {
            "ROOFMON_NVML_SCENARIO": str(self._path),
            "ROOFMON_NVML_CALLS": str(self._calls),
        }
        self.use_library(old=False)

    def use_library(self, *, old: bool) -> None:
        """Which library the next process loads: an old one lacks what came after 2021, GPM too."""
        others = os.environ.get("LD_LIBRARY_PATH", "")
        folder = str(self._libraries(old))
        self.env["LD_LIBRARY_PATH"] = f"{folder}:{others}" if others else folder

    def write(self, scenario: Mapping[str, object]) -> None:
        """Make this the world."""
        self._scenario = dict(scenario)
        lines = [f"{key} = {_escape(value)}\n" for key, value in self._scenario.items()]
        beside = self._path.with_suffix(".new")
        beside.write_text("".join(lines), encoding="ascii")
        beside.replace(self._path)

    def set(self, changes: Mapping[str, object]) -> None:
        """Change some keys."""
        self.write(self._scenario | dict(changes))

    def unset(self, *keys: str) -> None:
        """Take keys out: a value becomes Not Supported, a fault ends."""
        self.write({key: value for key, value in self._scenario.items() if key not in keys})

    def calls(self) -> list[Call]:
        """All calls so far, of all processes."""
        if not self._calls.exists():
            return []
        parts = [line.split(" ") for line in self._calls.read_text().splitlines()]
        return [Call(float(at), function, device) for at, function, device in parts]


@pytest.fixture(scope="session")
def nvml_libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """Compiles the library, the old one or not; gives the folder that it is in."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the NVML double needs a C compiler (cc)")
    root = tmp_path_factory.mktemp("nvml")

    @cache
    def build(old: bool) -> Path:
        folder = root / ("old" if old else "new")
        folder.mkdir()
        output = folder / "libnvidia-ml.so.1"
        command = [compiler, *_FLAGS, *(["-DOLD_LIBRARY"] if old else [])]
        subprocess.run([*command, "-o", output, *_SOURCES], check=True, timeout=60)
        return folder

    return build


@pytest.fixture
def nvml(nvml_libraries: Callable[[bool], Path], tmp_path: Path) -> NvmlDouble:
    """A double without a scenario: as long as none is written, no driver is loaded."""
    folder = tmp_path / "nvml-double"
    folder.mkdir()
    return NvmlDouble(nvml_libraries, folder)


def _escape(value: object) -> str:
    """Text as the library reads it back; bytes are for what is not even UTF-8."""
    raw = value if isinstance(value, bytes) else str(value).encode()
    return "".join(chr(b) if 0x20 <= b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in raw)
