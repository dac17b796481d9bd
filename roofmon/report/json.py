"""A snapshot as JSON, schema `roofmon.snapshot/1`.

SI units and nanoseconds; percentages go from 0 to 100. What is not known is null, with the reason under
`reasons` (kernels) or `missing` (samples) where one is known.
"""

import json
from collections.abc import Iterable
from typing import Any, TextIO

import msgspec
import numpy as np

from roofmon import __version__
from roofmon.diagnosis import Finding, diagnose_kernel, diagnose_session
from roofmon.model.activity import TracedProgram
from roofmon.model.roofline import NO_ROOFS, Pipe
from roofmon.model.snapshot import Snapshot
from roofmon.model.table import Column, KernelTable
from roofmon.model.work import Quantity
from roofmon.report.json_devices import device_document, place_document
from roofmon.report.json_numbers import in_percent, known
from roofmon.view import View, ViewState, build_view, untraced
from roofmon.view.facts import missing_work, roofless_levels, unknown_time
from roofmon.view.traffic import UNTRACED

SCHEMA = "roofmon.snapshot/1"

DIAGNOSED = 100
"""Kernels of each device, those with most time, whose checklists are in `findings`."""

_COUNTS = {
    "launches": Column.LAUNCHES,
    "total_ns": Column.TOTAL_NS,
    "outer_ns": Column.OUTER_NS,
    "last_end_unix_ns": Column.LAST_END_NS,
    "streams": Column.STREAMS,
    "stream": Column.STREAM,
}
_STATISTICS = {
    "median_ns": Column.MEDIAN_NS,
    "median_low_ns": Column.MEDIAN_LOW_NS,
    "median_high_ns": Column.MEDIAN_HIGH_NS,
    "p05_ns": Column.P05_NS,
    "p95_ns": Column.P95_NS,
    "min_ns": Column.MIN_NS,
    "max_ns": Column.MAX_NS,
    "cv": Column.CV,
    "gap_ns": Column.GAP_NS,
    "launch_rate_hz": Column.LAUNCH_RATE,
    "kernels_inside_ns": Column.INSIDE_NS,
}


def write_json(snapshot: Snapshot, stream: TextIO) -> None:
    """Write the document of a snapshot, and nothing else, to `stream`; ASCII in any encoding."""
    json.dump(snapshot_document(snapshot), stream, indent=1, allow_nan=False)
    stream.write("\n")


def snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot with positions and findings; kernels in order of their time, by device."""
    views = [
        build_view(snapshot, ViewState(device=device.description.uuid))
        for device in snapshot.devices
    ] or [build_view(snapshot, ViewState())]
    return {
        "schema": SCHEMA,
        "roofmon": __version__,
        "host": snapshot.host,
        "time_unix_ns": snapshot.time_unix_ns,
        "started_unix_ns": snapshot.started_unix_ns,
        "interval_ns": snapshot.interval_ns,
        "stale": snapshot.stale or None,
        "dropped": snapshot.dropped,
        "programs": [{"pid": pid, "name": name} for pid, name in snapshot.programs.items()],
        "traced": [_traced(program) for program in snapshot.traced],
        "devices": [
            device_document(
                device,
                snapshot.activity.get(device.description.uuid),
                snapshot.traffic.get(device.description.uuid),
            )
            for device in snapshot.devices
        ],
        "kernels": [
            kernel
            for view in views
            for kernel in (*(_kernel(view, int(row)) for row in view.order), *_untraced(view))
        ],
        "rungs": [
            {"rung": r.rung, "state": r.state, "reason": r.reason, "fix": r.fix}
            for r in snapshot.rungs
        ],
        "notices": [
            {"severity": n.severity, "what": n.what, "fix": n.fix} for n in snapshot.notices
        ],
        "findings": [finding_document(f) for f in _findings(snapshot, views)],
        "kernels_without_findings": sum(max(0, len(v.order) - DIAGNOSED) for v in views),
    }


def _traced(program: TracedProgram) -> dict[str, Any]:
    """A program that can be traced; the estimated cost in percent of its time."""
    fields = msgspec.structs.asdict(program)
    del fields["cost"]
    return {
        **fields,
        "reason": program.reason or None,
        "cupti": program.cupti or None,
        "cost_percent": in_percent(program.cost),
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    """One line of a checklist; `kernel` is an id, null for findings on the session."""
    return {
        "rule": finding.rule,
        "status": finding.status,
        "severity": finding.severity,
        "title": finding.title,
        "evidence": finding.evidence,
        "advice": finding.advice,
        "gain_ns": finding.gain_ns,
        "kernel": finding.kernel,
        "device": finding.device or None,
    }


def _findings(snapshot: Snapshot, views: Iterable[View]) -> Iterable[Finding]:
    yield from diagnose_session(snapshot)
    for view in views:
        for row in view.order[:DIAGNOSED]:
            yield from diagnose_kernel(view, int(row))


def _kernel(view: View, row: int) -> dict[str, Any]:
    table, description = view.table, view.table.descriptions[row]
    whole = {name: known(table.column(column)[row]) for name, column in _COUNTS.items()}
    return {
        **{
            name: getattr(description, name)
            for name in ("id", "name", "device", "kind", "full_name", "pid", "process")
        },
        "grid": description.grid,
        "block": description.block,
        "registers": description.registers,
        "shared_bytes": description.shared_bytes,
        "occupancy": description.occupancy,
        "occupancy_limiter": description.occupancy_limiter or None,
        **{name: None if value is None else round(value) for name, value in whole.items()},
        **{name: known(table.column(column)[row]) for name, column in _STATISTICS.items()},
        "graph_percent": in_percent(table.column(Column.GRAPH_SHARE)[row]),
        "time_percent": in_percent(table.time_share[row]),
        "precisions": list(description.candidates),
        "precision_told": description.told or None,
        "work": _work(table, row),
        "position": _position(view, row),
        "reasons": {**_reasons(view, row), **description.reasons},
    }


def _untraced(view: View) -> Iterable[dict[str, Any]]:
    """The row of what nothing traced moved: no kernel, so without an id and without launches."""
    traffic = untraced(view)
    if traffic is None:
        return
    yield {
        "id": None,
        "name": UNTRACED,
        "device": traffic.device,
        "kind": "untraced",
        "bytes_per_s": traffic.untraced_bytes_per_s,
        "dram_percent": in_percent(traffic.untraced_share),
        "reasons": {"launches": "nothing is known of what moved it"},
    }


def _work(table: KernelTable, row: int) -> dict[str, Any]:
    """All sources of all quantities per launch; of each quantity the first is the one used."""
    flops = [
        {**msgspec.structs.asdict(Pipe.parse(key)), **_quantity(q), "upper_bound": q.upper_bound}
        for key in table.flops
        for q in table.quantities("flops", key, row)
    ]
    moved = [
        {"level": key, **_quantity(q), "counts": q.counts}
        for key in table.bytes
        for q in table.quantities("bytes", key, row)
    ]
    return {"flops": flops, "bytes": moved}


def _quantity(q: Quantity) -> dict[str, Any]:
    return {"value": q.value, "provenance": q.provenance.value, "rel_error": q.rel_error}


def _position(view: View, row: int) -> dict[str, Any]:
    positions = view.positions
    roof = positions.roof_of(row)
    return {
        "class": positions.class_of(row).value,
        "roof": None
        if roof is None
        else {"kind": roof.kind, **place_document(roof), "value": roof.value},
        "percent": in_percent(positions.fraction[row]),
        "percent_low": in_percent(positions.low[row]),
        "percent_high": in_percent(positions.high[row]),
        "headroom": known(positions.headroom[row]),
        "flops_per_s": known(positions.flops[row]),
        "floor_ns": known(positions.floor_ns[row]),
        "serial_floor_ns": known(positions.serial_floor_ns[row]),
        "levels": [
            {
                "level": level,
                "intensity": known(p.intensity[row]),
                "bytes_per_s": known(p.achieved[row]),
                "attainable": known(p.attainable[row]),
                "percent": in_percent(p.percent[row]),
            }
            for level, p in positions.levels.items()
            if np.isfinite(p.achieved[row]) or np.isfinite(p.intensity[row])
        ],
    }


def _reasons(view: View, row: int) -> dict[str, str]:
    """Why something is null, as far as it follows from what else is known."""
    reasons = {
        what.lower(): f"no source gives its {what}" for what in missing_work(view.table, row)
    }
    if reason := unknown_time(view.table, row):
        reasons["time"] = reason
    roofline = view.device.roofline if view.device else NO_ROOFS
    roofless = roofless_levels(roofline, view.table, row)
    if view.positions.roof_of(row) is None and not reasons:
        why = "no roof is measured for the pipe or the memory level it uses"
        reasons["position"] = "; ".join(roofless.values()) or why
    return reasons | {f"percent_{level}": reason for level, reason in roofless.items()}
