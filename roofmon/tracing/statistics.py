"""Statistics of launches by row, kept from batches of records; the records themselves are forgotten.

Records wait until statistics are asked for, or there are many: a batch costs 0.6 ms however small it
is, and programs send 20 a second each. Then they are folded in one pass sorted by row, so that the cost
follows the records and not the rows. Durations also go into a histogram (`roofmon.model.stats`), kept as
one sorted array of (row, bin) and its counts; quantiles of all rows come from it in one search.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofmon.model.histogram import quantiles
from roofmon.model.stats import bin_index, median_interval_low_ranks

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BIN_BITS = 16
_FOLD_AT = 1 << 16  # records that may wait, 3 MB
_WORK_VARIES = 1.01  # largest over smallest work of a launch

_SUMMED = ("flops", "bytes", "gap")  # quantities that a launch may lack
_ROW = np.dtype(
    [(name, np.int64) for name in ("launches", "total_ns", "outer_ns", "min_ns", "max_ns")]
    + [("last_end_ns", np.int64), ("mean_ns", np.float64), ("squares", np.float64)]
    + [(f"{name}_{part}", np.float64) for name in _SUMMED for part in ("sum", "known")]
    + [(f"{name}_{part}", np.float64) for name in ("flops", "bytes") for part in ("min", "max")]
)


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
    gap_ns: Floats  # mean time that nothing of the process ran before an outermost launch
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
        self._keys = np.empty(0, dtype=np.int64)  # row << 16 | bin, ascending
        self._counts = np.empty(0, dtype=np.int64)
        self._waiting: list[tuple[Integers, Floats]] = []
        self._changed_keys: list[Integers] = []
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
        """Takes a batch of records of one process in any order, arrays of shape (n,).

        `flops` and `bytes` are per launch, NaN where not declared. `source` numbers the process: gaps
        are between launches of the same one.
        """
        if len(rows) == 0:
            return
        integers = np.empty((5, len(rows)), dtype=np.int64)
        integers[:] = rows, start_ns, duration_ns, depth == 0, np.full(len(rows), source)
        self._waiting.append((integers, np.stack([flops, bytes])))
        if sum(integers.shape[1] for integers, _ in self._waiting) >= _FOLD_AT:
            self._fold()

    def take_changes(self) -> Changes:
        """Statistics of the rows, and counts of the bins, that changed since the last call."""
        self._fold()
        ids = np.flatnonzero(self._changed)
        self._changed[:] = False
        keys = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *self._changed_keys]))
        self._changed_keys.clear()
        return self._describe(ids, np.searchsorted(self._keys, keys))

    def all_rows(self) -> Changes:
        """The same of all rows that ever ran; leaves what `take_changes` will return as it is."""
        self._fold()
        return self._describe(np.flatnonzero(self._rows["launches"]), np.arange(len(self._keys)))

    def _fold(self) -> None:
        """Adds the waiting launches to the statistics and the histogram."""
        if self._waiting:
            integers = np.concatenate([integers for integers, _ in self._waiting], axis=1)
            flops, bytes = np.concatenate([work for _, work in self._waiting], axis=1)
            self._waiting.clear()
            gap = self._gaps(*integers[1:])
            keys = integers[0] << _BIN_BITS | bin_index(integers[2])
            order = np.argsort(keys)
            self._add_to_histogram(keys[order])
            work = {"flops": flops[order], "bytes": bytes[order], "gap": gap[order]}
            self._add_to_rows(work, *integers[:4, order])

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
        outermost: Integers,
    ) -> None:
        """Arrays of launches in the order of their rows, shape (n,)."""
        first, count = _runs(row)
        ids = row[first]
        self._grow(int(ids[-1]) + 1)
        rows = self._rows[ids]
        old = rows["launches"]
        total = np.add.reduceat(duration, first)
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
        rows["outer_ns"] += np.add.reduceat(duration * outermost, first)
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
        missing = size - len(self._rows)
        if missing > 0:
            new = np.zeros(max(missing, len(self._rows), 64), dtype=_ROW)
            for name in ("flops_min", "flops_max", "bytes_min", "bytes_max"):
                new[name] = np.nan
            self._rows = np.concatenate([self._rows, new])
            self._changed = np.concatenate([self._changed, np.zeros(len(new), dtype=np.bool_)])

    def _add_to_histogram(self, launch_keys: Integers) -> None:
        first, counts = _runs(launch_keys)
        keys = launch_keys[first]
        self._changed_keys.append(keys)
        at = np.searchsorted(self._keys, keys)
        new = at == len(self._keys)
        new[~new] = self._keys[at[~new]] != keys[~new]
        self._counts[at[~new]] += counts[~new]
        if new.any():
            self._counts = np.insert(self._counts, at[new], counts[new])
            self._keys = np.insert(self._keys, at[new], keys[new])

    def _describe(self, ids: Integers, bins: Integers) -> Changes:
        rows = self._rows[ids]
        launches, total = rows["launches"], rows["total_ns"]
        low = median_interval_low_ranks(launches)
        last = launches - 1
        ranks = np.stack([last / 2, low, last - low, 0.05 * last, 0.95 * last])
        median, median_low, median_high, p05, p95 = quantiles(
            self._keys.astype(np.uint64), self._counts, ids, ranks, rows["min_ns"], rows["max_ns"]
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            cv = np.where(last > 0, np.sqrt(rows["squares"] / last) / rows["mean_ns"], np.nan)
            gap = rows["gap_sum"] / rows["gap_known"]
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
            last_end_ns=rows["last_end_ns"],
            flops_mean=flops,
            bytes_mean=bytes,
            work_varies=varies,
            typical_ns=np.where(varies, total / launches, median),
            hist_ids=(self._keys[bins] >> _BIN_BITS).astype(np.uint32),
            hist_bins=(self._keys[bins] & ((1 << _BIN_BITS) - 1)).astype(np.uint16),
            hist_counts=self._counts[bins].astype(np.uint32),
        )


def _runs(ordered: Integers) -> tuple[Integers, Integers]:
    """Where each run of equal numbers begins, and its length."""
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    return first, np.diff(first, append=len(ordered))
