"""Rules on time: is the kernel worth it, does its time vary, is it too short, does the device idle."""

import numpy as np

from roofmon.diagnosis.finding import Case, Finding, gains_ns
from roofmon.model.table import Column
from roofmon.units import duration, percent, significant

WORTH_SHARE = 0.02
"""Under this share of the time even a kernel of no time at all would not be noticed."""

MUCH_VARIATION = 0.10
SHORT_NS = 10_000.0
_FEW_LAUNCHES = 6


def worth_it(case: Case) -> Finding:
    """Does the kernel take enough time for tuning it to matter (Amdahl), and is another worth more?"""
    share = case.share
    if not np.isfinite(share):
        return Finding(
            rule="worth-it",
            status="unknown",
            title="its share of time is unknown",
            evidence="no time was measured",
        )
    evidence = f"at most {_limit(share)} faster in all"
    if np.isfinite(case.fraction) and case.fraction < 1:
        evidence += f", {_limit(share * (1 - case.fraction))} at its roof"
    gains = gains_ns(case.table, case.positions)
    best = int(gains.argmax())
    better = gains[best] > 2 * gains[case.row]
    advice = ""
    if better:
        name = case.table.descriptions[best].name
        advice = f"{name} has more to gain: {duration(float(gains[best]))} in all"
    small = share < WORTH_SHARE
    return Finding(
        rule="worth-it",
        status="fail" if small else "pass",
        title=f"{'only ' if small else ''}{percent(share)} of the time",
        evidence=evidence,
        advice=advice,
    )


def _limit(part: float) -> str:
    return f"{significant(1 / (1 - part))}×" if part < 0.999 else "1000×"


def variation(case: Case) -> Finding:
    """Do its launches take the same time?"""
    launches, cv = case.stat(Column.LAUNCHES), case.stat(Column.CV)
    if launches < _FEW_LAUNCHES or not np.isfinite(cv):
        return Finding(
            rule="variation",
            status="unknown",
            title="too few launches to compare",
            evidence=f"{launches:,.0f} launches; {_FEW_LAUNCHES} give an interval",
            advice="let it run longer",
        )
    much = cv > MUCH_VARIATION
    return Finding(
        rule="variation",
        status="fail" if much else "pass",
        title=f"variation {percent(cv)}",
        evidence=f"{duration(case.stat(Column.P05_NS))}–{duration(case.stat(Column.P95_NS))} "
        f"(p05–p95) over {launches:,.0f} launches",
        advice="changing inputs, clock or other programs? its median hides that" if much else "",
    )


def long_enough(case: Case) -> Finding | None:
    """Is a launch long enough that launching it costs little?"""
    median = case.stat(Column.MEDIAN_NS)
    if not np.isfinite(median) or case.description.kind in ("memcpy", "memset"):
        return None
    short = median < SHORT_NS
    return Finding(
        rule="short",
        status="fail" if short else "pass",
        severity="warning" if short else "info",
        title=f"{'short: ' if short else ''}{duration(median)} a launch",
        evidence=f"{case.stat(Column.LAUNCHES):,.0f} launches"
        + ("; launching one costs as much as running it" if short else ""),
        advice="fuse small kernels, batch them, or replay them as a graph" if short else "",
    )


def gaps(case: Case) -> Finding | None:
    """Does the device wait longer for a launch than the launch takes?"""
    gap, median = case.stat(Column.GAP_NS), case.stat(Column.MEDIAN_NS)
    # Of a region with kernels the gap is the host's; the device's own is in front of its kernels.
    if not (np.isfinite(gap) and np.isfinite(median)) or np.isfinite(case.stat(Column.INSIDE_NS)):
        return None
    idle = gap * case.stat(Column.LAUNCHES)
    waits = gap > median
    return Finding(
        rule="gaps",
        status="fail" if waits else "pass",
        severity="warning" if waits else "info",
        title="idle longer than it runs" if waits else "launched without long gaps",
        evidence=f"{duration(gap)} idle before each {duration(median)}; {duration(idle)} in all",
        advice="launch ahead, overlap with the host, or use a graph" if waits else "",
        gain_ns=idle if waits else 0.0,
    )
