"""Histograms of all kernels' durations, kept as the changes that arrived and folded when asked for."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofmon.model.stats import bin_edges

_SHIFT = 16  # a bin number fits in the low 16 bits of a key
_FOLD_AT = 64  # chunks kept apart before they are folded into one


@dataclass(frozen=True, eq=False)
class Histograms:
    """Launch counts by kernel id and bin. Immutable: `updated` returns a new one sharing the chunks.

    Counts in later chunks replace earlier ones (they are cumulative), so a tick costs only its changes
    and nothing is sorted until the drill-down or a comparison asks.
    """

    chunks: tuple[tuple[NDArray[np.uint64], NDArray[np.int64]], ...] = ()

    def updated(
        self,
        ids: NDArray[np.integer],
        bins: NDArray[np.integer],
        counts: NDArray[np.integer],
    ) -> "Histograms":
        """With the cumulative `counts` of (`ids`, `bins`) replaced; all of shape (m,)."""
        if len(ids) == 0:
            return self
        keys = (ids.astype(np.uint64) << np.uint64(_SHIFT)) | bins.astype(np.uint64)
        chunks = (*self.chunks, (keys, counts.astype(np.int64)))
        return Histograms((_fold(chunks),) if len(chunks) > _FOLD_AT else chunks)

    def folded(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Keys (id << 16 | bin, ascending) and counts of all kernels, shape (m,) each."""
        return _fold(self.chunks) if self.chunks else _EMPTY

    def since(self, before: "Histograms") -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Keys and counts, as `folded`, of what came after an earlier state of the same stream."""
        keys, counts = self.folded()
        old_keys, old_counts = before.folded()
        at = np.searchsorted(keys, old_keys)
        known = at < len(keys)
        known[known] = keys[at[known]] == old_keys[known]
        counts = counts.copy()
        counts[at[known]] -= old_counts[known]
        return keys[counts > 0], counts[counts > 0]

    def of(self, kernel_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bins (ascending) and counts of one kernel, shape (b,) each."""
        low, high = kernel_id << _SHIFT, (kernel_id + 1) << _SHIFT
        mine = []
        for keys, counts in self.chunks:
            inside = (keys >= low) & (keys < high)
            if inside.any():
                mine.append((keys[inside], counts[inside]))
        if not mine:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        keys, counts = _fold(tuple(mine))
        return (keys & np.uint64((1 << _SHIFT) - 1)).astype(np.int64), counts


def _fold(
    chunks: tuple[tuple[NDArray[np.uint64], NDArray[np.int64]], ...],
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """One chunk in which the latest count of each key stands, keys ascending."""
    keys = np.concatenate([k for k, _ in reversed(chunks)])
    counts = np.concatenate([c for _, c in reversed(chunks)])
    unique, first = np.unique(
        keys, return_index=True
    )  # the first is the latest: order was reversed
    return unique, counts[first]


def quantiles(
    keys: NDArray[np.uint64],
    counts: NDArray[np.int64],
    ids: NDArray[np.integer],
    ranks: NDArray[np.floating],
    min_ns: NDArray[np.floating],
    max_ns: NDArray[np.floating],
) -> NDArray[np.float64]:
    """Durations at fractional ranks of many kernels at once, evenly spread within a bin.

    Between two launches that lie in bins far apart a quantile is between them, not in either bin.

    Args:
        keys, counts: as `Histograms.folded` gives them.
        ids: kernels, shape (k,), each with at least one launch in there.
        ranks: 0-based fractional ranks within each kernel, shape (q, k).
        min_ns, max_ns: extreme durations that clip the bins, shape (k,).

    Returns: durations in ns, shape (q, k).
    """
    cumulative = np.cumsum(counts)
    first = np.searchsorted(keys, ids.astype(np.uint64) << np.uint64(_SHIFT))
    end = np.searchsorted(keys, (ids.astype(np.uint64) + np.uint64(1)) << np.uint64(_SHIFT))
    before_kernel = cumulative[first] - counts[first]
    edges = bin_edges()

    def at(rank: NDArray[np.float64]) -> NDArray[np.float64]:
        found = np.searchsorted(cumulative, before_kernel + rank, side="right").clip(first, end - 1)
        bins = (keys[found] & np.uint64((1 << _SHIFT) - 1)).astype(np.int64)
        low, high = edges[bins].clip(min_ns, max_ns), edges[bins + 1].clip(min_ns, max_ns)
        before = cumulative[found] - counts[found] - before_kernel
        within = (rank - before + 0.5) / counts[found]
        durations: NDArray[np.float64] = low + (high - low) * within
        return durations

    lower = np.floor(ranks)
    below = at(lower)
    durations: NDArray[np.float64] = below + (at(np.ceil(ranks)) - below) * (ranks - lower)
    return durations


_EMPTY = (np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64))
NO_HISTOGRAMS = Histograms()
