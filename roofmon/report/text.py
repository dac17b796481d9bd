"""A view as text for people: what `--once` prints, at 80 columns and wider, with or without colour.

The order is that of the questions: what is it limited by, where does it stand, which kernels, what to do,
where do the numbers come from.
"""

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from roofmon.chart import mark, render
from roofmon.config import Config
from roofmon.diagnosis import Finding, about, diagnose_kernel, diagnose_session
from roofmon.model.session import Rung
from roofmon.model.snapshot import Snapshot
from roofmon.report.words import fitted, tidy
from roofmon.terminal import draws_unicode
from roofmon.units import si
from roofmon.view import (
    COLUMN_GAP,
    OVERVIEW,
    View,
    ViewState,
    activity_facts,
    build_view,
    columns_for,
    device_now,
    device_point,
    first_state,
    overview_cells,
    point_text,
    program_facts,
    row_cells,
    scene,
    traffic_facts,
    untraced,
    untraced_cells,
)
from roofmon.view.device_point import MARK

MOST_ROWS = 20
"""Rows of the table; what is left out is counted."""

LEAST_WIDTH, MOST_WIDTH = 60, 200
_WITHOUT_TERMINAL = 100

_TITLE_WIDTH = 32
_SIGNS = {"pass": "✓", "fail": "✗", "unknown": "?"}
_STYLES = {
    "title": "bold",
    "accent": "bold cyan",
    "muted": "dim",
    "pass": "green",
    "fail": "red",
    "unknown": "magenta",
    "warning": "yellow",
    "error": "bold red",
    "axis": "dim",
    "tick": "dim",
    "unit": "dim",
    "ridge": "dim",
    "region": "dim",
    "trail": "dim",
    "arrow": "yellow",
    "roof.memory": "blue",
    "roof.compute": "yellow",
    "roof.bound": "dim",
    "roof.selected": "bold",
    "point.memory": "cyan",
    "point.compute": "yellow",
    "point.latency": "magenta",
    "point.selected": "bold reverse",
}


def print_once(snapshot: Snapshot, config: Config, stream: TextIO) -> None:
    """Print the view of `snapshot` that `config` asks for, as wide as the terminal.

    Colour only goes to a terminal, and not where NO_COLOR or TERM=dumb say so.
    """
    columns = shutil.get_terminal_size((_WITHOUT_TERMINAL, 24)).columns
    width = min(MOST_WIDTH, max(LEAST_WIDTH, columns))
    state = first_state(config)
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    for line in render_once(snapshot, state, width, draws_unicode(config.unicode, stream.encoding)):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def render_once(
    snapshot: Snapshot, state: ViewState, width: int, unicode: bool = True
) -> list[Text]:
    """The lines of the view, none wider than `width` cells; ASCII alone without `unicode`."""
    view = build_view(snapshot, state)
    sections = [
        status_lines(view, width, unicode),
        overview_lines(view, width, unicode),
        tracing_lines(view, width, unicode),
        chart_lines(view, width, unicode),
        table_lines(view, width, unicode),
        checklist_lines(view, width, unicode),
        source_lines(snapshot, width, unicode),
    ]
    lines: list[Text] = []
    for section in sections:
        found = list(section)
        if found and lines:
            lines.append(Text())
        lines += found
    return lines


def status_lines(view: View, width: int, unicode: bool) -> Iterator[Text]:
    """The device now, whether this is live, and the answer for the top kernel."""
    yield _line("  ".join(["roofmon", *_device_now(view)]), width, unicode, "title")
    if view.snapshot.stale:
        yield from _wrapped(f"not live: {view.snapshot.stale}", width, unicode, "error")
    for what in view.comparison.changed if view.comparison else ():
        yield from _wrapped(f"changed: {what}", width, unicode, "warning")
    if view.headline:
        yield from _wrapped(view.headline, width, unicode)
    if view.message:
        yield from _wrapped(view.message, width, unicode, "warning")


