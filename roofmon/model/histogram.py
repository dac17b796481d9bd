"""Histograms of all kernels' durations, kept as the changes that arrived and folded when asked for."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SHIFT = 16  # a bin number fits in the low 16 bits of a key
_FOLD_AT = 64  # chunks kept apart before they are folded into one


@dataclass(frozen=True)
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


NO_HISTOGRAMS = Histograms()
