"""A `libcupti.so.13` for tests: compiled from `doubles/pm_sampling`, driven by a scenario file.

The real cupti-python loads it, where that is installed. Write a scenario, start a worker with `env`, and
change the scenario while it runs; `launches` are those of its made-up device.
"""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from roofmon.counters.metric_sets import DRAM_READ, DRAM_WRITE, L2
from roofmon.counters.overlap import Launches
from roofmon.counters.weights import CYCLES, TENSOR

_SOURCES = Path(__file__).resolve().parents[1] / "doubles" / "pm_sampling"
_FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")
UUID = "GPU-01010101-0101-0101-0101-010101010101"

needs_cupti_python = pytest.mark.skipif(
    importlib.util.find_spec("cupti") is None, reason="cupti-python is not installed"
)


@dataclass(frozen=True)
class Kernel:
    """What a launch counts, by metric."""

    duration_ns: int
    counts: dict[str, float]


KERNELS = (
    Kernel(300_000, {DRAM_READ: 800e6, DRAM_WRITE: 400e6, L2: 1800e6}),
    Kernel(500_000, {DRAM_READ: 90e6, DRAM_WRITE: 30e6, L2: 400e6, TENSOR: 2.4e8}),
    Kernel(120_000, {DRAM_READ: 240e6, DRAM_WRITE: 20e6, L2: 270e6}),
    Kernel(30_000, {DRAM_READ: 60e6, DRAM_WRITE: 45e6, L2: 160e6}),
)
RATES = {CYCLES: 1.755}
# Which kernel runs after which pause in ns, in every period: long and uneven, so that the samples tell
# where in it they are.
_ORDER = ((0, 0), (1, 10_000), (2, 3_000), (3, 900_000), (2, 4_000), (0, 250_000), (3, 2_000))
_ORDER += ((3, 5_000), (1, 1_800_000), (1, 5_000), (2, 60_000), (0, 5_000), (3, 400_000))
_PAUSES = np.array([pause for _, pause in _ORDER])
_WHICH = np.array([kernel for kernel, _ in _ORDER])
_DURATIONS = np.array([KERNELS[kernel].duration_ns for kernel in _WHICH])
_STARTS = np.cumsum(_PAUSES + _DURATIONS) - _DURATIONS
PERIOD_NS = int(_STARTS[-1] + _DURATIONS[-1]) + 1_137_000


def build_double(folder: Path) -> Path:
    """Compiles the libraries into a folder laid out like the packages; skips without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    cupti, cuda = folder / "nvidia" / "cu13" / "lib", folder / "cuda"
    for place, source, library in (
        (cupti, "cupti.c", "libcupti.so.13"),
        (cuda, "cuda.c", "libcuda.so.1"),
    ):
        place.mkdir(parents=True)
        command = [compiler, *_FLAGS, str(_SOURCES / source), "-o", str(place / library)]
        subprocess.run([*command, f"-Wl,-soname,{library}", "-lm"], check=True)
    for name in ("libnvperf_host.so", "libnvperf_target.so"):
        command = [compiler, "-shared", "-xc", "/dev/null", "-o", str(cupti / name)]
        subprocess.run([*command, f"-Wl,-soname,{name}"], check=True)
    return folder


class PmSamplingDouble:
    """A scenario, and the environment of a process that is to see it."""

    def __init__(self, libraries: Path, folder: Path) -> None:
        self._path = folder / "scenario"
        others = [os.environ[name] for name in ("PYTHONPATH",) if os.environ.get(name)]
        self.env = {
            "ROOFMON_PM_SCENARIO": str(self._path),
            "PYTHONPATH": os.pathsep.join([str(libraries), *others]),
            "LD_LIBRARY_PATH": str(libraries / "cuda"),
        }
        self._settings: dict[str, object] = {"period_ns": PERIOD_NS, "lock": folder / "held"}
        for number, (which, start) in enumerate(zip(_WHICH, _STARTS, strict=True)):
            self._settings[f"kernel{number}.start_ns"] = start
            self._settings[f"kernel{number}.duration_ns"] = KERNELS[which].duration_ns
            for metric, count in KERNELS[which].counts.items():
                self._settings[f"kernel{number}.{metric}"] = count
        for metric, rate in RATES.items():
            self._settings[f"rate.{metric}"] = rate
        self.set()

    def set(self, changes: Mapping[str, object] | None = None, **more: object) -> None:
        """Change keys; `__` in a name of an argument stands for a dot. None takes one out."""
        self._settings |= changes or {}
        self._settings |= {key.replace("__", "."): value for key, value in more.items()}
        lines = [f"{key} = {value}\n" for key, value in self._settings.items() if value is not None]
        beside = self._path.with_suffix(".new")
        beside.write_text("".join(lines))
        beside.replace(self._path)


def launches(since_ns: int, until_ns: int) -> Launches:
    """All launches of the device that ended after one moment and up to another."""
    periods = np.arange(since_ns // PERIOD_NS - 1, until_ns // PERIOD_NS + 1) * PERIOD_NS
    kernel = np.tile(_WHICH, len(periods))
    begins = np.add.outer(periods, _STARTS).ravel()
    ends = begins + np.tile(_DURATIONS, len(periods))
    due = (ends > since_ns) & (ends <= until_ns)
    return Launches(kernel[due], begins[due], ends[due])
