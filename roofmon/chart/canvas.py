"""The finished chart, and the sheet of cells that it is written on."""

from typing import NamedTuple

Run = tuple[int, int, str]
"""The cells from start up to stop of one row, and their role; "" is plain background."""

BLANK, GRID, LINE, LABEL, POINT = range(5)
"""What can hold a cell, from the least to the most important."""


class Undrawn(NamedTuple):
    """Something of the scene that is not in the picture, and why."""

    label: str
    reason: str


class Canvas(NamedTuple):
    """A rendered chart: `height` rows of exactly `width` characters, each one cell wide.

    `roles` holds for each row the runs that cover it from 0 to `width`. `point_cells` gives the
    (row, column) of each drawn point by its label, also where several share a cell.
    """

    width: int
    height: int
    characters: tuple[str, ...]
    roles: tuple[tuple[Run, ...], ...]
    point_cells: dict[str, tuple[int, int]]
    undrawn: tuple[Undrawn, ...]


class Sheet:
    """Cells that are written one layer after the other.

    Cells are counted from the top left of the plane, which is `columns` × `rows` cells. Left of it
    is a gutter with negative columns, below it are further rows. Each cell remembers what holds
    it, by which labels find their room.
    """

    def __init__(self, width: int, height: int, gutter: int = 0, rows_below: int = 0) -> None:
        self.columns = width - gutter
        self.rows = height - rows_below
        self._gutter = gutter
        self._width = width
        self._characters = [[" "] * width for _ in range(height)]
        self._roles = [[""] * width for _ in range(height)]
        self._layers = [bytearray(width) for _ in range(height)]

    def write(self, row: int, column: int, text: str, role: str, layer: int = LABEL) -> None:
        """Write `text` from (row, column) on, cut off at the edges of the sheet."""
        start = column + self._gutter
        text = text[max(0, -start) : max(0, self._width - start)]
        start = max(0, start)
        stop = start + len(text)
        self._characters[row][start:stop] = text
        self._roles[row][start:stop] = [role] * len(text)
        self._layers[row][start:stop] = bytes([layer]) * len(text)

    def highest_layer(self, row: int, start: int, stop: int) -> int:
        """The most important of what holds the columns from `start` up to `stop` of a row."""
        first, last = max(0, start + self._gutter), max(0, stop + self._gutter)
        return max(self._layers[row][first:last], default=BLANK)

    def freeze(
        self, point_cells: dict[str, tuple[int, int]], undrawn: tuple[Undrawn, ...]
    ) -> Canvas:
        """The sheet as a canvas; `point_cells` are counted from its own top left corner."""
        return Canvas(
            self._width,
            len(self._characters),
            tuple("".join(row) for row in self._characters),
            tuple(_runs(row) for row in self._roles),
            point_cells,
            undrawn,
        )


def _runs(roles: list[str]) -> tuple[Run, ...]:
    runs: list[Run] = []
    start = 0
    for column in range(1, len(roles) + 1):
        if column == len(roles) or roles[column] != roles[start]:
            runs.append((start, column, roles[start]))
            start = column
    return tuple(runs)
