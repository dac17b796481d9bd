"""The drill-down: all that is known about the selected kernel, live."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from roofmon.actions import key_label
from roofmon.tui.frame import Frame
from roofmon.tui.names import device_label, kernel_mark
from roofmon.tui.palette import Palette
from roofmon.tui.screens.pages import PageScreen
from roofmon.tui.screens.work_lines import INDENT, heading, precision_lines, work_lines
from roofmon.tui.strips import Line, Piece, fitted, sparkline, spread, wrapped
from roofmon.tui.widgets.checklist_panel import MARKS
from roofmon.units import NOT_AVAILABLE, duration, percent, si, significant

if TYPE_CHECKING:
    from roofmon.model.kernel import KernelDescription
    from roofmon.model.roofline import Ceiling
    from roofmon.view import View

_WIDE, _NARROW = (20, 16, 24, 8, 10), (16, 14, 18, 8, 9)
_SPARK_WIDTH = 48


class DrillDown(PageScreen):
    """Position, work, time, checklist and variants of one kernel."""

    def __init__(
        self, palette: Palette, frame: Frame, keymap: Mapping[str, tuple[str, ...]]
    ) -> None:
        super().__init__(palette, frame)
        self._key = next((key_label(key) for key in keymap.get("precision", ())), "")

    def hints(self, frame: Frame) -> Sequence[Piece]:
        """How to tell the precision of a kernel that needs it."""
        view = frame.view
        row = view.selected_row if view is not None else None
        if view is None or row is None or not view.table.descriptions[row].candidates:
            return ()
        return [(f"  {self._key}", "key"), (" precision", "muted")] if self._key else ()

    def page(self, frame: Frame, width: int) -> Sequence[Line]:
        """The page of the kernel selected in the frame."""
        view = frame.view
        if view is None or view.selected_row is None:
            return [(), [("  the kernel is gone", "warning")]]
        row = view.selected_row
        return [
            *_identity(view, row, width, self.palette.unicode),
            (),
            *_position(view, row, width),
            (),
            *work_lines(view, row, width),
            *precision_lines(view.table.descriptions[row], width),
            (),
            *_time(view, row, width),
            (),
            *_checklist(frame, width),
            *_variants(view, row, width),
        ]


def _identity(view: "View", row: int, width: int, unicode: bool) -> Iterator[Line]:
    kernel = view.table.descriptions[row]
    where = [device_label(view.device.description)] if view.device else []
    if kernel.process or kernel.pid:
        where.append(f"{kernel.process} {kernel.pid}".strip())
    mark = kernel_mark(view, row, unicode)
    right = f"{' · '.join(where)} "
    title = f" {mark + ' ' if mark else ''}{kernel.name}"
    title = fitted(title, max(10, min(len(title) + 2, width - len(right) - 2)))
    yield spread([(title, "title")], [(right, "muted")], width)
    if kernel.full_name and kernel.full_name != kernel.name:
        yield from wrapped(kernel.full_name, width - 2, "muted", "   ", " ")
    facts = [*_launch_facts(kernel), *_stream_facts(view, row)]
    if facts:
        yield from wrapped(" · ".join(facts), width - 2, "", "   ", " ")
    if (reason := kernel.reasons.get("name")) is not None:
        yield from wrapped(reason, width - 2, "muted", "   ", " ")


def _launch_facts(kernel: "KernelDescription") -> list[str]:
    facts = []
    if kernel.grid and kernel.block:
        grid, block = ("×".join(map(str, size)) for size in (kernel.grid, kernel.block))
        facts.append(f"{grid} blocks of {block}")
    if kernel.kind != "kernel":
        facts.append(f"{kernel.kind} of the program" if kernel.kind == "region" else kernel.kind)
    if kernel.registers is not None:
        facts.append(f"{kernel.registers} registers")
    if kernel.shared_bytes is not None:
        facts.append(f"{si(kernel.shared_bytes, 'B')} shared")
    if kernel.occupancy is not None:
        limiter = f" (limited by {kernel.occupancy_limiter})" if kernel.occupancy_limiter else ""
        facts.append(f"occupancy {percent(kernel.occupancy)} in theory{limiter}")
    elif reason := kernel.reasons.get("occupancy"):
        facts.append(f"occupancy {NOT_AVAILABLE} ({reason})")
    return facts


def _stream_facts(view: "View", row: int) -> list[str]:
    """Streams and graphs of a traced kernel."""
    from roofmon.model.table import Column

    streams, first, graph = (
        float(view.table.column(column)[row])
        for column in (Column.STREAMS, Column.STREAM, Column.GRAPH_SHARE)
    )
    if math.isnan(streams):
        return []
    named = (
        f"stream {first:.0f}" if streams == 1 and math.isfinite(first) else f"{streams:.0f} streams"
    )
    graphs = {0.0: "no graph", 1.0: "from a graph"}.get(graph, f"{percent(graph)} from graphs")
    return [named, graphs]


def _position(view: "View", row: int, width: int) -> Iterator[Line]:
    widths = _WIDE if width >= sum(_WIDE) + len(INDENT) else _NARROW
    titles = ("intensity", "achieved", "roof it meets", "of roof", "headroom")
    yield heading("POSITION", _cells(titles, widths))
    from roofmon.model.roofline import NO_ROOFS, Pipe, level_label, pipe_label
    from roofmon.view.facts import roofless_levels

    roofline = view.device.roofline if view.device else NO_ROOFS
    seconds = float(view.table.typical_ns[row]) / 1e9
    binding = view.positions.roof_of(row)
    found = False
    for level, position in view.positions.levels.items():
        achieved = float(position.achieved[row])
        if math.isnan(achieved):
            continue
        found = True
        counts = view.table.bytes[level].counts_of(row)
        intensity = f"{significant(float(position.intensity[row]))} FLOP/byte"
        roof = roofline.bandwidth(level, counts)
        cells = (intensity, si(achieved, "B/s"), *_met(achieved, "B/s", roof, widths))
        yield _placed(level_label(level), _cells(cells, widths), roof, binding)
    for key, chosen in view.table.flops.items():
        amount = float(chosen.values[row])
        if math.isnan(amount):
            continue
        found = True
        pipe = Pipe.parse(key)
        roof = roofline.compute(pipe)
        rate, unit = amount / seconds, f"{pipe.operation}/s"
        cells = ("", si(rate, unit), *_met(rate, unit, roof, widths))
        yield _placed(pipe_label(pipe), _cells(cells, widths), roof, binding)
    for reason in roofless_levels(roofline, view.table, row).values():
        yield from wrapped(f"{NOT_AVAILABLE}: {reason}", width - 2, "unknown", INDENT)
    if not found:
        yield [(f"{INDENT}{NOT_AVAILABLE}: neither its FLOPs nor its bytes are known", "unknown")]


def _met(
    achieved: float, unit: str, roof: "Ceiling | None", widths: Sequence[int]
) -> tuple[str, str, str]:
    """The roof that a rate meets, the share of it, and the headroom."""
    if roof is None:
        return "not measured", "", ""
    share = achieved / roof.value
    room = f"{significant(1 / share, 2)}×" if share > 0 else NOT_AVAILABLE
    bound = " bound" if roof.regime == "bound" else ""
    value = si(roof.value, unit if widths is _WIDE else "")
    return f"{roof.name} {value}{bound}", percent(share), room


def _placed(name: str, cells: str, roof: "Ceiling | None", binding: "Ceiling | None") -> Line:
    binds = roof is not None and roof == binding
    return [(f" {'▸' if binds else ' '} {name:<12}{cells}", "accent" if binds else "")]


def _cells(texts: Sequence[str], widths: Sequence[int]) -> str:
    """Texts in columns, the last two right-aligned."""
    *left, share, room = texts
    aligned = "".join(f"{fitted(text, w - 1)} " for text, w in zip(left, widths, strict=False))
    return f"{aligned}{share:>{widths[-2]}}{room:>{widths[-1]}}"


def _time(view: "View", row: int, width: int) -> Iterator[Line]:
    from roofmon.model.table import Column

    def stat(column: "Column") -> float:
        return float(view.table.column(column)[row])

    share = percent(float(view.table.time_share[row]))
    launches = stat(Column.LAUNCHES)
    count = f"{launches:,.0f}" if math.isfinite(launches) else NOT_AVAILABLE
    low, high = duration(stat(Column.P05_NS)), duration(stat(Column.P95_NS))
    yield [
        (" TIME          ", "title"),
        (f"{duration(stat(Column.MEDIAN_NS))} median", "title"),
        (f"  {low}–{high} (p05–p95)  variation {percent(stat(Column.CV))}", ""),
    ]
    kernel = view.table.descriptions[row].id
    bins, counts = view.snapshot.histograms.of(kernel)
    if len(bins):
        least, most = duration(stat(Column.MIN_NS)), duration(stat(Column.MAX_NS))
        shape = sparkline(_buckets(bins.tolist(), counts.tolist()))
        yield [(INDENT, ""), (f"{least} ", "muted"), (shape, "bar"), (f" {most}", "muted")]
    gap = stat(Column.GAP_NS)
    idle = f" · gap before each {duration(gap)}" if math.isfinite(gap) else ""
    yield [(f"{INDENT}{count} launches · {share} of the time{idle}", "")]
    if view.table.descriptions[row].kind == "region":
        yield from _inside(view, row, stat(Column.INSIDE_NS), stat(Column.MEDIAN_NS), width)


def _inside(view: "View", row: int, inside: float, median: float, width: int) -> Iterator[Line]:
    """The time of kernels inside a region, or why that is not known; nothing on a CPU."""
    if view.device is None or view.device.description.kind != "cuda":
        return
    if math.isfinite(inside):
        share = f", {percent(inside / median)} of it" if median > 0 else ""
        yield [(f"{INDENT}kernels inside {duration(inside)}{share}", "")]
        return
    reason = view.table.descriptions[row].reasons.get("kernels", "its program is not traced")
    text = f"kernels inside {NOT_AVAILABLE}: {reason}"
    yield from wrapped(text, width - 2, "unknown", INDENT)


def _buckets(bins: list[int], counts: list[int]) -> list[float]:
    """Launches over equal steps of the logarithm of time, at most _SPARK_WIDTH of them."""
    first, last = bins[0], bins[-1]
    step = -(-(last - first + 1) // _SPARK_WIDTH)
    heights = [0.0] * ((last - first) // step + 1)
    for at, count in zip(bins, counts, strict=True):
        heights[(at - first) // step] += count
    return heights


def _checklist(frame: Frame, width: int) -> Iterator[Line]:
    yield [(" CHECKLIST", "title")]
    for finding in frame.findings:
        mark, role = MARKS[finding.status]
        text = f"{finding.title}: {finding.evidence}" if finding.evidence else finding.title
        first, *more = wrapped(text, width - 6, "", "")
        yield [(f"   {mark} ", role), *first]
        for line in more:
            yield [("     ", ""), *line]
        if finding.advice and finding.status != "pass":
            yield from wrapped(finding.advice, width - 2, "accent", "       ", "     → ")


def _variants(view: "View", row: int, width: int) -> Iterator[Line]:
    from roofmon.model.table import Column

    mine = view.table.descriptions[row]
    same = [i for i, d in enumerate(view.table.descriptions) if d.name == mine.name]
    if len(same) < 2:
        return
    yield ()
    yield heading("VARIANTS", "of the same name")
    launches, medians = (view.table.column(c) for c in (Column.LAUNCHES, Column.MEDIAN_NS))
    for i in sorted(same, key=lambda i: -float(view.table.column(Column.TOTAL_NS)[i]))[:20]:
        kernel = view.table.descriptions[i]
        shape = "×".join(map(str, kernel.grid)) if kernel.grid else f"pid {kernel.pid}"
        here = "  this one" if i == row else ""
        text = (
            f"   {shape:<24}{duration(float(medians[i])):>10}{float(launches[i]):>12,.0f} launches"
        )
        yield [(fitted(text, min(width, 64)).rstrip(), ""), (here, "accent")]
