"""A calibration as a table for people and as JSON for programs: the same values in both."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from roofmon.calibration.listing import probe_rows
from roofmon.calibration.manifest import Probe
from roofmon.calibration.results import CalibrationResult
from roofmon.model.roofline import Ceiling, Roofline, level_label, pipe_label
from roofmon.units import age, si, significant


def calibration_table(result: CalibrationResult) -> Table:
    """Every measurement with median, 95 % interval, samples, clock and flags; then the ridge points."""
    ridges = " · ".join(
        f"{pipe_label(ceiling.pipe)} at {significant(intensity)} FLOP/byte of {level_label(level)}"
        for level, ceiling, intensity in _ridges(result.roofline)
        if ceiling.pipe is not None
    )
    since = age(time.time() - result.time_unix_s)
    caption = f"● roof   measured {since} ago in {result.seconds:.1f} s"
    if ridges:
        caption += f"\nridge points: {ridges}"
    for probe, reason in result.failures.items():
        caption += f"\n{probe}: {reason}"
    table = Table(caption=Text(caption), caption_justify="left", box=None, pad_edge=False)
    for heading in ("", "probe", "roof"):
        table.add_column(heading)
    for heading in ("median", "95 % interval", "n", "clock"):
        table.add_column(heading, justify="right")
    table.add_column("flags")
    for ceiling in result.measurements:
        unit = "B/s" if ceiling.kind == "bandwidth" else "FLOP/s"
        table.add_row(
            "●" if result.is_roof(ceiling) else "",
            Text(ceiling.probe),
            ceiling.name,
            si(ceiling.value, unit),
            f"{si(ceiling.ci_low)} … {si(ceiling.ci_high)}",
            str(ceiling.n),
            si(ceiling.clock_hz, "Hz"),
            ", ".join(ceiling.flags),
        )
    return table


def calibration_json(result: CalibrationResult) -> dict[str, Any]:
    """The same as a value for JSON: SI units, and null for what is unknown."""
    conditions = result.roofline.conditions
    return {
        "schema": "roofmon.calibration/1",
        "device": result.device,
        "mode": result.mode,
        "time_unix_s": result.time_unix_s,
        "seconds": result.seconds,
        "conditions": None
        if conditions is None
        else {name: getattr(conditions, name) for name in conditions.__struct_fields__},
        "measurements": [
            {**ceiling_json(ceiling), "roof": result.is_roof(ceiling)}
            for ceiling in result.measurements
        ],
        "ridge_points": [
            {"level": level, "pipe": _pipe_json(ceiling), "flop_per_byte": intensity}
            for level, ceiling, intensity in _ridges(result.roofline)
        ],
        "failures": dict(result.failures),
    }


def ceiling_json(ceiling: Ceiling) -> dict[str, Any]:
    """One ceiling: byte/s or FLOP/s, Hz, and `level` or `pipe` by its kind."""
    where = {"level": ceiling.level} if ceiling.pipe is None else {"pipe": _pipe_json(ceiling)}
    return {
        "kind": ceiling.kind,
        **where,
        "value": ceiling.value,
        "ci_low": ceiling.ci_low,
        "ci_high": ceiling.ci_high,
        "regime": ceiling.regime,
        "n": ceiling.n,
        "clock_hz": ceiling.clock_hz,
        "probe": ceiling.probe,
        "flags": list(ceiling.flags),
        "time_unix_s": ceiling.time_unix_s,
    }


def probe_table(probes: Iterable[Probe]) -> Table:
    """The probes there are, for `roofmon calibrate --list`."""
    table = Table(box=None, pad_edge=False)
    for heading in ("probe", "roof", "what it does", "counts", "source"):
        table.add_column(heading)
    for row in probe_rows(probes):
        keys = ("name", "roof", "title", "counts", "source")
        table.add_row(*(Text(str(row[key])) for key in keys))
    return table


def _ridges(roofline: Roofline) -> list[tuple[str, Ceiling, float]]:
    """(level, compute ceiling, FLOP/byte) for each pair of roofs."""
    levels = [c.level for c in roofline.ceilings if c.level is not None]
    return [
        (level, ceiling, intensity)
        for ceiling in roofline.ceilings
        if ceiling.pipe is not None
        for level in levels
        if (intensity := roofline.ridge(level, ceiling.pipe)) is not None
    ]


def _pipe_json(ceiling: Ceiling) -> Mapping[str, str] | None:
    pipe = ceiling.pipe
    return None if pipe is None else {"unit": pipe.unit, "precision": pipe.precision}
