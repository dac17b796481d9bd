"""A snapshot as JSON, schema `roofmon.snapshot/1`.

SI units and nanoseconds; percentages go from 0 to 100. What is not known is null, with the reason under
`reasons` (kernels) or `missing` (samples) where one is known.
"""

import json
import math
from collections.abc import Iterable
from typing import Any, TextIO

import msgspec
import numpy as np

from roofmon import __version__
from roofmon.diagnosis import Finding, diagnose_kernel, diagnose_session
from roofmon.model.activity import Activity, TracedProgram
from roofmon.model.device import DeviceSample
from roofmon.model.roofline import NO_ROOFS, Ceiling, Pipe
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.table import Column, KernelTable
from roofmon.model.traffic import Traffic
from roofmon.model.work import Quantity
from roofmon.view import View, ViewState, build_view, device_point, untraced
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
            _device(
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
        "cost_percent": _percent(program.cost),
    }


def _activity(activity: Activity | None) -> dict[str, Any] | None:
    """What traced kernels did on a device; null where none is traced."""
    if activity is None:
        return None
    fields = msgspec.structs.asdict(activity)
    del fields["device"]
    return {
        **fields,
        "busy_percent": _percent(activity.busy),
        "gaps_percent": _percent(activity.idle),
        "launch_bound_percent": _percent(activity.launch_bound),
    }


def _traffic(traffic: Traffic | None) -> dict[str, Any] | None:
    """Where the DRAM traffic of a device goes; null where no kernel on it is traced."""
    if traffic is None:
        return None
    fields = msgspec.structs.asdict(traffic)
    del fields["device"]
    shares = {
        "explained_percent": traffic.explained,
        "explained_of_gpm_percent": traffic.explained_of_gpm,
        "untraced_percent": traffic.untraced_share,
    }
    return {
        **fields,
        "contended": traffic.contended or None,
        "missing": dict(traffic.missing),
        **{name: None if share is None else _percent(share) for name, share in shares.items()},
    }


def ceiling_document(ceiling: Ceiling) -> dict[str, Any]:
    """One ceiling: byte/s or FLOP/s, Hz, and `level` or `pipe` by its kind."""
    rest = msgspec.structs.asdict(ceiling)
    for name in ("kind", "level", "pipe"):
        del rest[name]
    return {"kind": ceiling.kind, **_place(ceiling), **rest}


def _place(ceiling: Ceiling) -> dict[str, Any]:
    if ceiling.pipe is None:
        return {"level": ceiling.level}
    return {"pipe": msgspec.structs.asdict(ceiling.pipe)}


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


def _device(device: Device, activity: Activity | None, traffic: Traffic | None) -> dict[str, Any]:
    roofline = device.roofline
    return {
        **msgspec.structs.asdict(device.description),
        "sample": None if device.sample is None else _sample(device.sample),
        "point": _point(device),
        "activity": _activity(activity),
        "traffic": _traffic(traffic),
        "progress": None if device.progress is None else msgspec.structs.asdict(device.progress),
        "roofline": {
            "ceilings": [ceiling_document(c) for c in roofline.ceilings],
            "conditions": None
            if roofline.conditions is None
            else msgspec.structs.asdict(roofline.conditions),
            "latency": {
                "launch_s": roofline.latency.launch_s,
                "load_s": dict(roofline.latency.load_s),
            },
        },
    }


def _sample(sample: DeviceSample) -> dict[str, Any]:
    fields = msgspec.structs.asdict(sample)
    del fields["device"]
    processes = sample.processes
    return {
        **{k: _known(v) if isinstance(v, float) else v for k, v in fields.items()},
        "lost": sample.lost or None,
        "rates": None if sample.rates is None else _rates(sample.rates.items()),
        "processes": None if processes is None else [msgspec.structs.asdict(p) for p in processes],
        "missing": dict(sample.missing),
    }


def _point(device: Device) -> dict[str, Any] | None:
    """The device's own place on its roofline; null where no device of its kind has one."""
    point = device_point(device)
    if point is None:
        return None
    return {
        "intensity": _maybe(point.intensity),
        "flops_per_s": _maybe(point.flops),
        "bytes_per_s": _maybe(point.bytes_per_s),
        "rates": _rates((pipe.key, rate) for pipe, rate in point.rates.items()),
        "upper_bound": point.upper_bound,
        "reason": point.why or None,
    }


def _rates(rates: Iterable[tuple[str, float]]) -> dict[str, float | None]:
    return {key: _known(rate) for key, rate in rates}


def _kernel(view: View, row: int) -> dict[str, Any]:
    table, description = view.table, view.table.descriptions[row]
    whole = {name: _known(table.column(column)[row]) for name, column in _COUNTS.items()}
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
        **{name: _known(table.column(column)[row]) for name, column in _STATISTICS.items()},
        "graph_percent": _percent(table.column(Column.GRAPH_SHARE)[row]),
        "time_percent": _percent(table.time_share[row]),
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
        "dram_percent": None
        if traffic.untraced_share is None
        else _percent(traffic.untraced_share),
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
        "roof": None if roof is None else {"kind": roof.kind, **_place(roof), "value": roof.value},
        "percent": _percent(positions.fraction[row]),
        "percent_low": _percent(positions.low[row]),
        "percent_high": _percent(positions.high[row]),
        "headroom": _known(positions.headroom[row]),
        "flops_per_s": _known(positions.flops[row]),
        "floor_ns": _known(positions.floor_ns[row]),
        "serial_floor_ns": _known(positions.serial_floor_ns[row]),
        "levels": [
            {
                "level": level,
                "intensity": _known(p.intensity[row]),
                "bytes_per_s": _known(p.achieved[row]),
                "attainable": _known(p.attainable[row]),
                "percent": _percent(p.percent[row]),
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


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _maybe(value: float | None) -> float | None:
    return None if value is None else _known(value)


def _percent(fraction: float) -> float | None:
    return float(fraction) * 100 if math.isfinite(fraction) else None
