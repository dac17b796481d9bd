"""How much of each kernel's executions falls into each sample."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofmon.counters.samples import Samples

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Numbers = Integers | Floats
Clock = Callable[[Integers], Floats]

_DENSE = 4_000_000  # ids up to this are counted rather than sorted: 1 ms instead of 5 for 100,000


@dataclass(frozen=True, eq=False)
class Launches:
    """Executions of kernels on one GPU, in any order. Times in ns on one clock."""

    kernel: Integers  # (n,) ids of the caller
    start_ns: Integers  # (n,)
    end_ns: Integers  # (n,)

    def __len__(self) -> int:
        return len(self.kernel)

    def take(self, which: NDArray[np.bool_] | NDArray[np.integer]) -> "Launches":
        """Some of the launches."""
        return Launches(self.kernel[which], self.start_ns[which], self.end_ns[which])


@dataclass(frozen=True, eq=False)
class Cells:
    """Samples as cells between edges; where two samples do not touch, a cell of no sample is between.

    `edges` are ns after `origin_ns`, so that they are exact as float64 too.
    """

    origin_ns: int
    edges: Integers  # (cells + 1,)
    sample_cells: Integers  # (s,): the cell of each sample

    @classmethod
    def of(cls, samples: Samples) -> "Cells":
        """The cells of samples that are in order and do not overlap (see `samples.usable`)."""
        origin = int(samples.start_ns[0])
        starts, ends = samples.start_ns - origin, samples.end_ns - origin
        touching = np.append(starts[1:] == ends[:-1], False)
        # A sample's end is an edge of its own only where the next sample does not start there.
        edges = np.sort(np.concatenate([starts, ends[~touching]]))
        return cls(origin, edges, np.searchsorted(edges, starts))

    def overlaps(
        self,
        column: NDArray[np.integer],
        columns: int,
        start_ns: Integers,
        end_ns: Integers,
        weight: Floats | None = None,
    ) -> Floats:
        """Σ over launches of weight × ns of the launch inside each sample, shape (s, columns).

        A launch may be shorter than a sample, last for many, lie partly or wholly outside, and overlap
        others of its own or of other columns: each one's time is distributed over the cells exactly.

        Args:
            column: the column of each launch, shape (n,).
            start_ns, end_ns: shape (n,), on the clock of the samples.
            weight: of each ns of a launch, shape (n,); 1 where None.
        """
        start, end = start_ns - self.origin_ns, end_ns - self.origin_ns
        table = _spread(self.edges, column, columns, start, end, weight)
        return table[self.sample_cells]

    def slips(
        self,
        column: NDArray[np.integer],
        columns: int,
        start_ns: Integers,
        end_ns: Integers,
        weight: Floats,
    ) -> Floats:
        """By how much `overlaps` changes with each ns that all launches are moved on, shape (s, columns).

        Only a launch that lies across an edge changes anything: it takes from the sample before.
        """
        cells = len(self.edges) - 1
        low = np.maximum(start_ns - self.origin_ns, 0)
        high = np.minimum(end_ns - self.origin_ns, self.edges[-1])
        first = np.searchsorted(self.edges, low, side="right")
        last = np.searchsorted(self.edges, high, side="left")
        crossed = np.where(high > low, np.maximum(last - first, 0), 0)
        launch = np.repeat(np.arange(len(low)), crossed)
        edge = (
            first[launch]
            + np.arange(len(launch))
            - np.repeat(np.cumsum(crossed) - crossed, crossed)
        )
        place, amount = edge * columns + column[launch], weight[launch]
        gained = np.bincount(place, weights=amount, minlength=cells * columns)
        lost = np.bincount(place - columns, weights=amount, minlength=cells * columns)
        change = (gained - lost).astype(np.float64, copy=False)
        return change.reshape(cells, columns)[self.sample_cells]

    def shares(self, start_ns: Integers, end_ns: Integers, clock: Clock) -> Floats:
        """Σ over launches of the part of each that lies inside each sample by another clock, shape (s,).

        Args:
            start_ns, end_ns: shape (n,), on the clock of the samples.
            clock: times of that clock → times of one that never goes back.
        """
        start, end = clock(start_ns), clock(end_ns)
        lasting = end > start
        weight = 1.0 / np.where(lasting, end - start, 1.0)
        column = np.zeros(len(start), dtype=np.int64)
        table = _spread(clock(self.edges + self.origin_ns), column, 1, start, end, weight)
        return table[:, 0][self.sample_cells]


def _spread(
    edges: Numbers,
    column: NDArray[np.integer],
    columns: int,
    start: Numbers,
    end: Numbers,
    weight: Floats | None,
) -> Floats:
    """Σ over spans of weight × length inside each cell between edges, shape (cells, columns)."""
    low, high = np.maximum(start, edges[0]), np.minimum(end, edges[-1])
    first = np.searchsorted(edges, low, side="right") - 1
    last = np.searchsorted(edges, high, side="left") - 1
    # One entry a span and cell that it touches: spans plus crossed edges, so never many more.
    touched = np.where(high > low, last - first + 1, 0)
    span = np.repeat(np.arange(len(low)), touched)
    cell = first[span] + np.arange(len(span)) - np.repeat(np.cumsum(touched) - touched, touched)
    inside = np.minimum(high[span], edges[cell + 1]) - np.maximum(low[span], edges[cell])
    amount = inside * (1.0 if weight is None else weight[span])
    cells = len(edges) - 1
    place = cell * columns + column[span]
    table = np.bincount(place, weights=amount, minlength=cells * columns)
    return table.astype(np.float64, copy=False).reshape(cells, columns)


def numbered(ids: Integers) -> tuple[Integers, Integers]:
    """The ids that occur, ascending, and the place of each id among them: `numpy.unique`, without sorting.

    Args:
        ids: not negative, shape (n,).
    """
    if not len(ids) or ids.max() > _DENSE:
        found, which = np.unique(ids, return_inverse=True)
        return found, which
    occurs = np.bincount(ids) > 0
    places = np.cumsum(occurs) - 1
    return np.flatnonzero(occurs), places[ids]


def busy_spans(start_ns: Integers, end_ns: Integers) -> tuple[Integers, Integers]:
    """Starts and ends of the spans in which at least one launch ran, in order, shape (b,)."""
    order = np.argsort(start_ns, kind="stable")
    starts, ends = start_ns[order], np.maximum.accumulate(end_ns[order])
    opens = np.append(True, starts[1:] > ends[:-1])[: len(starts)]
    closes = np.append(opens[1:], True)[: len(starts)]
    return starts[opens], ends[closes]
