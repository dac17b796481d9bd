"""Rules on the roofs themselves: measured undisturbed, not long ago, at the present clock."""

from roofmon.diagnosis.finding import Case, Finding
from roofmon.model.roofline import Ceiling
from roofmon.model.snapshot import Device, Snapshot
from roofmon.units import age, percent, si, significant
from roofmon.view.facts import how_to_measure

OLD_S = 30 * 86400.0
"""Roofs older than this may be from before an update of firmware or libraries that the key of the cache
does not see."""

WIDE = 0.03
"""Half-width of a roof's interval over its value from which on a percentage of it misleads."""

CLOCK_MOVED = 0.05
_IDLE = 0.2
_DISTURBED = ("contended", "not-converged", "over-bound", "small-set", "thermal")


def roof_trusted(case: Case) -> Finding | None:
    """Was the roof that binds measured undisturbed?"""
    roof = case.roof
    if roof is None:
        return None
    if roof.regime == "bound":
        return Finding(
            rule="roof",
            status="unknown",
            title=f"{roof.name}: a bound, not measured",
            evidence=f"{si(roof.value, roof.unit)} from widths and clocks; nothing can pass it",
            advice=how_to_measure(case.device) if case.device else "",
        )
    flags = disturbances(roof)
    interval = f"{si(roof.ci_low, roof.unit)}–{si(roof.ci_high, roof.unit)}"
    return Finding(
        rule="roof",
        status="fail" if flags else "pass",
        severity="warning" if flags else "info",
        title=f"{roof.name} roof {flags[0]}" if flags else f"{roof.name} roof is sound",
        evidence=f"{interval}, n = {roof.n}, {_age(roof, case.snapshot)}, {roof.probe}"
        + (f"; {', '.join(flags)}" if flags else ""),
        advice="roofmon calibrate measures again; stop other programs first" if flags else "",
    )


def clock_held(case: Case) -> Finding | None:
    """Is the clock what it was when the roof that binds was measured?"""
    return clock_moved(case.device, case.roof) if case.device and case.roof else None


def disturbances(ceiling: Ceiling) -> list[str]:
    """What makes a ceiling doubtful.

    A power cap does not, since it caps the kernels as well; nor does a measurement that ran out of time
    before its interval was as narrow as was tried for, as long as the interval is narrow enough here.
    """
    wide = max(ceiling.ci_high - ceiling.value, ceiling.value - ceiling.ci_low) / ceiling.value
    return [
        flag
        for flag in ceiling.flags
        if flag in _DISTURBED and (flag != "not-converged" or wide > WIDE)
    ]


def clock_moved(device: Device, ceiling: Ceiling) -> Finding | None:
    """Compares the clock now with that of a ceiling that follows it; None where either is unknown.

    The clock of an idle device says nothing about the one its kernels run at.
    """
    measured = ceiling.regime != "bound"
    follows = measured and (ceiling.kind == "compute" or ceiling.level == "l1")
    sample = device.sample
    if not follows or sample is None or (sample.load is not None and sample.load < _IDLE):
        return None
    now = sample.clock_hz
    if not (now and ceiling.clock_hz):
        return None
    change = now / ceiling.clock_hz - 1
    moved = abs(change) > CLOCK_MOVED
    return Finding(
        rule="clock",
        status="fail" if moved else "pass",
        title=f"clock {percent(abs(change))} {'up' if change > 0 else 'down'}"
        if moved
        else "clock as at calibration",
        evidence=f"{significant(now / 1e6, 4)} MHz now, {significant(ceiling.clock_hz / 1e6, 4)} MHz "
        f"when the {ceiling.name} roof was measured",
        advice="the roof moves with the clock; measure again if this lasts" if moved else "",
        device=device.description.uuid,
    )


def hard_limit(device: Device, roof: Ceiling) -> float | None:
    """What nothing passes that `roof` limits: its physical bound, at the clock held where that is known.

    In the roof's unit; None where no bound is known. The clock of an idle device is not that of the
    kernels it ran.
    """
    bound = next(
        (
            c
            for c in device.roofline.ceilings
            if c.regime == "bound"
            and (c.level, c.pipe, c.counts) == (roof.level, roof.pipe, roof.counts)
        ),
        None,
    )
    if bound is None:
        return None
    sample = device.sample
    if sample is None or not sample.clock_hz or sample.load is None or sample.load < _IDLE:
        return bound.value
    return device.roofline.at_clock(bound, sample.clock_hz, bound.value)


def why_passed(device: Device, roof: Ceiling) -> str:
    """Why a kernel may honestly pass a roof that was measured under load; "" where nothing says so."""
    if roof.kind != "compute" or roof.regime == "bound":
        return ""
    now = device.sample.clock_hz if device.sample else None
    if now and roof.clock_hz and now > (1 + CLOCK_MOVED) * roof.clock_hz:
        held, mhz = significant(roof.clock_hz / 1e6, 4), significant(now / 1e6, 4)
        return (
            f"the clock is {mhz} MHz now; the roof was sustained at {held} MHz"
            f"{': a burst before the power cap' if 'power-capped' in roof.flags else ''}"
        )
    if "power-capped" in roof.flags:
        return "the roof was sustained at the power cap: short bursts and data of zeros draw less"
    return ""


def oldest_s(device: Device, snapshot: Snapshot) -> float | None:
    """Age in s of the oldest measured ceiling of a device; None where no time is known."""
    ceilings = (c for c in device.roofline.ceilings if c.regime != "bound")
    times = [c.time_unix_s for c in ceilings if c.time_unix_s > 0]
    return snapshot.time_unix_ns / 1e9 - min(times) if times else None


def _age(ceiling: Ceiling, snapshot: Snapshot) -> str:
    if ceiling.time_unix_s <= 0:
        return "at an unknown time"
    return f"{age(snapshot.time_unix_ns / 1e9 - ceiling.time_unix_s)} ago"
