"""Quantiles of one kernel's histogram, written plainly: what the code for many at once must agree with."""

import numpy as np
from numpy.typing import NDArray

from roofmon.model.stats import bin_edges


def histogram_quantile(
    bins: NDArray[np.integer],
    counts: NDArray[np.integer],
    ranks: NDArray[np.floating],
    min_ns: float,
    max_ns: float,
) -> NDArray[np.float64]:
    """Durations in ns at 0-based (fractional) `ranks` of one kernel's histogram.

    Args:
        bins: bin numbers, ascending, shape (b,).
        counts: launches in each, shape (b,), positive.
        ranks: ranks in [0, n − 1], any shape; outside they are clipped.
        min_ns, max_ns: the kernel's extreme durations, which clip the end bins.

    Returns: durations, shape of `ranks`; NaN for an empty histogram.
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    if len(bins) == 0:
        return np.full(ranks.shape, np.nan)
    edges = bin_edges()
    cumulative = np.cumsum(counts)
    ranks = np.clip(ranks, 0, cumulative[-1] - 1)

    def at(rank: NDArray[np.float64]) -> NDArray[np.float64]:
        bin_of = np.searchsorted(cumulative, rank, side="right")
        low = edges[bins[bin_of]].clip(min_ns, max_ns)
        high = edges[bins[bin_of] + 1].clip(min_ns, max_ns)
        before = cumulative[bin_of] - counts[bin_of]
        found: NDArray[np.float64] = low + (high - low) * (rank - before + 0.5) / counts[bin_of]
        return found

    # Between two samples that lie in bins far apart a quantile is between them, not in either bin.
    lower = np.floor(ranks)
    durations: NDArray[np.float64] = at(lower) + (at(np.ceil(ranks)) - at(lower)) * (ranks - lower)
    return durations