def _device_now(view: View) -> Iterator[str]:
    device = view.device
    if device is None:
        yield view.snapshot.host
        return
    number = f"GPU{device.description.index} " if device.description.kind == "cuda" else ""
    yield f"{number}{device.description.name} on {view.snapshot.host}"
    yield from device_now(device, view.activity)


def overview_lines(view: View, width: int, unicode: bool) -> Iterator[Text]:
    """A line a device, where there are several GPUs; the one shown below is marked."""
    devices = view.snapshot.devices
    if sum(d.description.kind == "cuda" for d in devices) < 2:
        return
    widths = [column.width for column in OVERVIEW]
    widths[-1] = width - sum(widths[:-1]) - len(widths)

    def row(texts: Sequence[str], lead: str) -> str:
        cells = (
            fitted(tidy(text, unicode), room, column.align, "…" if unicode else "...")
            for text, column, room in zip(texts, OVERVIEW, widths, strict=False)
        )
        return lead + " ".join(cells)

    yield _line(row([column.title for column in OVERVIEW], " "), width, unicode, "muted")
    for device in devices:
        lead = ">" if device is view.device else " "
        texts = overview_cells(device)
        if device.sample is not None and device.sample.lost:
            yield _line(f"{row(texts[:2], lead)} {texts[-1]}", width, unicode, "error")
        else:
            yield _line(row(texts, lead), width, unicode)


def tracing_lines(view: View, width: int, unicode: bool) -> Iterator[Text]:
    """What traced kernels did on the device, and the programs that are or can be traced."""
    if view.activity is not None and (facts := activity_facts(view.activity)):
        yield from _wrapped(f"kernels of the last tick: {' · '.join(facts)}", width, unicode)
    if view.traffic is not None:
        yield from _wrapped(f"counters: {' · '.join(traffic_facts(view.traffic))}", width, unicode)
    for program in view.snapshot.traced:
        facts = program_facts(program)
        yield from _wrapped(f"{program.name} {program.pid}: {', '.join(facts)}", width, unicode)


def chart_lines(view: View, width: int, unicode: bool) -> Iterator[Text]:
    """The roofline chart, and why some kernels are not on it."""
    canvas = render(scene(view, unicode), width, 15 if width < 100 else 20)
    for characters, runs in zip(canvas.characters, canvas.roles, strict=True):
        line = Text(characters)
        for start, stop, role in runs:
            line.stylize(_STYLES.get(role, ""), start, stop)
        yield line
    yield from _device_point_lines(view, width, unicode)
    kernels = {str(number): id_ for id_, number in view.marks.items()}
    absent: dict[str, list[str]] = {}
    for label, reason in canvas.undrawn:
        if label in kernels:
            no_flops = view.positions.flops[view.table.row_by_id[kernels[label]]] == 0
            alike = absent.setdefault("does no FLOPs" if no_flops else reason, [])
            alike.append(mark(label, unicode))
    if absent:
        groups = (f"{' '.join(marks)} ({reason})" for reason, marks in absent.items())
        yield from _wrapped(f"not on the chart: {', '.join(groups)}", width, unicode, "muted")


def _device_point_lines(view: View, width: int, unicode: bool) -> Iterator[Text]:
    """The device's own point in words, or why there is none."""
    point = device_point(view.device) if view.device else None
    if point is None:
        return
    sign = MARK if unicode else "@"
    text = f"{sign + ' ' if point.place else ''}the device as a whole: {point_text(point)}"
    if point.bytes_per_s is not None:
        text += f", DRAM {si(point.bytes_per_s, 'B/s')}"
    if point.upper_bound:
        text += "; an upper bound: vector instructions count as FMAs, a limited clock reads high"
    yield from _wrapped(text, width, unicode, "muted")


