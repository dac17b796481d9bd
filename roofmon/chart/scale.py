"""Where an intensity and a FLOP/s, as logarithms, fall in a plane of cells and braille dots."""

import math
from typing import NamedTuple

from roofmon.chart.plane import DOT_COLUMNS, DOT_ROWS
from roofmon.chart.window import Bounds


class Scale(NamedTuple):
    """A window over a plane of `columns` × `rows` cells; all coordinates are log10."""

    bounds: Bounds
    columns: int
    rows: int

    def holds(self, x: float, y: float) -> bool:
        """Whether a place is inside the window, edges included."""
        x_low, x_high, y_low, y_high = self.bounds
        return x_low <= x <= x_high and y_low <= y <= y_high

    def dot(self, x: float, y: float) -> tuple[int, int]:
        """The dot (across, down) from the top left; places outside give the nearest one."""
        x_low, x_high, y_low, y_high = self.bounds
        across, down = self.columns * DOT_COLUMNS, self.rows * DOT_ROWS
        dot_x = math.floor((x - x_low) / (x_high - x_low) * across)
        dot_y = math.floor((y_high - y) / (y_high - y_low) * down)
        return min(across - 1, max(0, dot_x)), min(down - 1, max(0, dot_y))

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """The cell (row, column) from the top left."""
        dot_x, dot_y = self.dot(x, y)
        return dot_y // DOT_ROWS, dot_x // DOT_COLUMNS

    def dot_rows(self, decades: float) -> float:
        """How many dots high so many decades of FLOP/s are."""
        return decades / (self.bounds.y_high - self.bounds.y_low) * self.rows * DOT_ROWS

    def clip(
        self, x0: float, y0: float, x1: float, y1: float
    ) -> tuple[float, float, float, float] | None:
        """The part of a segment inside the window (Liang–Barsky), or None."""
        x_low, x_high, y_low, y_high = self.bounds
        enter, leave = 0.0, 1.0
        for start, step, low, high in (
            (x0, x1 - x0, x_low, x_high),
            (y0, y1 - y0, y_low, y_high),
        ):
            if step == 0:
                if not low <= start <= high:
                    return None
                continue
            first, last = sorted(((low - start) / step, (high - start) / step))
            enter, leave = max(enter, first), min(leave, last)
        if enter > leave:
            return None
        return (
            x0 + (x1 - x0) * enter,
            y0 + (y1 - y0) * enter,
            x0 + (x1 - x0) * leave,
            y0 + (y1 - y0) * leave,
        )
