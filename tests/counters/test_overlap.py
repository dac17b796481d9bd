"""Launches against samples: by hand, and against sums over every pair."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmon.counters.overlap import Cells, busy_spans
from roofmon.counters.samples import Samples, usable

T0 = 1_796_007_743_000_000_000  # times as large as real ones, which a float64 cannot hold to the ns


def samples(edges, values=None, gaps=()):
    """Samples between successive edges (ns after T0), without those numbered in `gaps`."""
    start, end = T0 + np.array(edges[:-1]), T0 + np.array(edges[1:])
    counts = np.ones((len(start), 1)) if values is None else np.asarray(values, dtype=float)
    keep = ~np.isin(np.arange(len(start)), gaps)
    return Samples(("count",), start, end, counts).take(keep)


def overlaps(found, launches, columns=1, weight=None):
    column, start, end = np.array(launches, dtype=np.int64).reshape(-1, 3).T
    return Cells.of(found).overlaps(column, columns, T0 + start, T0 + end, weight)


def test_launches_shorter_and_longer_than_a_sample_by_hand():
    #          0        100        200        300        400
    # col 0    |   30-50 |    150 - - - - - - 320 |        |
    # col 1    |      80-|-120 |          |          | 390 -|- 450
    found = overlaps(
        samples([0, 100, 200, 300, 400]),
        [(0, 30, 50), (0, 150, 320), (1, 80, 120), (1, 390, 450)],
        2,
    )
    np.testing.assert_array_equal(found, [[20, 20], [50, 20], [100, 0], [20, 10]])


def test_overlapping_launches_of_one_kernel_count_twice():
    found = overlaps(samples([0, 100, 200]), [(0, 20, 160), (0, 40, 60)])
    np.testing.assert_array_equal(found, [[100], [60]])


def test_time_in_a_gap_between_samples_belongs_to_no_sample():
    found = overlaps(samples([0, 100, 200, 300], gaps=[1]), [(0, 50, 250)])
    np.testing.assert_array_equal(found, [[50], [50]])


def test_a_launch_outside_all_samples_or_of_no_length_leaves_no_trace():
    found = overlaps(samples([0, 100]), [(0, -50, 0), (0, 100, 160), (0, 30, 30), (0, -90, -10)])
    np.testing.assert_array_equal(found, [[0]])


def test_no_launches_at_all():
    assert overlaps(samples([0, 100]), []).tolist() == [[0.0]]


launch = st.tuples(st.integers(0, 3), st.integers(-500, 2500), st.integers(0, 900))


@settings(max_examples=40)
@given(
    st.lists(launch, max_size=40),
    st.lists(st.integers(1, 300), min_size=1, max_size=12),
    st.sets(st.integers(0, 10)),
)
def test_each_launch_is_distributed_exactly(launches, lengths, gaps):
    edges = np.concatenate([[0], np.cumsum(lengths)])
    gaps = [gap for gap in gaps if gap < len(lengths) - 1]  # the last sample stays
    found = samples(edges, gaps=gaps)
    table = [(column, start, start + length) for column, start, length in launches]
    weight = np.array([1 / max(end - start, 1) for _, start, end in table])
    expected, shares = np.zeros((len(found), 4)), np.zeros((len(found), 4))
    for (column, start, end), of_one in zip(table, weight, strict=True):
        for row in range(len(found)):
            low, high = found.start_ns[row] - T0, found.end_ns[row] - T0
            inside = max(0, min(end, high) - max(start, low))
            expected[row, column] += inside
            shares[row, column] += inside * of_one
    np.testing.assert_array_equal(overlaps(found, table, 4), expected)
    np.testing.assert_allclose(overlaps(found, table, 4, weight), shares, rtol=1e-12)
    # Conservation: without gaps, what lies between the outer edges is all there.
    if not gaps:
        whole = sum(max(0, min(end, edges[-1]) - max(start, 0)) for _, start, end in table)
        assert overlaps(found, table, 4).sum() == whole


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 60)), max_size=20))
def test_busy_spans_cover_what_the_launches_cover(spans):
    start = np.array([s for s, _ in spans], dtype=np.int64)
    end = start + np.array([n for _, n in spans], dtype=np.int64)
    covered = np.zeros(300, dtype=bool)
    for low, high in zip(start, end, strict=True):
        covered[low:high] = True
    starts, ends = busy_spans(start, end)
    mine = np.zeros(300, dtype=int)
    for low, high in zip(starts, ends, strict=True):
        mine[low:high] += 1
    np.testing.assert_array_equal(mine, covered)  # each ns once
    assert (starts[1:] > ends[:-1]).all()


def test_the_first_sample_of_a_session_and_broken_ones_are_dropped():
    edges = [0, 100, 200, 300, 400, 500, 600]
    found = samples(edges, np.arange(6.0)[:, np.newaxis])
    start, end, values = found.start_ns.copy(), found.end_ns.copy(), found.values.copy()
    start[0] = 0  # as the driver gives the first one
    start[2], end[2] = 0, 0  # no times
    values[4] = np.nan
    kept = usable(Samples(found.metrics, start, end, values))
    # Number 3 follows the gap that number 2 left, number 5 the one of number 4.
    assert kept.values[:, 0].tolist() == [1]


def test_jitter_of_the_edges_is_not_a_gap():
    found = samples([0, 100_000, 200_000, 300_000])
    start = found.start_ns + np.array([0, 54, -301])
    kept = usable(Samples(found.metrics, start, found.end_ns, found.values))
    assert len(kept) == 3
    np.testing.assert_array_equal(kept.end_ns[:-1], kept.start_ns[1:])


def test_samples_of_another_length_or_after_a_gap_are_dropped():
    found = samples([0, 100, 200, 400, 500, 600, 700], np.arange(6.0)[:, np.newaxis], gaps=[4])
    assert usable(found).values[:, 0].tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("traced", "kept"),
    [([[0, 600]], [0, 1, 2, 3, 4, 5]), ([[50, 320], [400, 600]], [1, 2, 4, 5]), ([], [])],
)
def test_what_was_not_traced_is_masked(traced, kept):
    found = samples([0, 100, 200, 300, 400, 500, 600], np.arange(6.0)[:, np.newaxis])
    spans = T0 + np.array(traced, dtype=np.int64).reshape(-1, 2)
    assert usable(found, traced_ns=spans).values[:, 0].tolist() == kept


def test_samples_that_touch_a_loss_are_masked():
    found = samples([0, 100, 200, 300, 400], np.arange(4.0)[:, np.newaxis])
    lost = T0 + np.array([[150, 160], [300, 310]])
    assert usable(found, lost_ns=lost).values[:, 0].tolist() == [0, 2]
