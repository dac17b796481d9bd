"""The columns of the kernel table as data: which fit a width, the cells of a row, the order of a sort.

Cells are made for the rows on the screen only; sort keys are arrays over all kernels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from roofmon.compare import Verdict
from roofmon.model.table import Array, Column
from roofmon.units import duration
from roofmon.view import cells
from roofmon.view.state import View

COLUMN_GAP = 2
"""Cells between two columns."""

_LEAST_NAME = 28
"""The kernel's name keeps this width before a further column is shown."""


@dataclass(frozen=True)
class TableColumn:
    """One column: `priority` 0 is always shown, higher ones only where the width allows.

    `cell` makes the text of one row. `key` gives the values to sort by (numbers, the largest first, or
    texts, from A on); None for columns that cannot be sorted by.
    """

    id: str
    title: str
    width: int
    align: Literal["left", "right"]
    priority: int
    cell: Callable[[View, int], str]
    key: Callable[[View], Array | list[str]] | None = None


def columns_for(width: int, difference: bool = False) -> tuple[TableColumn, ...]:
    """The columns that fit `width` cells with COLUMN_GAP between them; the name takes what is left."""
    candidates = _DIFFERENCE if difference else _COLUMNS
    chosen: list[TableColumn] = []
    used = -COLUMN_GAP
    for column in sorted(candidates, key=lambda c: c.priority):
        used += column.width + COLUMN_GAP
        if column.priority and used > width:
            break
        chosen.append(column)
    others = sum(c.width + COLUMN_GAP for c in chosen if c.id != _NAME.id)
    name = replace(_NAME, width=max(1, width - others))
    return tuple(name if c.id == _NAME.id else c for c in candidates if c in chosen)


def sortable_columns(columns: Sequence[TableColumn]) -> tuple[str, ...]:
    """The ids of those columns that can be sorted by, from left to right."""
    return tuple(c.id for c in columns if c.key)


def row_cells(view: View, position: int, columns: Sequence[TableColumn]) -> list[str]:
    """The texts of one row of the table, neither padded nor cut.

    Raises IndexError for a position outside 0 … `view.row_count` − 1.
    """
    if position >= len(view.order):
        return _gone_cells(view, position - len(view.order), columns)
    row = int(view.order[position])
    return [column.cell(view, row) for column in columns]


def sort_rows(view: View) -> NDArray[np.int64]:
    """The rows of `view.order` sorted as the state says, unknown values last; equal ones stay put."""
    rows = view.order
    column = next((c for c in (*_COLUMNS, *_DIFFERENCE) if c.id == view.state.sort), None)
    keys = column.key(view) if column and column.key else view.table.time_share
    if isinstance(keys, list):
        ordered = sorted(rows.tolist(), key=keys.__getitem__, reverse=view.state.reverse)
        return np.array(ordered, dtype=np.int64)
    values = keys[rows] if view.state.reverse else -keys[rows]
    return rows[np.argsort(values, kind="stable")]


def _gone_cells(view: View, index: int, columns: Sequence[TableColumn]) -> list[str]:
    assert view.comparison is not None
    kernels = view.comparison.before.kernels
    row = view.gone[index]
    known = {
        "kernel": kernels.descriptions[row].name,
        "before": duration(float(kernels.column(Column.MEDIAN_NS)[row])),
        "verdict": Verdict.GONE.value,
    }
    return [known.get(column.id, "") for column in columns]


def _time(id_: str, title: str, priority: int, column: Column) -> TableColumn:
    cell = partial(cells.time_in, column=column)
    return TableColumn(id_, title, 8, "right", priority, cell, lambda v: v.table.column(column))


_NUMBER = TableColumn("mark", "#", 2, "left", 0, cells.mark)
_NAME = TableColumn("kernel", "kernel", _LEAST_NAME, "left", 0, cells.name, cells.names)
_SHARE = TableColumn("time", "time %", 6, "right", 0, cells.share, lambda v: v.table.time_share)
_FRACTION = TableColumn(
    "fraction", "of roof", 7, "right", 0, cells.fraction, lambda v: v.positions.fraction
)

_COLUMNS: tuple[TableColumn, ...] = (
    _NUMBER,
    _NAME,
    _SHARE,
    _time("median", "median", 2, Column.MEDIAN_NS),
    TableColumn(
        "launches",
        "launches",
        8,
        "right",
        5,
        cells.launches,
        lambda v: v.table.column(Column.LAUNCHES),
    ),
    TableColumn("bandwidth", "GB/s", 6, "right", 3, cells.bandwidth, lambda v: v.at_level.achieved),
    TableColumn("flops", "FLOP/s", 6, "right", 4, cells.flops, lambda v: v.positions.flops),
    TableColumn(
        "intensity", "FLOP/byte", 9, "right", 6, cells.intensity, lambda v: v.at_level.intensity
    ),
    TableColumn("roof", "roof", 6, "left", 7, cells.roof),
    _FRACTION,
    TableColumn("bound", "bound", 7, "left", 0, cells.bound, cells.bounds),
    TableColumn("flag", "", 1, "left", 1, cells.flag),
    TableColumn("level", "level", 6, "left", 8, cells.level),
    TableColumn(
        "variation",
        "variation",
        9,
        "right",
        9,
        cells.variation,
        lambda v: v.table.column(Column.CV),
    ),
    TableColumn("spread", "p05–p95", 17, "right", 10, cells.spread),
    _time("gap", "gap", 11, Column.GAP_NS),
    TableColumn("source", "work from", 17, "left", 12, cells.source),
)

_DIFFERENCE: tuple[TableColumn, ...] = (
    _NUMBER,
    replace(_NAME, width=18),
    replace(_SHARE, priority=4),
    TableColumn("before", "before", 8, "right", 2, cells.before),
    _time("median", "after", 1, Column.MEDIAN_NS),
    TableColumn("ratio", "ratio", 21, "left", 0, cells.ratio, cells.ratios),
    TableColumn("verdict", "verdict", 16, "left", 0, cells.verdict),
    replace(_FRACTION, priority=3),
)
