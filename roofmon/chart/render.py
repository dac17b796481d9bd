"""A plan, written cell by cell: grid, lines, labels and marks, each over the one before."""

from collections.abc import Hashable

from roofmon.chart.canvas import BLANK, GRID, LABEL, LINE, POINT, Canvas, Sheet, Undrawn
from roofmon.chart.glyphs import braille_to_ascii, clean, glyphs
from roofmon.chart.labels import place_label
from roofmon.chart.plan import AXIS_ROWS, LEAST_HEIGHT, LEAST_WIDTH, Plan, plan
from roofmon.chart.plane import DOT_COLUMNS, DOT_ROWS, draw
from roofmon.chart.scene import Scene


def render(scene: Scene, width: int, height: int) -> Canvas:
    """The chart of `scene` in `width` × `height` cells.

    Takes any numbers (what cannot be drawn is listed in `Canvas.undrawn`) and any size; below
    20 × 5 there is only a message. The first call imports plotext (0.3 s).
    """
    return _paint(plan(scene, width, height))


def cell_key(scene: Scene, width: int, height: int) -> Hashable:
    """A key that is equal for scenes whose charts are equal cell by cell.

    Costs a small part of a render and does not import plotext.
    """
    return plan(scene, width, height)


def _paint(chart: Plan) -> Canvas:
    if not chart.gutter:
        return _paint_message_only(chart)
    sheet = Sheet(chart.width, chart.height, chart.gutter, AXIS_ROWS)
    _write_ridge(chart, sheet)
    for row, pieces in enumerate(draw(chart.strokes, sheet.columns, sheet.rows, chart.unicode)):
        column = 0
        for text, role in pieces:
            if role:
                line = text if chart.unicode else braille_to_ascii(text)
                sheet.write(row, column, line, role, LINE)
            column += len(text)
    for mark in chart.marks:
        sheet.write(mark.row, mark.column, mark.character, mark.role, POINT)
    _write_axes(chart, sheet)
    _write_message(chart, sheet)
    unplaced = [label for label in chart.labels if label.texts and not place_label(label, sheet)]
    return sheet.freeze(
        {label: (row, column + chart.gutter) for label, (row, column) in chart.point_cells},
        (*chart.undrawn, *(Undrawn(label.texts[0], "no room for its label") for label in unplaced)),
    )


def _write_ridge(chart: Plan, sheet: Sheet) -> None:
    if chart.ridge:
        column = chart.ridge.x0 // DOT_COLUMNS
        for row in range(chart.ridge.y0 // DOT_ROWS + 1, sheet.rows):
            sheet.write(row, column, glyphs(chart.unicode).ridge_line, "ridge", GRID)


def _write_axes(chart: Plan, sheet: Sheet) -> None:
    signs = glyphs(chart.unicode)
    for row in range(sheet.rows):
        sheet.write(row, -1, signs.vertical, "axis")
    for row, text in chart.y_ticks:
        sheet.write(row, -1, signs.y_tick, "axis")
        sheet.write(row, -2 - len(text), text, "tick")
    # The unit stands over the numbers, or beside the topmost one where that is in its place.
    beside = any(row == 0 for row, _ in chart.y_ticks)
    if not beside:
        sheet.write(0, -len("FLOP/s"), "FLOP/s", "unit")
    elif sheet.highest_layer(0, 0, len("FLOP/s") + 2) == BLANK:
        sheet.write(0, 1, "FLOP/s", "unit")
    axis = sheet.rows
    sheet.write(axis, -1, signs.corner + signs.horizontal * sheet.columns, "axis")
    ridge = chart.ridge.x0 // DOT_COLUMNS if chart.ridge else None
    if ridge is not None:
        sheet.write(axis, ridge, signs.ridge_tick, "axis")
    for column, _ in chart.x_ticks:
        sheet.write(axis, column, signs.crossing if column == ridge else signs.x_tick, "axis")
    _write_intensities(chart, sheet, axis + 1)


def _write_intensities(chart: Plan, sheet: Sheet, row: int) -> None:
    """The numbers and, at the right end, their unit: a number in its place gives way."""
    labels = [(column - (len(text) - 1) // 2, text) for column, text in chart.x_ticks]
    end = max((start + len(text) for start, text in labels), default=0)
    unit = "FLOP/byte" if end < sheet.columns - len("FLOP/byte") else "F/B"
    sheet.write(row, sheet.columns - len(unit), unit, "unit")
    for start, text in labels:
        if sheet.highest_layer(row, start, start + len(text) + 1) == BLANK:
            sheet.write(row, start, text, "tick")


def _write_message(chart: Plan, sheet: Sheet) -> None:
    if not chart.message:
        return
    text = f" {chart.message} "[: sheet.columns]
    start = (sheet.columns - len(text)) // 2
    rows = sorted(range(sheet.rows), key=lambda row: abs(row - sheet.rows // 2))
    free = (row for row in rows if sheet.highest_layer(row, start, start + len(text)) < LABEL)
    sheet.write(next(free, rows[0]), start, text, "message")


def _paint_message_only(chart: Plan) -> Canvas:
    sheet = Sheet(chart.width, chart.height)
    times = clean("×", chart.unicode)
    texts = [chart.message, f"chart needs {LEAST_WIDTH}{times}{LEAST_HEIGHT}", "too small"]
    text = next((text for text in texts if text and len(text) <= chart.width), "")
    if text and chart.height:
        start = (chart.width - len(text)) // 2
        sheet.write(chart.height // 2, start, text, "message")
    return sheet.freeze({}, ())
