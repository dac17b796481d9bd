"""One window as a table: how many launches of each kernel lie in each sample."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from roofmon.counters.nnls import solve_nonnegative
from roofmon.counters.overlap import Cells, Clock, Launches, busy_spans, numbered
from roofmon.counters.samples import Samples
from roofmon.counters.sizes import kernel_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

POOLED = -1
"""The column of the kernels that ran for under 0.1 % of the time, which share one rate."""
UNCOVERED = -2
"""The column of the time in which no traced kernel ran."""

LEAST_SAMPLES = 20
"""Fewer samples say nothing by themselves."""

_POOLED_SHARE = 0.001
_COVERED = 0.001  # of a sample: with less time in kernels it holds none of their traffic
_IDLE_PART = 0.05  # of a sample: idle time that can be seen in its counts


class WindowTable:
    """The columns of a window and what is in each sample of them.

    `ids` are ascending: UNCOVERED (ns, where there is enough idle time to see it), POOLED (ns, where any
    kernel is), and kernels by size (`sizes.Sizes`; launches). `covered` marks the samples with kernels,
    `idle_seconds` is the idle time that can be seen in the counts.
    """

    def __init__(
        self, samples: Samples, launches: Launches, offset_ns: int, clocks: dict[int, Clock]
    ) -> None:
        start, end = launches.start_ns + offset_ns, launches.end_ns + offset_ns
        near = (end > samples.start_ns[0]) & (start < samples.end_ns[-1])
        self._launches = Launches(launches.kernel[near], start[near], end[near])
        self._offset_ns, self._clocks = offset_ns, clocks
        ids, column = numbered(self._launches.kernel)
        duration = np.maximum(end[near] - start[near], 1).astype(np.float64)
        kernels, kernel = numbered(kernel_of(ids))
        time = np.bincount(kernel[column], weights=duration, minlength=len(kernels))
        listed = time >= _POOLED_SHARE * time.sum()
        self.pooled: Integers = kernels[~listed]
        own = listed[kernel]
        shared = [UNCOVERED, POOLED] if len(self.pooled) else [UNCOVERED]
        self._ids: Integers = np.concatenate([shared, ids[own]])
        at = np.where(own, np.searchsorted(self._ids, ids), len(shared) - 1)
        self._column = at[column]
        # Pooled kernels have one rate in common, so they count in ns and not in launches.
        self._weight = np.where(own[column], 1.0 / duration, 1.0)
        self._cells = Cells.of(samples)
        self._length = (samples.end_ns - samples.start_ns).astype(np.float64)
        self._busy = busy_spans(start[near], end[near])
        self._one = np.zeros(len(self._busy[0]), dtype=np.int64)
        self.table = self._count()
        busy = self._length - self.table[:, 0]
        # Few samples with idle time would tell its rate badly, and that of all short gaps with it.
        idle = self.table[:, 0] > _IDLE_PART * self._length
        self._first = int(idle.sum() < LEAST_SAMPLES)
        self.idle_seconds = 0.0 if self._first else float(self.table[idle, 0].sum()) / 1e9
        self.ids, self.table = self._ids[self._first :], self.table[:, self._first :]
        self.values = samples.values
        self.covered: Mask = busy > _COVERED * self._length
        self.seconds = float(self._length.sum()) / 1e9
        self.busy_seconds = float(busy.sum()) / 1e9
        typical = float(duration @ duration) / max(float(duration.sum()), 1.0)
        self.launch_samples = typical / float(np.median(self._length))

    def _count(self) -> Floats:
        start, end = self._launches.start_ns, self._launches.end_ns
        table = self._cells.overlaps(self._column, len(self._ids), start, end, self._weight)
        for index, kernel in enumerate(kernel_of(self._ids).tolist()):
            if kernel in self._clocks:
                mine = self._launches.kernel == self._ids[index]
                clock = partial(_shifted, self._clocks[kernel], self._offset_ns)
                table[:, index] = self._cells.shares(start[mine], end[mine], clock)
        busy = self._cells.overlaps(self._one, 1, *self._busy)
        table[:, 0] = self._length - busy[:, 0]
        return table

    def slip(self, error_ns: float) -> Floats:
        """By how much the table changes if the clocks are off by their standard error."""
        start, end = self._launches.start_ns, self._launches.end_ns
        change = self._cells.slips(self._column, len(self._ids), start, end, self._weight)
        busy = self._cells.slips(self._one, 1, *self._busy, np.ones(len(self._one)))
        change[:, 0] = -busy[:, 0]
        return error_ns * change[:, self._first :]

    def fit(self, which: Mask) -> Floats:
        """Amounts by these samples alone, shape (columns, c)."""
        table, values = self.table[which], self.values[which]
        return solve_nonnegative(table.T @ table, table.T @ values).values


def _shifted(clock: Clock, offset_ns: int, times_ns: Integers) -> Floats:
    return clock(times_ns - offset_ns)
