"""The adapter to plotext: lines in, rows of braille cells and their roles out.

plotext does the drawing of lines into braille dots and the merging of those that cross; nothing
else of it is used. What makes it safe (each learnt from a crash or a wrong picture of 6.1):

- a figure of our own per drawing, on a terminal object of our own without size limits: the
  module's own figure breaks when two threads share it;
- linear axes with limits equal to the cells, so that a coordinate here is the cell it falls in;
- only finite coordinates inside the limits: others abort the process;
- one colour per role, from which the role is read back.

Importing plotext takes 0.3 s: it happens at the first drawing, after the first frame is painted.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from roofmon.chart.scene import LineKind

DOT_COLUMNS, DOT_ROWS = 2, 4
"""Braille dots in a cell, across and down."""

_DASHES = {"dashed": (6, 4), "dotted": (1, 3)}
_ASCII_DASHES = {"dashed": (6, 4), "dotted": (2, 2)}
_STYLED = re.compile(r"\x1b\[0m(?:\x1b\[38;2;(\d+);(\d+);(\d+)m)?([^\x1b\n]+)")


class Line(NamedTuple):
    """A straight line between two braille dots, counted from the top left of the plane."""

    x0: int
    y0: int
    x1: int
    y1: int
    kind: LineKind
    role: str
    heavy: bool = False


class Dots(NamedTuple):
    """Single braille dots, counted from the top left of the plane."""

    places: tuple[tuple[int, int], ...]
    role: str


def draw(
    strokes: Sequence[Line | Dots], width: int, height: int, unicode: bool
) -> list[list[tuple[str, str]]]:
    """Rows of a plane of `width` × `height` cells as (text, role) pieces, "" being no line.

    All dots must lie inside the plane. Later strokes colour the cells that they share.
    """
    plotext: Any = import_module("plotext")
    terminal = type(plotext.terminal)()
    terminal.limit(False, False)
    figure = type(plotext.figure)(terminal)
    figure.plot_size(width, height).axes(False).canvas("default")
    for axis, cells in (("x", width), ("y", height)):
        figure.ruler(axis).lim(0, cells).alignment(lim="edge").frequency(0)
    roles = list(dict.fromkeys(stroke.role for stroke in strokes))
    for stroke in strokes:
        number = roles.index(stroke.role) + 1
        colour = (number >> 16 & 255, number >> 8 & 255, number & 255)
        marker = plotext.marker("braille", pixel=plotext.pixel(foreground=colour))
        dots, joints = _dots(stroke, height, unicode)
        xs = [(x + 0.5) / DOT_COLUMNS for x, _ in dots]
        ys = [height - (y + 0.5) / DOT_ROWS for _, y in dots]
        signal = figure.signal(xs, ys, marker=marker)
        for joint in joints:
            signal.line(joint)
        figure.draw(signal)
    return [list(_pieces(row, roles)) for row in figure.build().string().split("\n")[:height]]


def _pieces(row: str, roles: Sequence[str]) -> Iterator[tuple[str, str]]:
    for red, green, blue, text in _STYLED.findall(row):
        number = (int(red) << 16 | int(green) << 8 | int(blue)) if red else 0
        yield text, roles[number - 1] if number else ""


def _dots(
    stroke: Line | Dots, height: int, unicode: bool
) -> tuple[list[tuple[float, float]], list[int]]:
    """The dots of a stroke, and the indices of those that are joined to the one before."""
    if isinstance(stroke, Dots):
        return list(stroke.places), []
    line = stroke
    dots: list[tuple[float, float]] = []
    joints: list[int] = []
    for shift in (0, _heavy_shift(line, height)) if line.heavy else (0,):
        start, end = (line.x0, line.y0 + shift), (line.x1, line.y1 + shift)
        for first, last in _dashes(line.kind, line.x1 - line.x0, unicode):
            dots.append(_between(start, end, first))
            if last > first:
                joints.append(len(dots))
                dots.append(_between(start, end, last))
    return dots, joints


def _heavy_shift(line: Line, height: int) -> int:
    """By how many dots down the second stroke of a heavy line lies: in the same cells if flat."""
    fits_below = max(line.y0, line.y1) + 1 < height * DOT_ROWS
    fits_above = min(line.y0, line.y1) > 0
    same_cells = line.y0 != line.y1 or line.y0 % DOT_ROWS < DOT_ROWS - 1
    if fits_below and (same_cells or not fits_above):
        return 1
    return -1 if fits_above else 0


def _dashes(kind: LineKind, length: int, unicode: bool) -> Iterable[tuple[float, float]]:
    """The drawn stretches of a line, as fractions of its length in dots across."""
    if kind == "solid" or length < 2:
        return ((0.0, 1.0),)
    on, off = (_DASHES if unicode else _ASCII_DASHES)[kind]
    return (
        (start / length, min(length, start + on - 1) / length)
        for start in range(0, length + 1, on + off)
    )


def _between(start: tuple[int, int], end: tuple[int, int], at: float) -> tuple[float, float]:
    return start[0] + (end[0] - start[0]) * at, start[1] + (end[1] - start[1]) * at
