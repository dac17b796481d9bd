"""Measuring probes one after the other, in the process that may die of it: contention, failures, phases."""

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Protocol

from roofmon.calibration.bench_messages import (
    Begun,
    BenchMessage,
    Disturbed,
    Failed,
    Inapplicable,
    Measured,
    Phase,
    Said,
)
from roofmon.calibration.ceilings import flagged
from roofmon.calibration.probe import Probe
from roofmon.errors import RoofmonError
from roofmon.model.roofline import Ceiling
from roofmon.model.session import Notice
from roofmon.units import clean


class NotApplicableError(RoofmonError):
    """A probe cannot be run here now, for a reason that spoils nothing else."""


class Bench(Protocol):
    """What measures a probe: `CpuBench`, `GpuBench`."""

    def measure(self, probe: Probe) -> Ceiling:
        """The ceiling; whatever goes wrong is raised, NotApplicableError where nothing did."""

    def broken(self) -> bool:
        """Whether a fault has left this process unfit to measure anything else."""


class Load(Protocol):
    """What tells how much others use of a device: `CpuLoad`, `GpuLoad`. Times are Unix times in µs."""

    resource: str
    prompt: bool
    """Whether `contended` knows at once, so that measuring once more tells whether they have gone."""

    def begin(self) -> None:
        """A probe begins: what went on before does not count."""

    def contended(self) -> bool:
        """Whether others used enough since `begin` to lower a result by a few percent."""

    def contended_late(self, began_us: int, ended_us: int) -> bool:
        """The same for a time before, where that is told with a delay."""

    def culprit(self) -> str | None:
        """Who used most."""


def measure_all(
    bench: Bench, load: Load, probes: Sequence[Probe], say: Callable[[BenchMessage], None]
) -> bool:
    """Measure every probe, once more those that others disturbed, and tell.

    A probe that fails is told and does not stop the others, unless it broke the process: then this
    returns False at once. Call `load.begin` some time before.
    """
    run = _Run(bench, load, say)
    run.warn_of_others()
    for probe in probes:
        run.measure(probe)
        if bench.broken():
            return False
    run.look_back()
    if load.prompt:
        run.repeat_contended(probes)
    run.say_verdict()
    return True


class _Run:
    def __init__(self, bench: Bench, load: Load, say: Callable[[BenchMessage], None]) -> None:
        self._bench = bench
        self._load = load
        self._say = say
        self._measured: dict[str, Ceiling] = {}
        self._when: dict[str, tuple[int, int]] = {}

    def warn_of_others(self) -> None:
        """Tell before the first probe that somebody else is at work."""
        if self._load.contended():
            who = self._load.culprit() or "something that cannot be seen from here"
            self._say(Disturbed(f"{who} uses the {self._load.resource}"))

    def measure(self, probe: Probe, again: bool = False) -> Ceiling | None:
        """One probe; None with its failure told."""
        self._say(Begun(probe.name, again))
        self._load.begin()
        began_us = _now_us()
        try:
            ceiling = self._bench.measure(probe)
            if self._load.contended():
                ceiling = flagged(ceiling, "contended")
        except NotApplicableError as error:
            self._say(Inapplicable(probe.name, clean(error.what)))
            return None
        except Exception as error:  # whatever a probe does, the others still count
            if not isinstance(error, RoofmonError):
                traceback.print_exc()
            self._say(Failed(probe.name, clean(str(error) or type(error).__name__)))
            return None
        else:
            return self._keep(ceiling)
        finally:
            self._when[probe.name] = began_us, _now_us()
            self._say(Phase(probe.name, (_now_us() - began_us) / 1e6))

    def look_back(self) -> None:
        """Mark what turns out only now to have been disturbed."""
        for name, ceiling in list(self._measured.items()):
            if "contended" not in ceiling.flags and self._load.contended_late(*self._when[name]):
                self._keep(flagged(ceiling, "contended"))

    def repeat_contended(self, probes: Sequence[Probe]) -> None:
        """Once more what others disturbed, for as long as they leave us alone now."""
        for probe in probes:
            before = self._measured.get(probe.name)
            if before is None or "contended" not in before.flags:
                continue
            again = self.measure(probe, again=True)
            if again is None or "contended" in again.flags or self._bench.broken():
                break

    def say_verdict(self) -> None:
        """Tell which results may be low, and why."""
        names = [name for name, c in self._measured.items() if "contended" in c.flags]
        if names:
            who = self._load.culprit() or "something that has ended or cannot be seen from here"
            used = f"{who} used the {self._load.resource} during {', '.join(names)}"
            what = f"{used}: these roofs may be low and are not kept"
            self._say(Said(Notice(severity="warning", what=what, fix="stop it and recalibrate")))

    def _keep(self, ceiling: Ceiling) -> Ceiling:
        self._measured[ceiling.probe] = ceiling
        self._say(Measured(ceiling))
        return ceiling


def _now_us() -> int:
    return time.time_ns() // 1000
