"""A scene at a given size, rounded to cells and braille dots.

The plan is all that the drawing depends on: scenes with equal plans give equal pictures, so that a
plan is also the key by which an unchanged chart is left alone. It needs no plotext.
"""

from typing import NamedTuple

from roofmon.chart.canvas import Undrawn
from roofmon.chart.glyphs import clean
from roofmon.chart.labels import Label
from roofmon.chart.marks import Cell, Mark, lay_arrows, lay_points, lay_trails
from roofmon.chart.plane import Dots, Line
from roofmon.chart.roofs import lay_roofs
from roofmon.chart.scale import Scale
from roofmon.chart.scene import Scene
from roofmon.chart.window import DEFAULT_BOUNDS, auto_window, bounds_of, ticks

LEAST_WIDTH, LEAST_HEIGHT = 20, 5
"""The least size for axes and a plane; below it there is only a message."""

AXIS_ROWS = 2
"""The intensity axis and its numbers, below the plane."""

_LEAST_GUTTER = len("100T |")


class Plan(NamedTuple):
    """Cells are counted from the top left of the plane, which begins right of the gutter."""

    width: int
    height: int
    unicode: bool
    message: str
    gutter: int = 0
    x_ticks: tuple[tuple[int, str], ...] = ()
    y_ticks: tuple[tuple[int, str], ...] = ()
    ridge: Line | None = None
    strokes: tuple[Line | Dots, ...] = ()
    marks: tuple[Mark, ...] = ()
    labels: tuple[Label, ...] = ()
    point_cells: tuple[tuple[str, Cell], ...] = ()
    undrawn: tuple[Undrawn, ...] = ()


def plan(scene: Scene, width: int, height: int) -> Plan:
    """The plan of `scene` for `width` × `height` cells. Takes any numbers and never raises."""
    message = clean(scene.message or "", scene.unicode)
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Plan(max(0, width), max(0, height), scene.unicode, message)
    bounds = (
        bounds_of(scene.window)
        or bounds_of(auto_window(scene.roofs, scene.points))
        or DEFAULT_BOUNDS  # roofs of 1e-300 byte/s have their ridge beyond any window
    )
    rows = height - AXIS_ROWS
    y_ticks = ticks(bounds.y_low, bounds.y_high, rows, gap=2)
    widest = max((len(text) for _, text in y_ticks), default=0)
    gutter = min(width // 2, max(_LEAST_GUTTER, widest + 2))
    scale = Scale(bounds, width - gutter, rows)
    x_ticks = ticks(bounds.x_low, bounds.x_high, scale.columns, gap=7)
    roofs = lay_roofs(scene, scale)
    points = lay_points(scene, scale)
    arrows, arrow_marks = lay_arrows(scene, scale, {cell for _, cell in points.cells})
    return Plan(
        width,
        height,
        scene.unicode,
        message,
        gutter,
        tuple((scale.cell(log, bounds.y_low)[1], text) for log, text in x_ticks),
        tuple((scale.cell(bounds.x_low, log)[0], text) for log, text in y_ticks),
        roofs.ridge,
        (*roofs.lines, *lay_trails(scene, scale), *arrows),
        (*arrow_marks, *points.marks),
        tuple(roofs.labels),
        tuple(points.cells),
        (*roofs.undrawn, *points.undrawn),
    )
