"""One calibration from the first probe to the last: progress, growing roofs, contention, failures."""

import time
import traceback
from collections.abc import Callable, Sequence

import msgspec
import psutil

from roofmon.calibration.cache import Mode
from roofmon.calibration.cpu_bench import CpuBench
from roofmon.calibration.manifest import Probe
from roofmon.calibration.results import CalibrationResult, roofline_of
from roofmon.errors import RoofmonError
from roofmon.model.roofline import NO_ROOFS, Ceiling, Conditions
from roofmon.model.session import Notice, Progress
from roofmon.stream.messages import Message, NoticeMessage, ProgressMessage, Roofs
from roofmon.telemetry.contention import ForeignLoad
from roofmon.telemetry.host import Host
from roofmon.units import clean

_FIX = "stop it and recalibrate"


def calibrate(
    host: Host,
    probes: Sequence[Probe],
    conditions: Conditions,
    mode: Mode,
    load: ForeignLoad,
    emit: Callable[[Message], None],
    stop: Callable[[], bool] = lambda: False,
    scale: float = 1.0,
) -> CalibrationResult:
    """Measure `probes` one after the other. A probe that fails is told and does not stop the others.

    Args:
        load: watches the other processes since some time before this call.
        emit: takes progress, each better roofline and notices as they come.

    Raises: InterruptedError when `stop` says so.
    """
    began = time.monotonic()
    run = _Run(host, probes, conditions, load, emit)
    bench = CpuBench(host, mode, scale, stop)
    try:
        run.measure_all(bench)
        run.repeat_contended(bench)
    finally:
        bench.close()
    run.progress(len(probes), "")
    run.say_verdicts()
    return CalibrationResult(
        device=host.uuid,
        mode=mode,
        roofline=run.roofline,
        measurements=tuple(run.measured.values()),
        failures=run.failures,
        time_unix_s=time.time(),
        seconds=time.monotonic() - began,
    )


class _Run:
    """What one calibration has gathered so far: `measured` and `failures` by probe."""

    def __init__(
        self,
        host: Host,
        probes: Sequence[Probe],
        conditions: Conditions,
        load: ForeignLoad,
        emit: Callable[[Message], None],
    ) -> None:
        self._device = host.uuid
        self._probes = probes
        self._conditions = conditions
        self._load = load
        self._emit = emit
        self.measured: dict[str, Ceiling] = {}
        self.failures: dict[str, str] = {}
        self.roofline = NO_ROOFS

    def measure_all(self, bench: CpuBench) -> None:
        """Every probe once."""
        if self._contended() and (culprit := self._load.culprit()):
            self._warn(f"roofs will come out low: {culprit} uses the CPU", _FIX)
        for done, probe in enumerate(self._probes):
            self.progress(done, probe.title)
            if ceiling := self._measure(bench, probe):
                self._keep(ceiling)

    def repeat_contended(self, bench: CpuBench) -> None:
        """Once more what others disturbed, for as long as they leave us alone now."""
        for probe in self._probes:
            before = self.measured.get(probe.name)
            if before is None or "contended" not in before.flags:
                continue
            self.progress(len(self._probes) - 1, f"once more, undisturbed: {probe.title}")
            again = self._measure(bench, probe)
            if again is None or "contended" in again.flags:
                break
            self._keep(again)

    def progress(self, done: int, text: str) -> None:
        """Tell how far it is."""
        total = len(self._probes)
        progress = Progress(
            task="calibration", device=self._device, done=done, total=total, text=text
        )
        self._emit(ProgressMessage(progress=progress))

    def say_verdicts(self) -> None:
        """Tell what is to be said about the whole."""
        ceilings = self.measured.values()
        if names := ", ".join(c.probe for c in ceilings if "contended" in c.flags):
            who = self._load.culprit() or "something that has ended or cannot be seen from here"
            what = f"{who} used the CPU during {names}: these roofs may be low and are not kept"
            self._warn(what, _FIX)
        if any("small-set" in ceiling.flags for ceiling in ceilings):
            what = "too little memory for a working set of 4 × the last-level cache"
            self._warn(f"{what}: DRAM may read high", "free memory and recalibrate")
        levels = {ceiling.level for ceiling in ceilings}
        if {"llc", "dram"} <= levels and self.roofline.bandwidth("llc") is None:
            what = "the last-level cache came out no faster than DRAM: its roof is left out"
            self._warn(what, "other tenants may fill it; recalibrate when they are gone")

    def _measure(self, bench: CpuBench, probe: Probe) -> Ceiling | None:
        """The result of one probe, or None with its failure noted and told."""
        self._load.cores()  # what went on between probes does not count
        try:
            ceiling = bench.measure(probe)
        except InterruptedError:
            raise
        except Exception as error:  # whatever a probe does, the others still count
            if not isinstance(error, RoofmonError):
                traceback.print_exc()
            self.failures[probe.name] = clean(str(error) or type(error).__name__)
            self._warn(f"probe {probe.name}: {self.failures[probe.name]}")
            return None
        if not self._contended():
            return ceiling
        return msgspec.structs.replace(ceiling, flags=(*ceiling.flags, "contended"))

    def _keep(self, ceiling: Ceiling) -> None:
        self.measured[ceiling.probe] = ceiling
        roofline = roofline_of(self.measured.values(), self._probes, self._conditions)
        if roofline != self.roofline:
            self.roofline = roofline
            self._emit(Roofs(device=self._device, roofline=roofline))

    def _contended(self) -> bool:
        """Whether others used enough since the last question to lower a result by a few percent."""
        cores = self._load.cores()
        return cores is not None and cores > max(0.2, 0.05 * (psutil.cpu_count() or 1))

    def _warn(self, what: str, fix: str = "") -> None:
        self._emit(NoticeMessage(notice=Notice(severity="warning", what=what, fix=fix)))
