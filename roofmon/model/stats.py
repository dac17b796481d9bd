"""Durations of a kernel's launches as a log-spaced histogram, and order statistics from it.

A histogram with 256 bins a decade (0.9 % wide) stands for the raw samples in the stream, in recordings
and on the screen: quantiles, intervals and the comparison need nothing else, and 5,000 kernels stay
small. It is sparse: a kernel's launches fill a few dozen bins. Within a bin, samples are taken as
evenly spread, clipped to the kernel's own smallest and largest duration, so that a kernel whose
launches all fall in one bin still has an exact median to within its own range.
"""

import math

import numpy as np
from numpy.typing import NDArray

BINS_PER_DECADE = 256
LOWEST_NS = 10.0
DECADES = 11  # 10 ns … 1000 s
BINS = BINS_PER_DECADE * DECADES

_EXACT_RANKS = 200
Z95 = 1.959963984540054
"""Standard errors on each side of a 95 % interval of the normal distribution."""


def bin_index(duration_ns: NDArray[np.floating] | NDArray[np.integer]) -> NDArray[np.uint16]:
    """The bin of each duration in ns, shape (n,); durations outside the range go to the end bins."""
    with np.errstate(divide="ignore", invalid="ignore"):
        position = np.log10(np.asarray(duration_ns, dtype=np.float64) / LOWEST_NS) * BINS_PER_DECADE
    position = np.nan_to_num(position, nan=0.0, posinf=BINS - 1.0, neginf=0.0)
    bins: NDArray[np.uint16] = np.clip(np.floor(position), 0, BINS - 1).astype(np.uint16)
    return bins


def bin_edges() -> NDArray[np.float64]:
    """Edges of the bins in ns, shape (BINS + 1,)."""
    edges: NDArray[np.float64] = LOWEST_NS * 10 ** (np.arange(BINS + 1) / BINS_PER_DECADE)
    return edges


def quantile_ranks(n: int, q: float) -> float:
    """The 0-based fractional rank of quantile `q` among `n` sorted samples (linear, numpy's)."""
    return q * (n - 1)


def median_interval_ranks(n: int) -> tuple[int, int]:
    """0-based ranks of the order statistics that bound the median with at least 95 % confidence.

    From the binomial distribution: the number of samples under the true median is Binomial(n, ½).
    For n = 20 the ranks are 5 and 14 (1-based 6 and 15, covering 95.9 %), for n = 10 they are 1 and 8
    (97.9 %). For n < 6 no two ranks cover 95 %: the extremes are returned, the widest there is. Over
    n = 200 the normal approximation is used; it is conservative by at most one rank there.
    """
    if n < 1:
        raise ValueError("the median of no samples has no interval")
    if n > _EXACT_RANKS:
        low = max(0, math.floor(n / 2 - Z95 * math.sqrt(n) / 2) - 1)
        return low, n - 1 - low
    tail, low = 0.0, 0
    for k in range(n // 2):
        tail += math.comb(n, k) / 2**n
        if tail > 0.025:
            break
        low = k + 1
    low = max(0, low - 1)
    return low, n - 1 - low


def median_interval_low_ranks(launches: NDArray[np.integer]) -> NDArray[np.int64]:
    """The lower ranks of `median_interval_ranks` for many counts, shape (n,); the upper mirror them."""
    normal = np.floor(launches / 2 - Z95 * np.sqrt(launches) / 2) - 1
    exact = _LOW_RANKS[np.minimum(launches, _EXACT_RANKS)]
    ranks: NDArray[np.int64] = np.where(launches <= _EXACT_RANKS, exact, normal).astype(np.int64)
    return ranks


def median_with_interval(samples: NDArray[np.floating]) -> tuple[float, float, float]:
    """Median and its 95 % interval by ranks of `samples`, shape (n,): (median, low, high)."""
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    low, high = median_interval_ranks(len(ordered))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])


_LOW_RANKS = np.array([0] + [median_interval_ranks(n)[0] for n in range(1, _EXACT_RANKS + 1)])
