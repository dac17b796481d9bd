"""How much of a stretch of time was kernels of one program: for its regions, by containment in time.

A region that waits for the GPU before it ends contains its kernels, whoever launched them; of one that
does not wait this cannot be told. The record of a region comes when it ends, so the kernels' time is kept
as far back as regions may have begun: as one rising line, whose older part grows coarser.
"""

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

_MOST_POINTS = 1 << 17
"""2 MB a program: at 10,000 launches/s all of the last seven seconds, and coarsely all since the start."""


class KernelTime:
    """The time with at least one kernel since the program was attached, as a line over time."""

    def __init__(self, since_ns: int) -> None:
        self._since = (
            since_ns  # where the line begins; float64 holds no nanoseconds since the epoch
        )
        self._until = 0
        self._at = np.zeros(1)
        self._total = np.zeros(1)

    def add(self, start_ns: Times, end_ns: Times) -> None:
        """Takes kernels by their start, shape (n,), all that began until the latest of them."""
        if not len(start_ns):
            return
        ends = np.maximum.accumulate(np.concatenate([[self._until], end_ns - self._since]))
        first, last = np.maximum(start_ns - self._since, ends[:-1]), ends[1:]
        grows = last > first
        first, last = first[grows], last[grows]
        total = self._total[-1] + np.cumsum(last - first)
        before = total - (last - first)
        self._at = np.concatenate([self._at, np.stack([first, last], axis=1).reshape(-1)])
        self._total = np.concatenate([self._total, np.stack([before, total], axis=1).reshape(-1)])
        self._until = int(ends[-1])
        while len(self._at) > _MOST_POINTS:
            self._thin()

    def within(self, start_ns: Times, end_ns: Times) -> NDArray[np.float64]:
        """Kernel time in ns between two moments, shape (n,); NaN where it began before the line."""
        start, end = start_ns - self._since, end_ns - self._since
        found: NDArray[np.float64] = np.interp(end, self._at, self._total) - np.interp(
            start, self._at, self._total
        )
        found[start < 0] = np.nan
        return found

    def _thin(self) -> None:
        """Keep every fourth point of the older half: what lies between is taken as evenly spread."""
        half = len(self._at) // 2
        keep = np.concatenate([np.arange(0, half, 4), np.arange(half, len(self._at))])
        self._at, self._total = self._at[keep], self._total[keep]
