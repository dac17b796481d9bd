"""The kernel table: makes the cells of the visible rows only, and keeps the selected one in sight.

Textual's DataTable sends every visible cell again when one changes, which costs 66–95 % of a core for
5,000 kernels at 2 Hz; this one costs the rows on the screen, however many kernels there are.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from roofmon.tui import names
from roofmon.tui.arrangement import PanelName
from roofmon.tui.frame import Frame
from roofmon.tui.strips import Line, Piece, cells, fitted, wrapped
from roofmon.tui.widgets.activity_strip import strip_line
from roofmon.tui.widgets.panel import Panel
from roofmon.units import significant

if TYPE_CHECKING:
    from roofmon.view import TableColumn, View

_STRIP_FROM = 8
"""From this height on there is room for the strip of the device's activity above the rows."""
_VERDICT_ROLES = {"▲": "pass", "▼": "fail"}


class KernelTable(Panel):
    """A header and the rows around the selected one."""

    panel: ClassVar[PanelName] = "kernels"
    _first = 0
    page = 1

    def title(self, frame: Frame) -> str:
        """How many kernels, how fast, and what was lost."""
        if frame.view is None:
            return "kernels"
        import numpy as np

        from roofmon.model.table import Column
        from roofmon.view import explained_text, tracing_cost

        view = frame.view
        parts = [f"{len(view.order):,} of {len(view.table):,}"]
        rates = view.table.column(Column.LAUNCH_RATE)
        if np.isfinite(rates).any():
            parts.append(f"{significant(float(np.nansum(rates)))} launches/s")
        parts.append(f"{view.snapshot.dropped:,} dropped")
        parts += filter(None, [tracing_cost(view.snapshot), explained_text(view.traffic)])
        return f"kernels ─ {' · '.join(parts)}"

    def note(self, frame: Frame) -> str:
        """What the rows are sorted by."""
        if frame.view is None:
            return ""
        state = frame.view.state
        return f"sort: {state.sort} {'▲' if state.reverse else '▼'}"

    def columns(self) -> "tuple[TableColumn, ...]":
        """The columns that fit now."""
        from roofmon.view import columns_for

        width = self.size.width - (2 if self.framed else 0)
        view = self.shown.view
        return columns_for(width - 2, bool(view and view.comparison))

    def content(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """Header and rows, or what to do when there are none."""
        view = frame.view
        if view is None:
            return []
        columns = self.columns()
        above = list(strip_line(view, width)) if height >= _STRIP_FROM else []
        below = list(self._untraced(view, columns, height - len(above)))
        height -= len(above) + len(below)
        self.page = max(1, height - 1)
        header = _header(view, columns, width)
        if not view.row_count:
            return [*above, header, (), *wrapped(view.message, width - 2, "message", "  ")]
        self._keep_in_sight(view)
        last = min(view.row_count, self._first + self.page)
        rows = [self._row(view, at, columns, width) for at in range(self._first, last)]
        if view.message:
            rows[-1:] = [[(f"  {view.message}", "warning")]]
        rows += [()] * (self.page - len(rows)) if below else []
        return [*above, header, *rows, *below]

    def _keep_in_sight(self, view: "View") -> None:
        selected = view.selected_position or 0
        furthest = max(0, view.row_count - self.page)
        # Below the last kernel come those that are gone, which cannot be selected: show them with it.
        at_end = selected == len(view.order) - 1
        lowest = furthest if at_end else selected - self.page + 1
        self._first = min(max(self._first, lowest, 0), selected, furthest)

    def _untraced(
        self, view: "View", columns: "Sequence[TableColumn]", height: int
    ) -> Iterator[Line]:
        """The row of what nothing traced moved, always in sight; in a small table only if it is much."""
        from roofmon.view import COLUMN_GAP, untraced, untraced_cells

        traffic = untraced(view)
        if traffic is None or not view.row_count:
            return
        if height < _STRIP_FROM and not traffic.much_untraced:
            return
        texts = zip(columns, untraced_cells(traffic, columns), strict=True)
        role = "warning" if traffic.much_untraced else "muted"
        yield [(" " + (" " * COLUMN_GAP).join(_aligned(text, c) for c, text in texts), role)]

    def _row(
        self, view: "View", position: int, columns: "Sequence[TableColumn]", width: int
    ) -> Line:
        from roofmon.view import COLUMN_GAP, row_cells

        selected = position == view.selected_position
        row = int(view.order[position]) if position < len(view.order) else None
        lead, pieces = "▸" if selected else " ", list[Piece]()
        for column, cell in zip(columns, row_cells(view, position, columns), strict=True):
            text = cell
            if column.id == "mark" and row is not None:
                text = names.kernel_mark(view, row, self.palette.unicode)
            pieces.append((lead + _aligned(text, column), _role(view, row, column.id, cell)))
            lead = " " * COLUMN_GAP
        if selected:
            used = sum(cells(text) for text, _ in pieces)
            pieces.append((" " * (width - used), ""))
            return [(text, f"{role}@selection") for text, role in pieces]
        return pieces


def _header(view: "View", columns: "Sequence[TableColumn]", width: int) -> Line:
    from roofmon.view import COLUMN_GAP

    pieces: list[Piece] = [(" ", "muted")]
    arrow = "▲" if view.state.reverse else "▼"
    for column in columns:
        title, role = column.title, "muted"
        if column.id == view.state.sort:
            # The arrow takes the gap where the column is as narrow as its title.
            title, role = f"{title}{arrow}", "title"
        over = max(0, len(title) - column.width)
        text = _aligned(title, column) if not over else title
        pieces += [(text, role), (" " * (COLUMN_GAP - over), "muted")]
    return pieces[:-1]


def _aligned(text: str, column: "TableColumn") -> str:
    text = fitted(text, column.width)
    return text.rstrip().rjust(column.width) if column.align == "right" else text


def _role(view: "View", row: int | None, column: str, cell: str) -> str:
    """Colour repeats what the cell says, and stands right of what changes at each tick: every change of
    style before that costs 40 bytes a row."""
    if row is None:
        return "muted"
    if column == "bound":
        return f"point.{view.positions.class_of(row).name.lower()}"
    if column == "verdict":
        return _VERDICT_ROLES.get(cell[:1], "")
    if column == "flag":
        return {">": "error", "!": "warning"}.get(cell, "pass")
    return ""
