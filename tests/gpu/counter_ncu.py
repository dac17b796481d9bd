"""Nsight Compute over the workloads of counter_loads.py, and what it counted."""

import contextlib
import csv
import io
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asked_program import plain_environment
from counter_accuracy import Part
from counter_watch import LOADS

from roofmon.counters.metric_sets import DRAM_READ, DRAM_WRITE

LIMIT_S = 150.0
_METRICS = (DRAM_READ, DRAM_WRITE)
_SCALES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def run_ncu(ncu: str, names: Sequence[str]) -> tuple[int | None, str, str]:
    """Runs it over two launches of each workload: its exit code (None where it was ended), its table, and
    what the program and it said beside."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "ncu.csv")
        command = [ncu, "--cache-control", "none", "--clock-control", "none"]
        command += ["--profile-from-start", "off", "--metrics", ",".join(_METRICS)]
        command += ["--csv", "--print-units", "base", "--log-file", str(log)]
        command += [sys.executable, "-P", str(LOADS), "--once", *names]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=plain_environment(),
            start_new_session=True,
        )
        code: int | None = None
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the program under it
            said, _ = process.communicate()
            said = f"ended after {LIMIT_S:.0f} s; {said}"
        return code, log.read_text(errors="replace") if log.exists() else "", said


@dataclass(frozen=True)
class NcuKernel:
    """A launch as Nsight Compute counted it; `name` without what it is a template of, and without types."""

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    bytes: float


def ncu_kernels(text: str) -> list[NcuKernel]:
    """The launches in the output of `ncu --csv`, in either of its forms; empty where there are none."""
    table = [
        line for line in text.splitlines() if line.startswith('"')
    ]  # and none that begins with ==
    rows = csv.DictReader(io.StringIO("\n".join(table)))
    found: dict[str, dict[str, Any]] = {}
    units: dict[str, str] = {}
    for row in rows:
        if not row["ID"]:
            units = row  # the second line of the wide form
            continue
        launch = found.setdefault(row["ID"], {"row": row, "bytes": {}})
        if "Metric Name" in row:
            values = {row["Metric Name"]: (row["Metric Value"], row["Metric Unit"])}
        else:
            values = {name: (row[name], units.get(name, "byte")) for name in _METRICS}
        for name, (value, unit) in values.items():
            if name in _METRICS and unit in _SCALES:
                with contextlib.suppress(ValueError):  # n/a
                    launch["bytes"][name] = float(value.replace(",", "")) * _SCALES[unit]
    return [
        NcuKernel(
            base_name(launch["row"]["Kernel Name"]),
            _sizes(launch["row"]["Grid Size"]),
            _sizes(launch["row"]["Block Size"]),
            sum(launch["bytes"].values()),
        )
        for launch in found.values()
        if len(launch["bytes"]) == len(_METRICS)
    ]


def ncu_bytes(kernels: list[NcuKernel], parts: list[Part]) -> float:
    """DRAM bytes of an iteration as Nsight Compute counted its kernels; NaN where it missed one."""
    whole = 0.0
    for part in parts:
        about = part.description
        same = [
            k.bytes
            for k in kernels
            if (k.grid, k.block) == (about.grid, about.block)
            and k.name == base_name(about.full_name or about.name)
        ]
        if not same:
            return math.nan
        whole += part.per_iteration * sum(same) / len(same)
    return whole if parts else math.nan


def base_name(name: str) -> str:
    """The function's own name in a demangled one."""
    named = re.sub(r"(\(anonymous namespace\)|<unnamed>)::", "", name)  # c++filt's word and ncu's
    before = re.split(r"[<(]", named, maxsplit=1)[0]
    words = re.findall(r"\w+", before)
    return words[-1] if words else name


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in re.findall(r"\d+", text))
