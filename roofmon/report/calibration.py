"""A calibration as a table with notes for people and as JSON for programs: the same values in both."""

import textwrap
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from roofmon.calibration.ceilings import share_of_bound
from roofmon.calibration.listing import probe_rows
from roofmon.calibration.probe import Probe
from roofmon.calibration.results import CalibrationResult
from roofmon.model.roofline import Ceiling, Pipe, Roofline, level_label, pipe_label
from roofmon.units import age, percent, si, significant

_FLAGS = {
    "power-capped": "power cap",
    "thermal": "thermal limit",
    "not-converged": "not converged (its interval was still wide when the time was up)",
    "contended": "contended (something else used the device meanwhile; not kept)",
    "over-bound": "over its bound (faster than physically possible; not kept)",
    "small-set": "small set (too little memory was free)",
}
"""What the flags of a ceiling say; the first two are the words of the clock-event reasons."""


def calibration_table(result: CalibrationResult) -> Table:
    """Every measurement with median, half-width of its 95 % interval, samples and clock, and on a GPU its
    share of the physical bound at that clock."""
    table = Table(box=None, pad_edge=False)
    gpu = any(ceiling.memory_clock_hz for ceiling in result.measurements)
    for heading in ("", "probe", "roof"):
        table.add_column(heading, no_wrap=True)
    for heading in ("median", "95 % ±", "n", "clock", *(("bound",) if gpu else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for ceiling in result.measurements:
        share = share_of_bound(ceiling, result.bounds)
        table.add_row(
            "●" if result.is_roof(ceiling) else "",
            Text(ceiling.probe),
            ceiling.name,
            si(ceiling.value, ceiling.unit),
            f"{_half_width(ceiling):.2%}".replace("%", " %"),
            str(ceiling.n),
            si(ceiling.clock_hz, "Hz"),
            *((percent(share),) if gpu else ()),
        )
    return table


def _half_width(ceiling: Ceiling) -> float:
    """The farther end of the interval from the median, as a share of it."""
    farther = max(ceiling.ci_high - ceiling.value, ceiling.value - ceiling.ci_low)
    return farther / ceiling.value


def calibration_notes(result: CalibrationResult, width: int) -> Iterator[str]:
    """What goes below the table, wrapped at words to `width`: a line for each limit or flag with the probes
    that it applies to, what failed or does not apply, and the ridge points of DRAM."""
    since = age(time.time() - result.time_unix_s)
    yield f"● roof   measured {since} ago in {result.seconds:.1f} s"
    notes = [f"{what}: {', '.join(probes)}" for what, probes in _limits_and_flags(result).items()]
    notes += [f"{probe}: {reason}" for probe, reason in result.failures.items()]
    notes += [f"{probe}: n/a, {reason}" for probe, reason in result.not_applicable.items()]
    for note in notes:
        # The hyphens of probe names are no place to break a line.
        yield from textwrap.wrap(note, width, subsequent_indent="  ", break_on_hyphens=False)
    ridges = {
        pipe: f"{significant(intensity):>6} {pipe.operation}/byte"
        for memory, pipe, intensity in _ridges(result.roofline)
        if memory.level == "dram"
    }
    if ridges:
        yield f"ridge points over {level_label('dram')}:"
        longest = max(len(pipe_label(pipe)) for pipe in ridges)
        yield from (f"  {pipe_label(pipe):{longest}}  {at}" for pipe, at in ridges.items())


def _limits_and_flags(result: CalibrationResult) -> dict[str, list[str]]:
    """The probes of each limit of the clock and each flag, those that most probes share first."""
    found: dict[str, list[str]] = {}
    for ceiling in result.measurements:
        # The reasons say more exactly what these two flags say.
        said = ("power-capped", "thermal") if ceiling.event_reasons else ()
        flags = [_FLAGS.get(flag, flag) for flag in ceiling.flags if flag not in said]
        for what in dict.fromkeys([*ceiling.event_reasons, *flags]):
            found.setdefault(what, []).append(ceiling.probe)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def calibration_json(result: CalibrationResult) -> dict[str, Any]:
    """The same as a value for JSON: SI units, and null for what is unknown."""
    # Late: it brings numpy, which a list of probes does not need.
    from roofmon.report.json_devices import ceiling_document

    conditions = result.roofline.conditions
    return {
        "schema": "roofmon.calibration/1",
        "device": result.device,
        "mode": result.mode,
        "time_unix_s": result.time_unix_s,
        "seconds": result.seconds,
        "conditions": msgspec.structs.asdict(conditions) if conditions else None,
        "measurements": [
            {
                **ceiling_document(ceiling),
                "roof": result.is_roof(ceiling),
                "share_of_bound": share_of_bound(ceiling, result.bounds),
            }
            for ceiling in result.measurements
        ],
        "ridge_points": [
            {
                "level": memory.level,
                "counts": memory.counts,
                "pipe": msgspec.structs.asdict(pipe),
                "flop_per_byte": intensity,
            }
            for memory, pipe, intensity in _ridges(result.roofline)
        ],
        "failures": dict(result.failures),
        "not_applicable": dict(result.not_applicable),
        "phases_s": dict(result.phases),
    }


def probe_lines(probes: Iterable[Probe]) -> Iterator[str]:
    """The probes there are, three lines each, for `roofmon calibrate --list`."""
    rows = probe_rows(probes)
    widths = [max((len(str(row[key])) for row in rows), default=0) for key in ("name", "roof")]
    for row in rows:
        notes = [str(row["counts"])]
        notes += ["quick"] if row["quick"] else []
        notes += [] if row["is_roof"] else ["not a roof"]
        yield f"{row['name']:{widths[0]}}  {row['roof']:{widths[1]}}  {', '.join(notes)}"
        yield f"    {row['title']}"
        yield f"    {row['source']}"


def _ridges(roofline: Roofline) -> list[tuple[Ceiling, Pipe, float]]:
    """(roof of memory, pipe, FLOP/byte) for each pair of roofs."""
    pipes = [ceiling.pipe for ceiling in roofline.ceilings if ceiling.pipe is not None]
    return [
        (memory, pipe, intensity)
        for pipe in pipes
        for memory in roofline.ceilings
        if memory.level is not None
        and (intensity := roofline.ridge(memory.level, pipe, memory.counts)) is not None
    ]
