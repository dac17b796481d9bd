"""Rows of the kernel table: which program and description each belongs to, and its columns for the wire."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from roofmon.arrays import grown
from roofmon.model.kernel import KernelDescription, KernelKind
from roofmon.model.table import Column
from roofmon.stream.messages import KernelColumns, WorkValues
from roofmon.tracing.durations import Floats
from roofmon.tracing.statistics import Changes, KernelStatistics

if TYPE_CHECKING:
    from roofmon.collector.sampled_work import SampledWork

MAX_ROWS = 20_000
"""Rows that stand at one time; each takes about 1 kB here and on screen."""
_MOST_EVER = 5
"""Times as many in one session: those of ended runs go, but their numbers are not given again."""
_SPARE_ROWS = 1_000
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
    Column.INSIDE_NS: "inside_ns",
    Column.INSIDE_TOTAL_NS: "inside_total_ns",
    Column.GRAPH_SHARE: "graph_share",
}
_NO_TIMES = (Column.LAUNCHES, Column.LAUNCH_RATE, Column.LAST_END_NS)
_TIMES = [c for c in Column if c not in _NO_TIMES]


class KernelRegistry:
    """Numbers the rows, keeps their latest columns, and forgets those of programs that were replaced."""

    def __init__(self, most_rows: int = MAX_ROWS) -> None:
        self._most_rows = most_rows
        self._statistics = KernelStatistics()
        self._all: list[KernelDescription] = []
        self._new: list[KernelDescription] = []
        self._is_gone = np.zeros(64, dtype=np.bool_)
        self._standing_count = 0
        self._untimed: list[int] = []
        self._streams: list[Sequence[int]] = []
        self._stream_masks = np.zeros(64, dtype=np.uint64)
        self._with_work = np.zeros(64, dtype=np.bool_)
        self._stats = np.full((len(Column), 64), np.nan)
        self._work = np.full((2, 64), np.nan)
        self._running: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._hidden: list[int] = []  # rows that went since the last tick
        self._reasons: dict[int, dict[str, str]] = {}  # of sampled rows: those they had before
        self.sampled: SampledWork | None = None
        """What counters tell of rows, where there are any."""

    @property
    def descriptions(self) -> list[KernelDescription]:
        """All rows that still stand."""
        return [d for d in self._all if not self._is_gone[d.id]]

    def take_descriptions(self) -> list[KernelDescription]:
        """Rows that are new since the last call, or of which counters say something else."""
        for row in self.sampled.take_noted() if self.sampled is not None else ():
            assert self.sampled is not None
            known = self._reasons.setdefault(row, self._all[row].reasons)
            described = self.sampled.described(self._all[row], known)
            self._all[row] = described
            if self._stands(row):
                self._new.append(described)
        new, self._new = self._new, []
        return new

    def description(self, row: int) -> KernelDescription | None:
        """The row of a number; None where it does not stand."""
        return self._all[row] if 0 <= row < len(self._all) and self._stands(row) else None

    def add_row(
        self, description: KernelDescription, streams: Sequence[int] = (), *, spare: bool = False
    ) -> int | None:
        """A row; None when there are too many. Its `id` is the number that it gets here.

        A reason for "time" says that the durations of its records are not those of its work. `streams`
        are the numbers of the streams that the bits of `add_on_gpu` stand for; it may grow later.
        `spare` rows, of copies and of all kernels without one of their own, have a few places more.
        """
        number, spare_rows = len(self._all), _SPARE_ROWS if spare else 0
        most = self._most_rows + spare_rows
        if self._standing_count >= most or number >= _MOST_EVER * self._most_rows + spare_rows:
            return None
        self._standing_count += 1
        row = msgspec.structs.replace(description, id=number)
        if "time" in row.reasons:
            self._untimed.append(number)
        self._all.append(row)
        self._new.append(row)
        self._streams.append(streams)
        size = number + 1
        self._stats = grown(self._stats, size, np.nan)
        self._work = grown(self._work, size, np.nan)
        self._stream_masks = grown(self._stream_masks, size, 0)
        self._with_work = grown(self._with_work, size, False)
        self._is_gone = grown(self._is_gone, size, False)
        self._with_work[number] = bool(row.pipe or row.level)
        return number

    def add_records(self, rows: NDArray[np.int64], records: NDArray[np.void], source: int) -> None:
        """Take in passes of one program's regions; `rows`, shape (n,), is the row of each record."""
        self._statistics.add(
            rows,
            records["start_ns"],
            records["duration_ns"],
            records["flops"],
            records["bytes"],
            records["depth"],
            source=source,
        )

    def add_on_gpu(
        self,
        rows: NDArray[np.int64],
        start_ns: NDArray[np.int64],
        duration_ns: NDArray[np.int64],
        streams: NDArray[np.uint64],
        in_graph: NDArray[np.bool_],
        bytes: Floats | None = None,
    ) -> None:
        """Take in traced kernels, or with `bytes` copies, as `KernelStatistics.add_on_gpu` does."""
        self._statistics.add_on_gpu(rows, start_ns, duration_ns, streams, in_graph, bytes)

    def add_gaps(self, rows: NDArray[np.int64], gap_ns: Floats) -> None:
        """Take in the idle time before launches, in ns, NaN where it is not known."""
        self._statistics.add_gaps(rows, gap_ns)

    def add_inside(self, rows: NDArray[np.int64], kernels_ns: Floats) -> None:
        """Take in the time of kernels inside passes of regions, in ns, NaN where it is not known."""
        self._statistics.add_inside(rows, kernels_ns)

    def forget(self, pid: int, process: str, kinds: Collection[KernelKind]) -> None:
        """Drop the rows of an ended program that another run of the same program replaces."""
        for row in self._all:
            mine = (row.pid, row.process) == (pid, process) and row.kind in kinds
            if mine and not self._is_gone[row.id]:
                self._is_gone[row.id] = True
                self._standing_count -= 1
                self._hidden.append(row.id)
                if self.sampled is not None:
                    self.sampled.forget([row.id])
                self._blank(np.array([row.id]))

    def reset(self) -> None:
        """Begin all statistics anew; rows keep their numbers."""
        self._statistics.reset()
        self._stats[:] = np.nan
        self._work[:] = np.nan
        self._stream_masks[:] = 0
        self._running = np.empty(0, dtype=np.int64)
        if self.sampled is not None:
            self.sampled.reset()

    def columns(self, interval_ns: int, *, everything: bool) -> KernelColumns:
        """The columns that changed since the last call, or all of them for a keyframe."""
        changes = self._statistics.take_changes()
        changed = self._marked(self._update(changes, interval_ns), self._average_sampled())
        if everything:
            whole = self._statistics.all_rows()
            rows = self._standing(np.flatnonzero(self._stats[Column.LAUNCHES] > 0))
            histogram = self._standing_histogram(whole)
        else:
            rows = self._marked(self._standing(changed), self._hidden)
            histogram = self._standing_histogram(changes)
        self._hidden.clear()
        work = self._work_values(rows)
        if self.sampled is not None:
            work += self.sampled.columns(everything=everything, standing=self._stands)
        return KernelColumns(
            ids=rows.astype("<u4").tobytes(),
            stats=self._stats[:, rows].astype("<f8").tobytes(),
            columns=len(Column),
            work=work,
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
        self._update_streams(rows, changes.streams)
        self._work[_FLOPS, rows] = changes.flops_mean
        self._work[_BYTES, rows] = changes.bytes_mean
        self._stats[np.ix_(_TIMES, self._untimed)] = np.nan
        runs = np.zeros(len(self._all), dtype=np.bool_)
        runs[rows] = True
        stopped = self._running[~runs[self._running]]
        self._stats[Column.LAUNCH_RATE, stopped] = 0.0
        self._running = rows
        changed = self._marked(rows, stopped)
        self._blank(changed[self._is_gone[changed]])  # their last records may come after their end
        return changed

    def _average_sampled(self) -> NDArray[np.int64]:
        """The mean stands for a launch of rows that counters tell of, which know sums only: the median of
        launches of different sizes is not the time in which one does the mean of their work. Returns the
        rows for which that is new."""
        if self.sampled is None:
            return np.empty(0, dtype=np.int64)
        rows: NDArray[np.int64] = np.fromiter(self.sampled.said, dtype=np.int64)
        rows = rows[self._stats[Column.LAUNCHES, rows] > 0]
        mean = self._stats[Column.TOTAL_NS, rows] / self._stats[Column.LAUNCHES, rows]
        new = np.isfinite(mean) & (self._stats[Column.TYPICAL_NS, rows] != mean)
        rows = rows[new]
        self._stats[Column.TYPICAL_NS, rows] = mean[new]
        return rows

    def _blank(self, rows: NDArray[np.int64]) -> None:
        self._stats[:, rows] = np.nan
        self._stats[Column.LAUNCHES, rows] = 0.0

    def _update_streams(self, rows: NDArray[np.int64], masks: NDArray[np.uint64]) -> None:
        different = np.flatnonzero(masks != self._stream_masks[rows])
        self._stream_masks[rows] = masks
        for row, mask in zip(rows[different].tolist(), masks[different].tolist(), strict=True):
            numbers, first = self._streams[row], (mask & -mask).bit_length() - 1
            self._stats[Column.STREAMS, row] = mask.bit_count()
            known = first < len(numbers)
            self._stats[Column.STREAM, row] = numbers[first] if known else np.nan

    def _marked(self, *groups: NDArray[np.int64] | list[int]) -> NDArray[np.int64]:
        """The rows that are in any of the groups, ascending; np.union1d takes ten times as long."""
        marked = np.zeros(len(self._all), dtype=np.bool_)
        for group in groups:
            marked[group] = True
        return np.flatnonzero(marked)

    def _stands(self, row: int) -> bool:
        return not self._is_gone[row]

    def _standing(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows[~self._is_gone[rows]]

    def _standing_histogram(self, changes: Changes) -> tuple[NDArray[np.generic], ...]:
        keep = ~self._is_gone[changes.hist_ids]
        return changes.hist_ids[keep], changes.hist_bins[keep], changes.hist_counts[keep]

    def _work_values(self, rows: NDArray[np.int64]) -> list[WorkValues]:
        grouped: dict[tuple[str, str], list[int]] = {}
        for row in rows[self._with_work[rows]].tolist():
            description = self._all[row]
            if description.pipe:
                grouped.setdefault(("flops", description.pipe), []).append(row)
            if description.level:
                grouped.setdefault(("bytes", description.level), []).append(row)
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
