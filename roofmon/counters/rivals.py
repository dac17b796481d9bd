"""Other tools that want a GPU's counters, found by the names of processes.

Counters are exclusive: Nsight Compute, started while we sample, fails. It takes 1–3 s from its start to its
first kernel, so whoever looks five times a second can let go in time.
"""

import os
import re
import time
from pathlib import Path

# By the name that the kernel keeps of a process, which has 15 characters.
_PROFILERS = re.compile(r"(ncu|nv-nsight-cu-cl(i)?|nsys|nsys-launcher|dcgmi|dcgmproftester.*)")
_SERVICES = re.compile(r"(nv-hostengine|dcgm-exporter)")
_YOUNG_S = 2.0  # a process has its parent's name until it executes its own program
_ALL_S = 5.0


def profiler_named(name: str) -> str | None:
    """The tool that a process of this name is, if it takes the counters while it runs."""
    return name if _PROFILERS.fullmatch(name) else None


def service_named(name: str) -> str | None:
    """The tool that a process of this name is, if it may take the counters but mostly runs without.

    DCGM's host engine runs on many machines from their start; it has the counters only while somebody
    watches its profiling fields.
    """
    return name if _SERVICES.fullmatch(name) else None


def running_profilers() -> dict[int, str]:
    """All processes now that may have the counters, services too: pid → name."""
    found = {}
    for pid in _pids():
        name = _name_of(pid)
        if name and (profiler_named(name) or service_named(name)):
            found[pid] = name
    return found


class Lookout:
    """Looks for such processes often and cheaply: most looks read the names of new processes only.

    Services that are there at the first look are left out: they did not mind us.
    """

    def __init__(self) -> None:
        self._born: dict[int, float] = {}
        self._profilers: dict[int, str] = {}
        self._services: dict[int, str] = {}
        self._next_all = 0.0
        self._first = True

    def look(self) -> dict[int, str]:
        """Profilers that run, and services that have newly started: pid → name."""
        now = time.monotonic()
        pids = _pids()
        self._born = {pid: self._born.get(pid, now) for pid in pids}
        everything = now >= self._next_all
        if everything:
            self._next_all = now + _ALL_S
        due = pids if everything else [p for p in pids if now - self._born[p] < _YOUNG_S]
        names = {pid: name for pid in {*due, *self._profilers} if (name := _name_of(pid))}
        self._profilers = {pid: n for pid, n in names.items() if profiler_named(n)}
        services = {pid: n for pid, n in names.items() if service_named(n)}
        new = {} if self._first else {p: n for p, n in services.items() if p not in self._services}
        self._services.update(services)
        self._services = {p: n for p, n in self._services.items() if p in self._born}
        self._first = False
        return {**self._profilers, **new}


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _name_of(pid: int) -> str:
    """Its name; "" where it is gone."""
    try:
        return Path("/proc", str(pid), "comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""
