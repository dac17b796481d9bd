"""Where labels go: beside their lines, in free cells, never over a point or another label.

plotext drops a text that does not fit and lets texts overwrite each other, so labels are placed
here, over the finished lines. Each kind of label has its places in order of preference: those that
cover nothing before those that cover a piece of a line.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from roofmon.chart.canvas import BLANK, LABEL, LINE, Sheet
from roofmon.chart.plane import DOT_COLUMNS, DOT_ROWS, Line

_LEAST_LINE_CELLS = 3
"""So much of a flat roof stays visible left of its label."""

Place = tuple[int, int, int]
"""Row, first column, and the most important layer that a label there may cover."""


class Label(NamedTuple):
    """A text near a line of the plane: the first of `texts` that finds room is written.

    `kind`: "flat" for a compute roof, labelled at its right end; "slanted" for a bandwidth roof,
    labelled along it; "ridge" for the line down from a ridge point, labelled beside it. `above`
    says on which side of the roof its label belongs.
    """

    kind: Literal["flat", "slanted", "ridge"]
    texts: tuple[str, ...]
    role: str
    line: Line
    above: bool = False


def place_label(label: Label, sheet: Sheet) -> bool:
    """Write `label` on the sheet; False where none of its texts finds room."""
    for text in label.texts:
        for row, start, layer in _places(label, len(text), sheet):
            stop = start + len(text)
            if not (0 <= row < sheet.rows and start >= 0 and stop <= sheet.columns):
                continue
            if sheet.highest_layer(row, start - 1, stop + 1) > layer:
                continue
            if layer == LINE:
                # A line that is interrupted keeps a cell's distance from the text.
                first, last = max(0, start - 1), min(sheet.columns, stop + 1)
                sheet.write(row, first, " " * (last - first), "", BLANK)
            sheet.write(row, start, text, label.role, LABEL)
            return True
    return False


def _places(label: Label, width: int, sheet: Sheet) -> Iterator[Place]:
    if label.kind == "flat":
        return _places_at_right_end(label, width, sheet.columns)
    if label.kind == "ridge":
        return _places_beside(label.line, width)
    return _places_along(label, width)


def _places_at_right_end(label: Label, width: int, columns: int) -> Iterator[Place]:
    row = label.line.y0 // DOT_ROWS
    right = columns - width - 1
    least = label.line.x0 // DOT_COLUMNS + _LEAST_LINE_CELLS
    if right >= least:
        yield row, right, LINE
    yield row + (-1 if label.above else 1), right, BLANK
    yield from ((row, start, LINE) for start in range(right - 1, least - 1, -1))
    yield from ((row, start, LINE) for start in range(min(right, least), -1, -1))
    yield from ((row + step, right, LINE) for step in (-1, 1, -2, 2))


def _places_along(label: Label, width: int) -> Iterator[Place]:
    line = label.line
    middle = (line.y0 + line.y1) / 2 / DOT_ROWS
    extents = [
        (row, *_columns_in_row(line, row))
        for row in range(line.y1 // DOT_ROWS, line.y0 // DOT_ROWS + 1)
    ]
    extents.sort(key=lambda extent: abs(extent[0] + 0.5 - middle))
    left = [(row, first - 1 - width) for row, first, _ in extents]
    right = [(row, last + 2) for row, _, last in extents]
    sides = (left, right) if label.above else (right, left)
    for side in sides:
        yield from ((row, start, BLANK) for row, start in side)
    yield from ((row, (first + last - width) // 2, LINE) for row, first, last in extents)
    for side in sides:
        yield from ((row, start, LINE) for row, start in side)


def _places_beside(line: Line, width: int) -> Iterator[Place]:
    column = line.x0 // DOT_COLUMNS
    middle = (line.y0 + line.y1) / 2 / DOT_ROWS
    rows = sorted(
        range(line.y0 // DOT_ROWS + 1, line.y1 // DOT_ROWS + 1),
        key=lambda row: abs(row + 0.5 - middle),
    )
    for start in (column + 2, column - 1 - width):
        yield from ((row, start, BLANK) for row in rows)


def _columns_in_row(line: Line, row: int) -> tuple[int, int]:
    """The first and the last column where a rising line passes through a row of cells."""
    if line.y0 == line.y1:
        return line.x0 // DOT_COLUMNS, line.x1 // DOT_COLUMNS
    slope = (line.x1 - line.x0) / (line.y0 - line.y1)
    # The second stroke of a heavy line is a dot above or below the first.
    margin = 1.5 if line.heavy else 0.5
    low = min(float(line.y0), (row + 1) * DOT_ROWS - 1 + margin)
    high = max(float(line.y1), row * DOT_ROWS - margin)
    first, last = (line.x0 + (line.y0 - y) * slope for y in (low, high))
    return int(first) // DOT_COLUMNS, int(last) // DOT_COLUMNS
