"""Rules on time: is the kernel worth it, does its time vary, is it too short, does the device idle."""

import numpy as np

from roofmon.diagnosis.finding import WORTH_SHARE, Case, Finding, gains_ns, most_worth
from roofmon.model.table import Column
from roofmon.units import duration, percent, significant

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
    if case.saving:
        evidence += f", {_limit(share * case.saving)} at its roof"
    small = share < WORTH_SHARE
    return Finding(
        rule="worth-it",
        status="fail" if small else "pass",
        title=f"{'only ' if small else ''}{percent(share)} of the time",
        evidence=evidence,
        advice=_better(case),
    )


def _better(case: Case) -> str:
    """Another kernel that has clearly more to gain; "" where there is none."""
    best = most_worth(case.table, case.positions)
    if best is None:
        return ""
    gain = float(gains_ns(case.table, case.positions)[best])
    # Of a kernel whose work is unknown, all its time may be to gain.
    mine = case.gain_ns if np.isfinite(case.fraction) else case.stat(Column.TOTAL_NS)
    if not gain > 2 * mine:
        return ""
    return f"{case.table.descriptions[best].name} has more to gain: {duration(gain)} in all"


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
