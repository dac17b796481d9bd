"""Statistics of launches by row, kept from batches of records; the records themselves are forgotten.

Two kinds of launches come: passes of regions, which may declare work and lie in each other, and what ran
on a GPU, of which the stream and the graph are known. What is found out about a launch later (the idle
time before it, the kernels inside it) is added on its own.

Records wait until statistics are asked for, or there are many: a batch costs 0.6 ms however small it
is, and programs send 20 a second each. Then they are folded in one pass sorted by row, so that the cost
follows the records and not the rows. Durations also go into a histogram (`roofmon.tracing.durations`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofmon.arrays import grown
from roofmon.model.stats import median_interval_low_ranks
from roofmon.tracing.durations import Durations, Floats, Integers, runs

_FOLD_AT = 1 << 16  # records that may wait, 3 MB
_WORK_VARIES = 1.01  # largest over smallest work of a launch

_SUMMED = ("flops", "bytes", "gap", "inside")  # quantities that a launch may lack
_ROW = np.dtype(
    [(name, np.int64) for name in ("launches", "total_ns", "outer_ns", "min_ns", "max_ns")]
    + [("last_end_ns", np.int64), ("mean_ns", np.float64), ("squares", np.float64)]
    + [("graph_launches", np.int64), ("streams", np.uint64)]
    + [(f"{name}_{part}", np.float64) for name in _SUMMED for part in ("sum", "known")]
    + [(f"{name}_{part}", np.float64) for name in ("flops", "bytes") for part in ("min", "max")]
)
_NEVER_RUN = np.zeros((), dtype=_ROW)
for _name in ("flops_min", "flops_max", "bytes_min", "bytes_max"):
    _NEVER_RUN[_name] = np.nan


@dataclass(frozen=True)
class Changes:
    """Statistics of some rows, arrays of shape (k,), and the histogram bins that changed, shape (m,).

    Cumulative since the last reset. Times in ns; NaN where not known.
    """

    ids: NDArray[np.uint32]
    launches: Integers
    total_ns: Integers
    outer_ns: Integers  # of launches at depth 0
    median_ns: Floats
    median_low_ns: Floats  # 95 % interval of the median, by ranks
    median_high_ns: Floats
    p05_ns: Floats
    p95_ns: Floats
    cv: Floats  # sample standard deviation / mean; NaN for a single launch
    min_ns: Integers
    max_ns: Integers
    gap_ns: Floats  # mean time that nothing of the process, or on the GPU, ran before a launch
    inside_ns: Floats  # mean time of kernels inside a launch
    inside_total_ns: Floats  # the same in all
    graph_share: Floats  # of the launches, 0 … 1; NaN for regions
    streams: NDArray[np.uint64]  # a bit for each, as `add_on_gpu` was told
    last_end_ns: Integers
    flops_mean: Floats  # a launch; NaN where any launch did not declare it
    bytes_mean: Floats
    work_varies: NDArray[np.bool_]  # largest and smallest declared work differ by over 1 %
    typical_ns: Floats  # the median; the mean where the work varies
    hist_ids: NDArray[np.uint32]
    hist_bins: NDArray[np.uint16]
    hist_counts: NDArray[np.uint32]  # cumulative


class KernelStatistics:
    """Cumulative statistics of rows, which the caller numbers densely from 0."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets everything."""
        self._rows = np.zeros(0, dtype=_ROW)
        self._changed = np.zeros(0, dtype=np.bool_)
        self._durations = Durations()
        self._regions: list[tuple[Integers, Floats]] = []
        self._on_gpu: list[tuple[Integers, Floats | None]] = []
        self._last_end: dict[int, int] = {}

    def add(
        self,
        rows: NDArray[np.integer],
        start_ns: NDArray[np.integer],
        duration_ns: NDArray[np.integer],
        flops: Floats,
        bytes: Floats,
        depth: NDArray[np.integer],
        *,
        source: int = 0,
    ) -> None:
        """Takes passes of regions of one process in any order, arrays of shape (n,).

        `flops` and `bytes` are per launch, NaN where not declared. `source` numbers the process: gaps
        are between launches of the same one.
        """
        if len(rows) == 0:
            return
        integers = np.empty((5, len(rows)), dtype=np.int64)
        integers[:] = rows, start_ns, duration_ns, depth == 0, np.full(len(rows), source)
        self._regions.append((integers, np.stack([flops, bytes])))
        self._fold_when_many()

    def add_on_gpu(
        self,
        rows: NDArray[np.integer],
        start_ns: NDArray[np.integer],
        duration_ns: NDArray[np.integer],
        streams: NDArray[np.uint64],
        in_graph: NDArray[np.bool_],
        bytes: Floats | None = None,
    ) -> None:
        """Takes kernels, or with `bytes` copies, in any order, arrays of shape (n,).

        `streams` has the bit set that stands for the stream of each, `in_graph` says whether a graph
        launched it.
        """
        if len(rows) == 0:
            return
        integers = np.empty((5, len(rows)), dtype=np.int64)
        integers[:] = rows, start_ns, duration_ns, streams.view(np.int64), in_graph
        self._on_gpu.append((integers, bytes))
        self._fold_when_many()

    def add_gaps(self, rows: NDArray[np.integer], gap_ns: Floats) -> None:
        """Takes the idle time before launches that were added, NaN where it is not known, shape (n,)."""
        self._add_later("gap", rows, gap_ns)

    def add_inside(self, rows: NDArray[np.integer], kernels_ns: Floats) -> None:
        """Takes the time of kernels inside launches that were added, NaN where not known, shape (n,)."""
        self._add_later("inside", rows, kernels_ns)

    def _add_later(self, name: str, rows: NDArray[np.integer], values: Floats) -> None:
        known = ~np.isnan(values)
        if not known.any():
            return
        rows, values = rows[known], values[known]
        self._grow(int(rows.max()) + 1)
        size = len(self._rows)
        self._rows[f"{name}_sum"] += np.bincount(rows, values, size)
        self._rows[f"{name}_known"] += np.bincount(rows, minlength=size)
        self._changed[rows] = True

    def take_changes(self) -> Changes:
        """Statistics of the rows, and counts of the bins, that changed since the last call."""
        self._fold()
        # A gap may be known before its launch is: rows that never ran are not told.
        ids = np.flatnonzero(self._changed & (self._rows["launches"] > 0))
        self._changed[:] = False
        return self._describe(ids, self._durations.take_changed())

    def all_rows(self) -> Changes:
        """The same of all rows that ever ran; leaves what `take_changes` will return as it is."""
        self._fold()
        return self._describe(np.flatnonzero(self._rows["launches"]), self._durations.all_bins())

    def _fold_when_many(self) -> None:
        waiting = (integers for integers, _ in (*self._regions, *self._on_gpu))
        if sum(integers.shape[1] for integers in waiting) >= _FOLD_AT:
            self._fold()

    def _fold(self) -> None:
        """Adds the waiting launches to the statistics and the histogram."""
        if self._regions:
            integers = np.concatenate([integers for integers, _ in self._regions], axis=1)
            flops, bytes = np.concatenate([work for _, work in self._regions], axis=1)
            self._regions.clear()
            row, start, duration, outermost, source = integers
            gap = self._gaps(start, duration, outermost, source)
            order = self._durations.add(row, duration)
            work = {"flops": flops[order], "bytes": bytes[order], "gap": gap[order]}
            self._add_to_rows(work, row[order], start[order], duration[order], outermost[order])
        for with_bytes in (False, True):
            batches = [b for b in self._on_gpu if (b[1] is not None) == with_bytes]
            if batches:
                integers = np.concatenate([integers for integers, _ in batches], axis=1)
                order = self._durations.add(integers[0], integers[2])
                moved = [bytes for _, bytes in batches if bytes is not None]
                work = {"bytes": np.concatenate(moved)[order]} if moved else {}
                row, start, duration, streams, in_graph = integers[:, order]
                self._add_to_rows(work, row, start, duration)
                first, _ = runs(row)
                ids = row[first]
                found = np.bitwise_or.reduceat(streams.view(np.uint64), first)
                self._rows["streams"][ids] |= found
                self._rows["graph_launches"][ids] += np.add.reduceat(in_graph, first)
        self._on_gpu.clear()

    def _gaps(
        self, start: Integers, duration: Integers, outermost: Integers, source: Integers
    ) -> Floats:
        """Idle time before each outermost launch; NaN for nested ones and the very first."""
        gaps = np.full(len(start), np.nan)
        for number in np.unique(source).tolist():
            which = np.flatnonzero((source == number) & (outermost != 0))
            if len(which):
                which = which[np.argsort(start[which])]
                last_end = self._last_end.get(number)
                ends = np.concatenate([[last_end or 0], start[which] + duration[which]])
                ends = np.maximum.accumulate(ends)  # launches of several threads overlap
                gaps[which] = np.maximum(start[which] - ends[:-1], 0)
                if last_end is None:
                    gaps[which[0]] = np.nan
                self._last_end[number] = int(ends[-1])
        return gaps

    def _add_to_rows(
        self,
        work: dict[str, Floats],
        row: Integers,
        start: Integers,
        duration: Integers,
        outermost: Integers | None = None,
    ) -> None:
        """Arrays of launches in the order of their rows, shape (n,); all are outermost where not told."""
        first, count = runs(row)
        ids = row[first]
        self._grow(int(ids[-1]) + 1)
        rows = self._rows[ids]
        old = rows["launches"]
        total = np.add.reduceat(duration, first)
        outer = total if outermost is None else np.add.reduceat(duration * outermost, first)
        # Squares about the mean of these launches, then merged (Chan, Golub, LeVeque 1983): a sum of
        # squares about zero loses the 0.1 % by which a million launches of a millisecond differ.
        mean = total / count
        squares = np.add.reduceat((duration - np.repeat(mean, count)) ** 2, first)
        shift = mean - rows["mean_ns"]
        rows["squares"] += squares + shift**2 * old * count / (old + count)
        rows["mean_ns"] += shift * count / (old + count)
        shortest = np.minimum.reduceat(duration, first)
        rows["min_ns"] = np.where(old == 0, shortest, np.minimum(rows["min_ns"], shortest))
        rows["max_ns"] = np.maximum(rows["max_ns"], np.maximum.reduceat(duration, first))
        last_end = np.maximum.reduceat(start + duration, first)
        rows["last_end_ns"] = np.maximum(rows["last_end_ns"], last_end)
        rows["launches"] = old + count
        rows["total_ns"] += total
        rows["outer_ns"] += outer
        for name, values in work.items():
            known = ~np.isnan(values)
            rows[f"{name}_sum"] += np.add.reduceat(np.where(known, values, 0.0), first)
            rows[f"{name}_known"] += np.add.reduceat(known, first, dtype=np.int64)
            if name != "gap":
                least, most = np.fmin.reduceat(values, first), np.fmax.reduceat(values, first)
                rows[f"{name}_min"] = np.fmin(rows[f"{name}_min"], least)
                rows[f"{name}_max"] = np.fmax(rows[f"{name}_max"], most)
        self._rows[ids] = rows
        self._changed[ids] = True

    def _grow(self, size: int) -> None:
        self._rows = grown(self._rows, size, _NEVER_RUN)
        self._changed = grown(self._changed, size, False)

    def _describe(self, ids: Integers, bins: Integers) -> Changes:
        rows = self._rows[ids]
        launches, total = rows["launches"], rows["total_ns"]
        low = median_interval_low_ranks(launches)
        last = launches - 1
        ranks = np.stack([last / 2, low, last - low, 0.05 * last, 0.95 * last])
        median, median_low, median_high, p05, p95 = self._durations.quantiles(
            ids, ranks, rows["min_ns"], rows["max_ns"]
        )
        hist_ids, hist_bins, hist_counts = self._durations.at(bins)
        with np.errstate(divide="ignore", invalid="ignore"):
            cv = np.where(last > 0, np.sqrt(rows["squares"] / last) / rows["mean_ns"], np.nan)
            gap, inside = (
                rows[f"{name}_sum"] / rows[f"{name}_known"] for name in ("gap", "inside")
            )
            graphs = np.where(rows["streams"] > 0, rows["graph_launches"] / launches, np.nan)
        flops, bytes = (
            np.where(rows[f"{name}_known"] == launches, rows[f"{name}_sum"] / launches, np.nan)
            for name in ("flops", "bytes")
        )
        varies = (rows["flops_max"] > _WORK_VARIES * rows["flops_min"]) | (
            rows["bytes_max"] > _WORK_VARIES * rows["bytes_min"]
        )
        return Changes(
            ids=ids.astype(np.uint32),
            launches=launches,
            total_ns=total,
            outer_ns=rows["outer_ns"],
            median_ns=median,
            median_low_ns=median_low,
            median_high_ns=median_high,
            p05_ns=p05,
            p95_ns=p95,
            cv=cv,
            min_ns=rows["min_ns"],
            max_ns=rows["max_ns"],
            gap_ns=gap,
            inside_ns=inside,
            inside_total_ns=np.where(rows["inside_known"] > 0, rows["inside_sum"], np.nan),
            graph_share=graphs,
            streams=rows["streams"],
            last_end_ns=rows["last_end_ns"],
            flops_mean=flops,
            bytes_mean=bytes,
            work_varies=varies,
            typical_ns=np.where(varies, total / launches, median),
            hist_ids=hist_ids,
            hist_bins=hist_bins,
            hist_counts=hist_counts,
        )
