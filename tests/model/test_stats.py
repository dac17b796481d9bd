"""Order statistics: intervals of the median by ranks, quantiles from histograms."""

from math import comb

import numpy as np
import pytest
from histogram_reference import histogram_quantile
from hypothesis import given
from hypothesis import strategies as st

from roofmon.model.histogram import NO_HISTOGRAMS
from roofmon.model.stats import (
    BINS,
    bin_edges,
    bin_index,
    median_interval_low_ranks,
    median_interval_ranks,
    median_with_interval,
    quantile_ranks,
)

BIN_WIDTH = 10 ** (1 / 256) - 1  # relative, 0.9 %


@pytest.mark.parametrize(
    ("n", "ranks"),
    [(20, (6, 15)), (10, (2, 9)), (6, (1, 6)), (7, (1, 7)), (9, (2, 8)), (5, (1, 5)), (1, (1, 1))],
)
def test_ranks_that_bound_the_median(n: int, ranks: tuple[int, int]) -> None:
    low, high = median_interval_ranks(n)
    assert (low + 1, high + 1) == ranks


@pytest.mark.parametrize("n", [6, 13, 64, 199, 200, 201, 500, 1001])
def test_ranks_cover_95_percent_and_no_more_than_they_must(n: int) -> None:
    low, high = median_interval_ranks(n)
    below = sum(comb(n, k) for k in range(low + 1)) / 2**n
    assert high == n - 1 - low
    assert 1 - 2 * below >= 0.95
    narrower = low + (1 if n <= 200 else 2)
    assert 1 - 2 * sum(comb(n, k) for k in range(narrower + 1)) / 2**n < 0.95


def test_no_samples_have_no_interval() -> None:
    with pytest.raises(ValueError, match="no samples"):
        median_interval_ranks(0)


def test_median_with_interval_of_1_to_20() -> None:
    samples = np.arange(20, 0, -1.0)
    assert median_with_interval(samples) == (10.5, 6.0, 15.0)


def test_bins_hold_their_durations() -> None:
    edges = bin_edges()
    assert len(edges) == BINS + 1
    durations = np.geomspace(10.5, 9e11, 5000)
    bins = bin_index(durations)
    assert (edges[bins] <= durations * (1 + 1e-12)).all()
    assert (durations <= edges[bins + 1] * (1 + 1e-12)).all()
    # 1 µs is two decades over 10 ns: bin 512.
    assert bin_index(np.array([1000.0])).tolist() == [512]
    assert bin_index(np.array([0.0, -5.0, np.nan, np.inf, 1e30])).tolist() == [
        0,
        0,
        0,
        BINS - 1,
        BINS - 1,
    ]


def quantiles(samples: np.ndarray, qs: list[float]) -> np.ndarray:
    bins, counts = np.unique(bin_index(samples), return_counts=True)
    ranks = np.array([quantile_ranks(len(samples), q) for q in qs])
    return histogram_quantile(bins, counts, ranks, samples.min(), samples.max())


@pytest.mark.parametrize("spread", [0.002, 0.05, 0.6])
def test_quantiles_of_many_samples_are_within_half_a_bin(spread: float) -> None:
    samples = np.random.default_rng(7).lognormal(np.log(80e3), spread, 4000)
    qs = [0.05, 0.25, 0.5, 0.75, 0.95]
    assert quantiles(samples, qs) == pytest.approx(np.quantile(samples, qs), rel=BIN_WIDTH / 2)


@given(st.lists(st.floats(20, 1e10), min_size=1, max_size=60), st.floats(0, 1))
def test_a_quantile_is_never_a_whole_bin_away(durations: list[float], q: float) -> None:
    samples = np.array(durations)
    assert quantiles(samples, [q])[0] == pytest.approx(
        np.quantile(samples, q), rel=BIN_WIDTH * 1.001
    )


def test_the_median_of_two_is_their_mean() -> None:
    assert quantiles(np.array([100.0, 1000.0]), [0.5])[0] == pytest.approx(550, rel=BIN_WIDTH)


def test_one_bin_is_exact_to_the_range_of_its_samples() -> None:
    samples = np.full(9, 12_345.0)
    assert quantiles(samples, [0.0, 0.5, 1.0]).tolist() == [12_345.0] * 3


def test_samples_are_spread_evenly_within_a_bin() -> None:
    # Eleven samples in one bin: the sixth is in the middle of their range.
    samples = np.linspace(100_100.0, 100_200.0, 11)
    assert len(np.unique(bin_index(samples))) == 1
    assert quantiles(samples, [0.5])[0] == pytest.approx(100_150, abs=1e-6)


def test_an_empty_histogram_has_no_quantile() -> None:
    nothing = np.empty(0, dtype=np.int64)
    assert np.isnan(histogram_quantile(nothing, nothing, np.array([0.0]), 0, 0)).all()


def test_histograms_keep_the_latest_count_of_each_kernel() -> None:
    def more(histograms, ids, bins, counts):  # type: ignore[no-untyped-def]
        return histograms.updated(np.array(ids), np.array(bins), np.array(counts))

    first = more(NO_HISTOGRAMS, [7, 7, 8], [100, 101, 100], [1, 2, 30])
    second = more(first, [7, 7], [101, 90], [5, 4])
    assert [a.tolist() for a in first.of(7)] == [[100, 101], [1, 2]], "snapshots do not change"
    assert [a.tolist() for a in second.of(7)] == [[90, 100, 101], [4, 1, 5]]
    assert [a.tolist() for a in second.of(8)] == [[100], [30]]
    assert [a.tolist() for a in second.of(9)] == [[], []]
    for count in range(200):  # many ticks fold into one chunk without losing any
        second = more(second, [7], [101], [count])
    assert [a.tolist() for a in second.of(7)] == [[90, 100, 101], [4, 1, 199]]
    assert len(second.chunks) < 70
    assert more(second, [], [], []) is second


def test_ranks_of_many_counts_are_those_of_each() -> None:
    launches = np.array([*range(1, 400), 1000, 12_345, 10**6])
    expected = [median_interval_ranks(int(n))[0] for n in launches]
    assert median_interval_low_ranks(launches).tolist() == expected
