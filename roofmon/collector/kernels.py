"""Rows of the kernel table: which program and description each belongs to, and its columns for the wire."""

import numpy as np
from numpy.typing import NDArray

from roofmon.model.kernel import KernelDescription
from roofmon.model.roofline import Pipe
from roofmon.model.table import Column
from roofmon.stream.messages import KernelColumns, WorkValues
from roofmon.tracing.protocol import Described
from roofmon.tracing.statistics import Changes, KernelStatistics

MAX_ROWS = 20_000
_FLOPS, _BYTES = 0, 1
# Columns that are the statistics' own, by the name they have there.
_FIELDS = {
    Column.LAUNCHES: "launches",
    Column.TOTAL_NS: "total_ns",
    Column.OUTER_NS: "outer_ns",
    Column.MEDIAN_NS: "median_ns",
    Column.MEDIAN_LOW_NS: "median_low_ns",
    Column.MEDIAN_HIGH_NS: "median_high_ns",
    Column.P05_NS: "p05_ns",
    Column.P95_NS: "p95_ns",
    Column.CV: "cv",
    Column.MIN_NS: "min_ns",
    Column.MAX_NS: "max_ns",
    Column.GAP_NS: "gap_ns",
    Column.LAST_END_NS: "last_end_ns",
    Column.TYPICAL_NS: "typical_ns",
}
_TIMES = [c for c in Column if c not in (Column.LAUNCHES, Column.LAUNCH_RATE, Column.LAST_END_NS)]


class KernelRegistry:
    """Numbers the rows, keeps their latest columns, and forgets those of programs that were replaced."""

    def __init__(self) -> None:
        self._statistics = KernelStatistics()
        self._all: list[KernelDescription] = []
        self._new: list[KernelDescription] = []
        self._gone: set[int] = set()
        self._untimed: list[int] = []
        self._stats = np.full((len(Column), 64), np.nan)
        self._work = np.full((2, 64), np.nan)
        self._running: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._hidden: list[int] = []  # rows that went since the last tick

    @property
    def descriptions(self) -> list[KernelDescription]:
        """All rows that still stand."""
        return [d for d in self._all if d.id not in self._gone]

    def take_descriptions(self) -> list[KernelDescription]:
        """Rows that are new since the last call."""
        new, self._new = self._new, []
        return new

    def add_row(
        self, described: Described, *, device: str, pid: int, process: str, untimed: str
    ) -> int | None:
        """A row for what a program described; None when there are too many.

        `untimed` says why the durations of its records are not those of its work, "" where they are.
        """
        number = len(self._all)
        if number >= MAX_ROWS:
            return None
        row = KernelDescription(
            id=number,
            name=described.name,
            device=device,
            kind="region",
            pid=pid,
            process=process,
            pipe=Pipe(described.unit, described.precision).key,
            level=described.level,
            reasons={"time": untimed} if untimed else {},
        )
        if untimed:
            self._untimed.append(number)
        self._all.append(row)
        self._new.append(row)
        if number >= self._stats.shape[1]:
            self._stats = np.concatenate([self._stats, np.full_like(self._stats, np.nan)], axis=1)
            self._work = np.concatenate([self._work, np.full_like(self._work, np.nan)], axis=1)
        return number

    def add_records(self, rows: NDArray[np.int64], records: NDArray[np.void], source: int) -> None:
        """Take in launches of one program; `rows`, shape (n,), is the row of each record."""
        self._statistics.add(
            rows,
            records["start_ns"],
            records["duration_ns"],
            records["flops"],
            records["bytes"],
            records["depth"],
            source=source,
        )

    def forget(self, pid: int, process: str) -> None:
        """Drop the rows of an ended program that another run of the same program replaces."""
        for row in self._all:
            if (row.pid, row.process) == (pid, process) and row.id not in self._gone:
                self._gone.add(row.id)
                self._hidden.append(row.id)

    def reset(self) -> None:
        """Begin all statistics anew; rows keep their numbers."""
        self._statistics.reset()
        self._stats[:] = np.nan
        self._work[:] = np.nan
        self._running = np.empty(0, dtype=np.int64)

    def columns(self, interval_ns: int, *, everything: bool) -> KernelColumns:
        """The columns that changed since the last call, or all of them for a keyframe."""
        changes = self._statistics.take_changes()
        changed = self._update(changes, interval_ns)
        if everything:
            whole = self._statistics.all_rows()
            rows = self._standing(np.flatnonzero(self._stats[Column.LAUNCHES] > 0))
            histogram = self._standing_histogram(whole)
        else:
            rows = np.union1d(self._standing(changed), np.array(self._hidden, dtype=np.int64))
            histogram = self._standing_histogram(changes)
        self._hidden.clear()
        return KernelColumns(
            ids=rows.astype("<u4").tobytes(),
            stats=self._stats[:, rows].astype("<f8").tobytes(),
            columns=len(Column),
            work=self._work_values(rows),
            histogram_ids=histogram[0].astype("<u4").tobytes(),
            histogram_bins=histogram[1].astype("<u2").tobytes(),
            histogram_counts=histogram[2].astype("<u4").tobytes(),
        )

    def _update(self, changes: Changes, interval_ns: int) -> NDArray[np.int64]:
        """Take changes into the kept columns; returns the rows that changed, or stopped running."""
        rows = changes.ids.astype(np.int64)
        before = np.nan_to_num(self._stats[Column.LAUNCHES, rows])
        for column, field in _FIELDS.items():
            self._stats[column, rows] = getattr(changes, field)
        seconds = max(interval_ns, 1) / 1e9
        self._stats[Column.LAUNCH_RATE, rows] = (changes.launches - before) / seconds
        self._work[_FLOPS, rows] = changes.flops_mean
        self._work[_BYTES, rows] = changes.bytes_mean
        self._stats[np.ix_(_TIMES, self._untimed)] = np.nan
        stopped = np.setdiff1d(self._running, rows)
        self._stats[Column.LAUNCH_RATE, stopped] = 0.0
        self._running = rows
        gone = list(self._gone)
        self._stats[:, gone] = np.nan
        self._stats[Column.LAUNCHES, gone] = 0.0
        return np.union1d(rows, stopped)

    def _standing(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.setdiff1d(rows, np.fromiter(self._gone, np.int64, len(self._gone)))

    def _standing_histogram(self, changes: Changes) -> tuple[NDArray[np.generic], ...]:
        gone = np.fromiter(self._gone, np.int64, len(self._gone))
        keep = ~np.isin(changes.hist_ids, gone)
        return changes.hist_ids[keep], changes.hist_bins[keep], changes.hist_counts[keep]

    def _work_values(self, rows: NDArray[np.int64]) -> list[WorkValues]:
        grouped: dict[tuple[str, str], list[int]] = {}
        for row in rows.tolist():
            description = self._all[row]
            grouped.setdefault(("flops", description.pipe or ""), []).append(row)
            grouped.setdefault(("bytes", description.level or ""), []).append(row)
        work = []
        for (kind, key), members in grouped.items():
            values = self._work[_FLOPS if kind == "flops" else _BYTES, members]
            if np.isfinite(values).any():
                work.append(
                    WorkValues(
                        kind=kind,
                        key=key,
                        provenance="declared",
                        ids=np.array(members, "<u4").tobytes(),
                        values=values.astype("<f8").tobytes(),
                        rel_error=np.full(len(members), np.nan, "<f4").tobytes(),
                    )
                )
        return work
