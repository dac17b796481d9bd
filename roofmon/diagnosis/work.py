"""Rules on the work of a kernel: is it known, do its sources agree, is it counted once."""

import json

import numpy as np

from roofmon.diagnosis.finding import Case, Finding
from roofmon.model.roofline import Pipe, level_label, pipe_label
from roofmon.model.table import Column
from roofmon.model.work import DISAGREEMENT, WorkKind, disagreement
from roofmon.units import duration, percent, si
from roofmon.view.facts import is_nested, missing_work


def work_known(case: Case) -> Finding:
    """Are FLOPs and bytes of a launch known?"""
    missing = missing_work(case.table, case.row)
    if not missing:
        return Finding(
            rule="work", status="pass", title="its work is known", evidence=_known_work(case)
        )
    known = case.description.reasons
    reasons = [f"{what}: {known[what.lower()]}" for what in missing if what.lower() in known]
    if len(reasons) > 1 and len({known[what.lower()] for what in missing}) == 1:
        reasons = [known[missing[0].lower()]]
    return Finding(
        rule="work",
        status="unknown",
        title=f"{' and '.join(missing)} unknown",
        evidence="; ".join(reasons) or f"no source gives its {' or '.join(missing)}",
        advice=_what_would_tell(case, missing),
    )


def _what_would_tell(case: Case, missing: list[str]) -> str:
    kernel = case.description
    if "FLOPs" in missing and kernel.candidates:
        pipes = ", ".join(pipe_label(Pipe.parse(key)) for key in kernel.candidates)
        return f"w takes its tensor work as one of {pipes}"
    if kernel.kind == "region" or not kernel.grid:
        return _declaration(case, missing)
    return "counters tell it, where they may be read"


def _known_work(case: Case) -> str:
    parts = []
    for chosen in (*case.table.flops.values(), *case.table.bytes.values()):
        value = float(chosen.values[case.row])
        if np.isfinite(value):
            source = chosen.columns[chosen.source[case.row]]
            unit, label = _unit_and_label(source.kind, chosen.key)
            parts.append(f"{si(value, unit)} {label} {source.provenance}")
    return ", ".join(parts)


def _unit_and_label(kind: WorkKind, key: str) -> tuple[str, str]:
    """The unit that work of a pipe or a level is counted in, and what that is called."""
    if kind == "bytes":
        return "B", level_label(key)
    pipe = Pipe.parse(key)
    return pipe.operation, pipe_label(pipe)


def _declaration(case: Case, missing: list[str]) -> str:
    """The line of code that would tell what is missing, with what is known filled in."""
    arguments = [json.dumps(case.description.name, ensure_ascii=False)]
    for name, chosen in (("flops", case.table.flops), ("bytes", case.table.bytes)):
        value = float(np.nansum([c.values[case.row] for c in chosen.values()])) if chosen else 0.0
        unknown = name in [m.lower() for m in missing]
        arguments.append(f"{name}=…" if unknown else f"{name}={value:.6g}")
    return f"with region({', '.join(arguments)}):"


def sources_agree(case: Case) -> Finding | None:
    """Where several sources give the same quantity, do they agree?"""
    flops, moved = case.table.flops, case.table.bytes
    differences = [_difference(case, "flops", key) for key in flops]
    differences += [_difference(case, "bytes", key) for key in moved]
    known = [found for found in differences if found is not None]
    if not known:
        return None
    worst, evidence = max(known)
    apart = worst > DISAGREEMENT
    return Finding(
        rule="sources",
        status="fail" if apart else "pass",
        severity="error" if apart else "info",
        title=f"sources {percent(worst)} apart" if np.isfinite(worst) else "sources contradict",
        evidence=evidence,
        advice="the first is used; check the formula, or what the bytes count" if apart else "",
    )


def _difference(case: Case, kind: WorkKind, key: str) -> tuple[float, str] | None:
    """How far the sources of one quantity are apart, and their values."""
    quantities = case.table.quantities(kind, key, case.row)
    apart = disagreement(kind, quantities)
    if apart is None:
        return None
    unit, label = _unit_and_label(kind, key)
    same = [q for q in quantities if q.counts == quantities[0].counts]
    values = ", ".join(
        f"{q.provenance} {'≤' if q.upper_bound else ''}{si(q.value, unit)}" for q in same
    )
    return apart, f"{label}: {values}"


def counted_once(case: Case) -> Finding | None:
    """Does its time lie within another row's region, so that both count the same work?"""
    if not is_nested(case.table, case.row):
        return None
    total, outer = case.stat(Column.TOTAL_NS), case.stat(Column.OUTER_NS)
    return Finding(
        rule="nested",
        status="fail",
        title="runs inside another region",
        evidence=f"{duration(total - outer)} of {duration(total)} is part of another row's time",
        advice="declare work on the inner or the outer region, not on both",
    )
