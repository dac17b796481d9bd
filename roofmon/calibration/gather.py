"""What a calibration has gathered so far, told as it grows: progress, better rooflines, notices."""

import time
from collections.abc import Callable, Mapping, Sequence

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
from roofmon.calibration.probe import Probe
from roofmon.calibration.results import CalibrationResult, roofline_of
from roofmon.model.roofline import NO_ROOFS, Ceiling, Conditions, Roofline
from roofmon.model.session import Notice, Progress
from roofmon.stream.messages import Message, NoticeMessage, ProgressMessage, Roofs


class Gathered:
    """The results of one calibration.

    Args:
        device: its UUID.
        probes: those that are to be measured.
        emit: takes progress, each better roofline and notices as they come.
        before: ceilings of an earlier, hastier calibration, shown until they are measured anew.
    """

    def __init__(
        self,
        device: str,
        probes: Sequence[Probe],
        conditions: Conditions,
        emit: Callable[[Message], None],
        before: Sequence[Ceiling] = (),
    ) -> None:
        self._device = device
        self._probes = {probe.name: probe for probe in probes}
        self._conditions = conditions
        self._emit = emit
        self._before = {ceiling.probe: ceiling for ceiling in before}
        self._began = time.monotonic()
        self._shown = NO_ROOFS
        self._measured: dict[str, Ceiling] = {}
        self._failures: dict[str, str] = {}
        self._not_applicable: dict[str, str] = {}
        self._phases: dict[str, float] = {}
        self.begun: set[str] = set()
        """Names of the probes that had their turn."""
        self.disturbed = False
        """Whether others used the device."""

    def take(self, message: BenchMessage) -> None:
        """What a process that measures says."""
        match message:
            case Begun(probe, again):
                self._begin(probe, again)
            case Phase(name, seconds):
                self._phases[name] = self._phases.get(name, 0.0) + seconds
            case Measured(ceiling):
                self._keep(ceiling)
            case Failed(probe, reason) if probe not in self._measured:
                self._failures[probe] = reason
                self._warn(f"probe {probe}: {reason}")
            case Inapplicable(probe, reason) if probe not in self._measured:
                self._not_applicable[probe] = reason
            case Disturbed(who):
                self.disturbed = True
                self._warn(f"roofs will come out low: {who}", "stop it and recalibrate")
            case Said(notice):
                self._emit(NoticeMessage(notice=notice))
            case _:
                pass

    def finish(
        self, mode: str, bounds: Sequence[Ceiling], not_applicable: Mapping[str, str]
    ) -> CalibrationResult:
        """The whole, and what is to be said about it."""
        self._progress(len(self._probes), "")
        measured = list(self._measured.values())
        roofline = roofline_of(measured, list(self._probes.values()), self._conditions)
        result = CalibrationResult(
            device=self._device,
            mode=mode,
            roofline=roofline,
            measurements=tuple(measured),
            failures=self._failures,
            not_applicable={**not_applicable, **self._not_applicable},
            bounds=tuple(bounds),
            phases=self._phases,
            time_unix_s=time.time(),
            seconds=time.monotonic() - self._began,
        )
        for what, fix in verdicts(result):
            self._warn(what, fix)
        self._show(roofline)
        return result

    def _begin(self, name: str, again: bool) -> None:
        title = self._probes[name].title
        done = len(self._probes) - 1 if again else len(self.begun)
        self.begun.add(name)
        self._progress(done, f"once more, undisturbed: {title}" if again else title)

    def _keep(self, ceiling: Ceiling) -> None:
        self.disturbed |= "contended" in ceiling.flags
        self._measured[ceiling.probe] = ceiling
        best = {**self._before, **self._measured}.values()
        self._show(roofline_of(best, list(self._probes.values()), self._conditions))

    def _show(self, roofline: Roofline) -> None:
        if roofline != self._shown:
            self._shown = roofline
            self._emit(Roofs(device=self._device, roofline=roofline))

    def _warn(self, what: str, fix: str = "") -> None:
        self._emit(NoticeMessage(notice=Notice(severity="warning", what=what, fix=fix)))

    def _progress(self, done: int, text: str) -> None:
        total = len(self._probes)
        progress = Progress(
            task="calibration", device=self._device, done=done, total=total, text=text
        )
        self._emit(ProgressMessage(progress=progress))


def verdicts(result: CalibrationResult) -> list[tuple[str, str]]:
    """(what, fix) to be said about a whole calibration, beside what disturbed it."""
    found = []
    flags = {flag for ceiling in result.measurements for flag in ceiling.flags}
    if "small-set" in flags:
        what = (
            "too little free memory for the working sets that DRAM needs: caches and launches show"
        )
        found.append((what, "free memory and recalibrate"))
    over = [c.probe for c in result.measurements if "over-bound" in c.flags]
    if over:
        what = f"{', '.join(over)} came out above what the hardware can do: nothing is kept"
        found.append((what, "recalibrate; where it stays so, its probe counts wrong"))
    levels = {ceiling.level for ceiling in result.measurements}
    if {"llc", "dram"} <= levels and result.roofline.bandwidth("llc") is None:
        what = "the last-level cache came out no faster than DRAM: its roof is left out"
        found.append((what, "other tenants may fill it; recalibrate when they are gone"))
    return found
