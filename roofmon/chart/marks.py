"""What moves on the plane: the marks of kernels, their trails, and arrows from their baselines."""

import math
from collections.abc import Container, Iterator
from typing import NamedTuple

from roofmon.chart.canvas import Undrawn
from roofmon.chart.glyphs import clean, glyphs, mark
from roofmon.chart.plane import DOT_COLUMNS, DOT_ROWS, Dots, Line
from roofmon.chart.scale import Scale
from roofmon.chart.scene import Place, Point, Scene
from roofmon.chart.window import log10_or_none

Cell = tuple[int, int]
"""Row and column, from the top left of the plane."""


class Mark(NamedTuple):
    """A character in one cell of the plane."""

    row: int
    column: int
    character: str
    role: str


class PointLayout(NamedTuple):
    """The marks of the points, the cell of each point, and the points without one."""

    marks: list[Mark]
    cells: list[tuple[str, Cell]]
    undrawn: list[Undrawn]


def lay_points(scene: Scene, scale: Scale) -> PointLayout:
    """One mark a cell; a cell of several points shows the selected one, else a shared mark."""
    signs = glyphs(scene.unicode)
    layout = PointLayout([], [], [])
    sharing: dict[Cell, list[Point]] = {}
    for point in scene.points:
        label = clean(point.label, scene.unicode)
        x, y = log10_or_none(point.intensity), log10_or_none(point.flops)
        if x is None or y is None:
            unknown = "FLOP/s" if y is None else "intensity"
            layout.undrawn.append(Undrawn(label, f"its {unknown} is unknown"))
        elif not scale.holds(x, y):
            layout.undrawn.append(Undrawn(label, "outside the window"))
        else:
            cell = scale.cell(x, y)
            layout.cells.append((point.label, cell))
            sharing.setdefault(cell, []).append(point)
    for (row, column), points in sharing.items():
        selected = next((point for point in points if point.selected), None)
        if selected:
            # Told by shape as well as by role: the mark stands between two pointers.
            for side, sign in ((column - 1, signs.left), (column + 1, signs.right)):
                if (row, side) not in sharing and 0 <= side < scale.columns:
                    layout.marks.append(Mark(row, side, sign, "point.selected"))
            character, role = mark(selected.label, scene.unicode), "point.selected"
        elif len(points) == 1:
            character, role = mark(points[0].label, scene.unicode), points[0].role
        else:
            character, role = signs.many, points[0].role
        layout.marks.append(Mark(row, column, character, role))
    return layout


def lay_trails(scene: Scene, scale: Scale) -> list[Dots]:
    """The dots of each trail."""
    trails: list[Dots] = []
    for trail in scene.trails:
        dots = dict.fromkeys(
            scale.dot(*place) for place in map(_logs, trail.points) if place and scale.holds(*place)
        )
        if dots:
            trails.append(Dots(tuple(dots), trail.role))
    return trails


def lay_arrows(scene: Scene, scale: Scale, taken: Container[Cell]) -> tuple[list[Line], list[Mark]]:
    """Shafts, and the signs at their ends; a way within one cell is none.

    `taken` are the cells of points.
    """
    lines: list[Line] = []
    marks: list[Mark] = []
    signs = glyphs(scene.unicode)
    for arrow in scene.arrows:
        start, end = _logs(arrow.start), _logs(arrow.end)
        part = scale.clip(*start, *end) if start and end else None
        if start is None or end is None or part is None:
            continue
        line = Line(*scale.dot(*part[:2]), *scale.dot(*part[2:]), "solid", arrow.role)
        cells = list(dict.fromkeys(_cells(line)))
        if len(cells) < 2:
            continue
        lines.append(line)
        if scale.holds(*start):
            marks.append(Mark(*cells[0], signs.before, arrow.role))
        # The point itself stands at the end: the head goes to the cell before it.
        head = cells[-2] if cells[-1] in taken else cells[-1]
        if scale.holds(*end) and head != cells[0]:
            angle = math.atan2(line.y0 - line.y1, line.x1 - line.x0)
            sign = signs.heads[round(angle / (math.pi / 4)) % 8]
            marks.append(Mark(*head, sign, arrow.role))
    return lines, marks


def _logs(place: Place) -> tuple[float, float] | None:
    x, y = log10_or_none(place[0]), log10_or_none(place[1])
    return None if x is None or y is None else (x, y)


def _cells(line: Line) -> Iterator[Cell]:
    steps = max(abs(line.x1 - line.x0), abs(line.y1 - line.y0), 1)
    for step in range(steps + 1):
        x = line.x0 + (line.x1 - line.x0) * step / steps
        y = line.y0 + (line.y1 - line.y0) * step / steps
        yield round(y) // DOT_ROWS, round(x) // DOT_COLUMNS