def table_lines(view: View, width: int, unicode: bool) -> Iterator[Text]:
    """The kernels with most time, or as sorted."""
    if not view.row_count:
        return
    columns = columns_for(width, view.comparison is not None)

    def row(texts: Sequence[str], style: str = "") -> Text:
        cells = (
            fitted(tidy(text, unicode), column.width, column.align, "…" if unicode else "...")
            for text, column in zip(texts, columns, strict=True)
        )
        return Text((" " * COLUMN_GAP).join(cells).rstrip(), style)

    yield row([c.title for c in columns], _STYLES["muted"])
    for position in range(min(MOST_ROWS, view.row_count)):
        texts = row_cells(view, position, columns)
        at = next(i for i, c in enumerate(columns) if c.id == "mark")
        texts[at] = texts[at] and mark(texts[at], unicode)
        yield row(texts)
    if view.row_count > MOST_ROWS:
        yield _line(f"and {view.row_count - MOST_ROWS:,} more kernels", width, unicode, "muted")
    traffic = untraced(view)
    if traffic is not None:
        yield row(untraced_cells(traffic, columns), _STYLES["muted"])


def checklist_lines(view: View, width: int, unicode: bool) -> Iterator[Text]:
    """The checklist of the selected kernel, then what is wrong with the session."""
    row = view.selected_row
    if row is not None:
        yield _line(f"checklist: {view.table.descriptions[row].name}", width, unicode, "title")
        for finding in diagnose_kernel(view, row):
            yield from _finding_lines(finding, width, unicode)
    session = [
        f
        for f in about(view.device, diagnose_session(view.snapshot))
        if f.status != "pass" and f.rule not in ("live", "most-to-gain")
    ]
    if session:
        yield _line("session", width, unicode, "title")
    for finding in session:
        yield from _finding_lines(finding, width, unicode)


def _finding_lines(finding: Finding, width: int, unicode: bool) -> Iterator[Text]:
    """What passed is one line; else evidence that does not fit beside the title goes below it."""
    sign = tidy(_SIGNS[finding.status], unicode)
    title, evidence = tidy(finding.title, unicode), tidy(finding.evidence, unicode)
    room = width - len("✓ ") - _TITLE_WIDTH
    line = Text(f"{sign} ", _STYLES[finding.status])
    if finding.status == "pass" or cell_len(evidence) <= room:
        beside = fitted(title, _TITLE_WIDTH) + fitted(
            evidence, room, ellipsis="…" if unicode else "..."
        )
        yield line.append(beside.rstrip(), "default")
    else:
        yield line.append(title, "default")
        yield from _wrapped(evidence, width, unicode, indent=4)
    if finding.advice:
        yield from _wrapped(f"→ {finding.advice}", width, unicode, "muted", indent=4)


def source_lines(snapshot: Snapshot, width: int, unicode: bool) -> Iterator[Text]:
    """The rungs reached, and why the others were not; then what the session has to say."""
    reached = [f"{r.rung} {_rung(r)}" for r in snapshot.rungs if r.state in ("active", "waiting")]
    if reached:
        yield from _wrapped(f"sources: {' · '.join(reached)}", width, unicode)
    absent = [r for r in snapshot.rungs if r.state not in ("active", "waiting")]
    for (reason, fix), group in groupby(absent, lambda r: (r.reason, r.fix)):
        names = ", ".join(r.rung for r in group)
        yield from _wrapped(f"{names}: {_sentence(reason, fix)}", width, unicode, "muted")
    for notice in snapshot.notices:
        style = {"warning": "warning", "error": "error"}.get(notice.severity, "muted")
        yield from _wrapped(_sentence(notice.what, notice.fix), width, unicode, style)


def _rung(rung: Rung) -> str:
    if rung.state == "active":
        return f"✓ {rung.reason}".rstrip()
    return f"waiting: {_sentence(rung.reason, rung.fix)}"


def _sentence(what: str, fix: str) -> str:
    return f"{what}; {fix}" if fix else what


def _line(text: str, width: int, unicode: bool, role: str = "") -> Text:
    text = fitted(tidy(text, unicode), width, ellipsis="…" if unicode else "...")
    return Text(text.rstrip(), _STYLES.get(role, ""))


def _wrapped(
    text: str, width: int, unicode: bool, role: str = "", indent: int = 0
) -> Iterator[Text]:
    lines = textwrap.wrap(
        tidy(text, unicode),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
    )
    for line in lines:
        yield _line(line, width, unicode, role)
