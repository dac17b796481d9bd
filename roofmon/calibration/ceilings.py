"""From a timing to a ceiling: the rate, what is claimed about it, and what is physically possible."""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from roofmon.calibration.probe import Probe
from roofmon.model.roofline import Ceiling, Regime

if TYPE_CHECKING:
    from roofmon.calibration.timing import Timing

_BETWEEN_RUNS: Mapping[Regime, float] = {"sustained": 0.005, "issue": 0.005, "gemm": 0.012}
_BETWEEN_RUNS_L2 = 0.008  # of one process to the next; within one its sets differ by half of that

_SLACK = 1.005  # clocks and events are read to about this


def to_ceiling(
    probe: Probe, amount: float, timing: "Timing", flags: tuple[str, ...] = ()
) -> Ceiling:
    """The ceiling of a probe of which one launch moves or computes `amount` bytes or FLOPs."""
    regime: Regime = "sustained" if probe.kind == "bandwidth" else "gemm"
    return Ceiling(
        kind=probe.kind,
        value=amount / timing.median_s,
        ci_low=amount / timing.high_s,
        ci_high=amount / timing.low_s,
        regime="issue" if probe.kind == "compute" and probe.operation == "loop" else regime,
        n=timing.n,
        probe=probe.name,
        level=probe.level,
        pipe=probe.pipe,
        counts=probe.counts,
        clock_hz=timing.clock_hz,
        flags=flags if timing.converged else (*flags, "not-converged"),
        time_unix_s=time.time(),
    )


def between_runs(ceiling: Ceiling) -> float:
    """How far the median of one GPU calibration may lie from that of the next, as a share, beyond what the
    samples within a run tell: other pages, another temperature, another moment of the power cap. From ten
    calibrations of an H200, bench_calibration.py's."""
    return _BETWEEN_RUNS_L2 if ceiling.level == "l2" else _BETWEEN_RUNS[ceiling.regime]


def widened(ceiling: Ceiling) -> Ceiling:
    """The ceiling with `between_runs` in its interval, on both sides."""
    margin = between_runs(ceiling) * ceiling.value
    return msgspec.structs.replace(
        ceiling, ci_low=ceiling.ci_low - margin, ci_high=ceiling.ci_high + margin
    )


def bound_of(ceiling: Ceiling, bounds: Iterable[Ceiling]) -> Ceiling | None:
    """The physical bound of what a ceiling measures, at the highest clock; None where none is known."""

    def place(c: Ceiling) -> tuple[object, ...]:
        return c.kind, c.level, c.pipe, c.counts

    return next((bound for bound in bounds if place(bound) == place(ceiling)), None)


def share_of_bound(ceiling: Ceiling, bounds: Iterable[Ceiling]) -> float | None:
    """The ceiling over its physical bound at the clock held; None where no bound is known.

    The SM clock counts for pipes and L1, the memory clock for DRAM; where one is not told, the highest.
    """
    bound = bound_of(ceiling, bounds)
    if bound is None:
        return None
    held, highest = ceiling.clock_hz, bound.clock_hz
    if bound.level == "dram":
        held, highest = ceiling.memory_clock_hz, bound.memory_clock_hz
    at_clock = held / highest if held and highest else 1.0
    return ceiling.value / (bound.value * at_clock)


def judged(ceiling: Ceiling, bounds: Iterable[Ceiling]) -> Ceiling:
    """The ceiling, flagged `over-bound` where it passes the bound at the highest clock."""
    bound = bound_of(ceiling, bounds)
    if bound is None or ceiling.value <= _SLACK * bound.value:
        return ceiling
    return flagged(ceiling, "over-bound")


def flagged(ceiling: Ceiling, flag: str) -> Ceiling:
    """The ceiling with one more flag, once."""
    flags = tuple(dict.fromkeys([*ceiling.flags, flag]))
    return msgspec.structs.replace(ceiling, flags=flags)
