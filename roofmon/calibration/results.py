"""What a calibration gives: every measurement, and the roofline made of the best of each group."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from roofmon.calibration.probe import Probe
from roofmon.model.roofline import Ceiling, Conditions, Roofline

SPOILED = frozenset({"contended", "over-bound"})
"""Flags of a measurement that is shown, but not worth keeping."""


class CalibrationResult(msgspec.Struct, frozen=True, kw_only=True):
    """One calibration of one device.

    `measurements` holds every probe's result, `roofline` only those that are roofs; `failures` says by
    probe why it has none, `not_applicable` why it has none here. `bounds` are the physical ceilings of the
    device, where they are known. `seconds` is how long all of it took, `phases` how long its steps and
    probes did.
    """

    device: str
    mode: str
    roofline: Roofline
    measurements: tuple[Ceiling, ...]
    failures: Mapping[str, str] = {}
    not_applicable: Mapping[str, str] = {}
    bounds: tuple[Ceiling, ...] = ()
    phases: Mapping[str, float] = {}
    time_unix_s: float
    seconds: float

    @property
    def worth_keeping(self) -> bool:
        """Whether nothing disturbed it, so that it may be cached."""
        spoiled = any(SPOILED & set(ceiling.flags) for ceiling in self.measurements)
        return bool(self.roofline.ceilings) and not self.failures and not spoiled

    def is_roof(self, measurement: Ceiling) -> bool:
        """Whether a measurement is a ceiling of the roofline."""
        return measurement in self.roofline.ceilings


def roofline_of(
    measurements: Iterable[Ceiling], probes: Sequence[Probe], conditions: Conditions
) -> Roofline:
    """The roofline of what was measured so far: the best of each group whose probes are roofs.

    A last-level cache that came out no faster than DRAM is left out: it is another tenant's, or
    smaller than the system says, and a line under the DRAM roof would limit nothing.
    """
    groups = {probe.name: probe.group for probe in probes if probe.roof}
    best: dict[str, Ceiling] = {}
    for ceiling in measurements:
        group = groups.get(ceiling.probe)
        if group and (group not in best or ceiling.value > best[group].value):
            best[group] = ceiling
    roofline = Roofline(ceilings=tuple(best.values()), conditions=conditions)
    dram = roofline.bandwidth("dram")
    kept = tuple(
        ceiling
        for ceiling in roofline.ceilings
        if not (ceiling.level == "llc" and dram and ceiling.value <= dram.value)
    )
    return msgspec.structs.replace(roofline, ceilings=kept)
