"""Kernels as columns: what stays the same is described once, what changes is an array over all kernels.

A snapshot of 5,000 kernels as objects costs 140 ms to decode, as columns under 1 ms; so the table is
columns all the way to the screen, and only the rows that are shown become objects.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roofmon.model.kernel import KernelDescription
from roofmon.model.roofline import REQUESTED
from roofmon.model.work import Provenance, Quantity, WorkKind, rank

Array = NDArray[np.float64]


class Column(IntEnum):
    """Rows of `KernelTable.stats`. Times in ns; NaN where not known."""

    LAUNCHES = 0
    TOTAL_NS = 1
    OUTER_NS = (
        2  # total of the launches that no other region contained: what shares of time add up from
    )
    MEDIAN_NS = 3
    MEDIAN_LOW_NS = 4  # 95 % interval of the median, by ranks
    MEDIAN_HIGH_NS = 5
    P05_NS = 6
    P95_NS = 7
    CV = 8  # standard deviation / mean of the durations
    MIN_NS = 9
    MAX_NS = 10
    GAP_NS = 11  # mean idle time before a launch
    LAST_END_NS = 12  # on the scale of time.time_ns()
    TYPICAL_NS = 13  # what work per launch is divided by, see `KernelTable.typical_ns`
    LAUNCH_RATE = 14  # launches/s over the last tick
    INSIDE_NS = 15  # mean time of kernels inside a pass of a region
    STREAMS = 16  # how many streams it was launched on
    STREAM = 17  # the number of the first of them
    GRAPH_SHARE = 18  # share of the launches that came from CUDA graphs, 0 … 1
    INSIDE_TOTAL_NS = 19  # time of kernels inside all passes of which that is known


@dataclass(frozen=True, eq=False)
class WorkColumn:
    """One quantity of work per launch from one source, over all kernels of a table.

    `key` is a pipe (`tensor/bf16`) for FLOPs and a level (`dram`) for bytes. `values` and `rel_error`
    have shape (n,), NaN where this source does not know. `counts` names what bytes count (see
    `roofline.REQUESTED`): they are only ever compared with a roof that counts the same.
    """

    kind: WorkKind
    key: str
    provenance: Provenance
    values: Array
    rel_error: Array
    upper_bound: bool = False
    counts: str = REQUESTED


@dataclass(frozen=True, eq=False)
class ChosenWork:
    """The best source of one quantity for each kernel, arrays of shape (n,).

    `source` is an index into `columns`, −1 where no source knows.
    """

    key: str
    values: Array
    source: NDArray[np.int64]
    columns: tuple[WorkColumn, ...]

    def counting(self, counts: str) -> Array:
        """The values whose source counts bytes as `counts`, NaN elsewhere, shape (n,)."""
        same = np.array([c.counts == counts for c in self.columns] + [False])
        return np.where(same[self.source], self.values, np.nan)

    def counts_of(self, row: int) -> str:
        """What the bytes of one kernel count; `REQUESTED` where no source knows them."""
        source = int(self.source[row])
        return self.columns[source].counts if source >= 0 else REQUESTED


@dataclass(frozen=True, eq=False)
class KernelTable:
    """All kernels of a snapshot. `stats` has shape (len(Column), n), `descriptions` length n."""

    descriptions: tuple[KernelDescription, ...]
    stats: Array
    work: tuple[WorkColumn, ...] = ()

    def __len__(self) -> int:
        return len(self.descriptions)

    def column(self, column: Column) -> Array:
        """One statistic over all kernels, shape (n,)."""
        values: Array = self.stats[column]
        return values

    @property
    def typical_ns(self) -> Array:
        """The time that stands for one launch, shape (n,): work ÷ this is the achieved rate.

        The median, which a cold first launch does not move; the mean where the work that launches
        declared differs by over 1 %, or was counted, since then only Σ work / Σ time means anything.
        """
        return self.column(Column.TYPICAL_NS)

    @cached_property
    def flops(self) -> dict[str, ChosenWork]:
        """FLOPs per launch by pipe, from the best source for each kernel."""
        return self._choose("flops")

    @cached_property
    def bytes(self) -> dict[str, ChosenWork]:
        """Bytes per launch by level, from the best source for each kernel."""
        return self._choose("bytes")

    def _choose(self, kind: WorkKind) -> dict[str, ChosenWork]:
        by_key: dict[str, list[WorkColumn]] = {}
        for column in self.work:
            if column.kind == kind:
                by_key.setdefault(column.key, []).append(column)
        chosen = {}
        for key, found in by_key.items():
            columns = tuple(sorted(found, key=lambda c: rank(kind, c.provenance)))
            known = np.stack([np.isfinite(c.values) for c in columns])
            source = np.where(known.any(axis=0), known.argmax(axis=0), -1)
            values = np.full(len(self), np.nan)
            for index, column in enumerate(columns):
                values = np.where(source == index, column.values, values)
            chosen[key] = ChosenWork(key, values, source, columns)
        return chosen

    def quantities(self, kind: WorkKind, key: str, row: int) -> list[Quantity]:
        """All sources of one quantity of one kernel, the best first."""
        chosen = (self.flops if kind == "flops" else self.bytes).get(key)
        if chosen is None:
            return []
        return [
            Quantity(
                value=float(c.values[row]),
                provenance=c.provenance,
                rel_error=float(c.rel_error[row]) if np.isfinite(c.rel_error[row]) else None,
                upper_bound=c.upper_bound,
                counts=c.counts,
            )
            for c in chosen.columns
            if np.isfinite(c.values[row])
        ]

    @cached_property
    def regions(self) -> NDArray[np.bool_]:
        """Which rows are regions of a program, not launches on a GPU, shape (n,)."""
        kinds = (d.kind == "region" for d in self.descriptions)
        return np.fromiter(kinds, np.bool_, len(self))

    @cached_property
    def time_share(self) -> Array:
        """Each row's share of all time spent in kernels, shape (n,), 0 … 1; NaN where not known.

        Where kernels are traced the whole is their time. Copies, which run beside kernels, are shown with
        their share of it and not counted in; of a region it is the kernels inside it that have a share.
        Elsewhere the whole is the time of regions that no other one contains, so that nested ones are
        shown with their share but not counted twice.
        """
        n = len(self)
        traced = np.fromiter((d.kind == "kernel" for d in self.descriptions), np.bool_, n)
        outer, mine = self.column(Column.OUTER_NS), self.column(Column.TOTAL_NS)
        if np.nansum(outer[traced]) > 0:
            mine = np.where(self.regions, self.column(Column.INSIDE_TOTAL_NS), mine)
            outer = outer[traced]
        whole = float(np.nansum(outer))
        return mine / whole if whole > 0 else np.full(n, np.nan)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> "KernelTable":
        """The table of some rows, by index or mask, in that order."""
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return KernelTable(
            tuple(self.descriptions[i] for i in index),
            self.stats[:, index],
            tuple(
                replace(c, values=c.values[index], rel_error=c.rel_error[index]) for c in self.work
            ),
        )

    @cached_property
    def row_by_id(self) -> dict[int, int]:
        """Kernel id → row."""
        return {d.id: row for row, d in enumerate(self.descriptions)}


EMPTY_TABLE = KernelTable((), np.empty((len(Column), 0)))
