"""How much of the CPU others use, and who: a measurement shared with them is not a roof.

The system's busy time minus our own gives the total, also where the others are invisible (other
containers, other virtual machines); walking the processes names the worst of those that can be seen.
"""

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import psutil

from roofmon.units import clean

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Culprit:
    """A process that used CPU: `cores` is its CPU time over the time that passed."""

    pid: int
    name: str
    cores: float

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid}, {self.cores:.1f} cores)"


def own_family() -> frozenset[int]:
    """This process and its ancestors: the monitor itself, and the shell and terminal around it."""
    return frozenset([os.getpid(), *(parent.pid for parent in psutil.Process().parents())])


class ForeignLoad:
    """Measures the CPU that processes other than `exclude` use, from one reading to the next.

    The kernel counts in ticks of 10 ms: over 0.3 s and 2 cores the result is good to about ±0.05 cores.
    """

    def __init__(self, exclude: Collection[int]) -> None:
        self._exclude = frozenset(exclude)
        self._last = self._reading()
        self._began = self._processes(), time.monotonic()

    def cores(self) -> float | None:
        """Mean number of cores that others kept busy since the last call; None if no time passed.

        Time that a hypervisor gave to other machines counts: it was not ours either.
        """
        now, before = self._reading(), self._last
        self._last = now
        elapsed = now[0] - before[0]
        if elapsed <= 0:
            return None
        return max(0.0, (now[1] - before[1]) / elapsed)

    def culprit(self) -> Culprit | None:
        """The process with the most CPU time since this object was made; None if none had a tenth of a
        core: then it was one that has ended, or that cannot be seen from here."""
        before, started = self._began
        elapsed = time.monotonic() - started
        worst = Culprit(0, "", 0.0)
        for key, process in self._processes().items():
            seconds = process.cpu_s - (before[key].cpu_s if key in before else 0.0)
            if process.pid not in self._exclude and seconds / elapsed > worst.cores:
                worst = Culprit(process.pid, process.name, seconds / elapsed)
        return worst if worst.cores >= 0.1 else None

    def _reading(self) -> tuple[float, float]:
        """(seconds of the monotonic clock, CPU seconds spent by others since boot)."""
        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system
        busy += getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0)
        busy += getattr(times, "steal", 0.0)
        own = sum(process.cpu_s for pid in self._exclude if (process := _process(pid)))
        return time.monotonic(), busy - own

    @staticmethod
    def _processes() -> dict[tuple[int, int], "_Process"]:
        """Every process that can be seen, by number and start: kernel threads change their names."""
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
        found = (process for pid in pids if (process := _process(pid)))
        return {(process.pid, process.started_ticks): process for process in found}


@dataclass(frozen=True)
class _Process:
    pid: int
    name: str
    started_ticks: int
    cpu_s: float


def _process(pid: int) -> _Process | None:
    """What /proc/PID/stat says; None when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may hold any character, so the last one closes it.
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
    return _Process(pid, clean(name, 32), int(fields[19]), cpu_s)
