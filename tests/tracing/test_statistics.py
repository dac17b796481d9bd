"""Statistics against numpy on the raw samples, and against numbers worked out by hand."""

import time

import numpy as np
import pytest
from histogram_reference import histogram_quantile
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmon.model.stats import (
    bin_index,
    median_interval_ranks,
    quantile_ranks,
)
from roofmon.tracing.statistics import Changes, KernelStatistics

BIN = 10 ** (1 / 256) - 1  # relative width of a bin


def add(statistics, rows, start, duration, flops=None, bytes=None, depth=None, source=0):
    n = len(rows)
    unknown = np.full(n, np.nan)
    statistics.add(
        np.asarray(rows, dtype=np.uint32),
        np.asarray(start, dtype=np.uint64),
        np.asarray(duration, dtype=np.uint64),
        unknown if flops is None else np.asarray(flops, dtype=np.float64),
        unknown if bytes is None else np.asarray(bytes, dtype=np.float64),
        np.zeros(n, dtype=np.uint16) if depth is None else np.asarray(depth, dtype=np.uint16),
        source=source,
    )


def columns(changes: Changes) -> dict[str, np.ndarray]:
    return vars(changes)


def assert_same(one: Changes, other: Changes) -> None:
    for name, values in columns(one).items():
        np.testing.assert_allclose(values, columns(other)[name], rtol=1e-9, err_msg=name)


def test_one_row_by_hand():
    statistics = KernelStatistics()
    add(
        statistics,
        rows=[0, 0, 0, 0],
        start=[1000, 2000, 2500, 9000],
        duration=[100, 200, 300, 1000],
        flops=[10, 10, 10, 10],
        bytes=[1, 2, 3, 4],
        depth=[0, 0, 1, 0],
    )
    (row,) = [dict(zip(columns(c), values, strict=True)) for c, values in one_row(statistics)]
    assert (row["launches"], row["total_ns"], row["outer_ns"]) == (4, 1600, 1300)
    assert (row["min_ns"], row["max_ns"], row["last_end_ns"]) == (100, 1000, 10_000)
    assert row["median_ns"] == pytest.approx(250, rel=BIN)
    # 2000 − 1100 and 9000 − 2200; the first has none before it, the third is nested.
    assert row["gap_ns"] == (900 + 6800) / 2
    # mean 400; deviations 300, 200, 100, 600 → 500,000 / 3
    assert row["cv"] == pytest.approx((500_000 / 3) ** 0.5 / 400)
    assert (row["flops_mean"], row["bytes_mean"]) == (10, 2.5)
    assert row["work_varies"]
    assert row["typical_ns"] == 400


def one_row(statistics):
    changes = statistics.all_rows()
    assert changes.ids.tolist() == [0]
    yield changes, [values[0] for values in columns(changes).values()]


@pytest.fixture(scope="module")
def sample():
    """20,000 records of 40 rows in uneven numbers, their times log-normal."""
    random = np.random.default_rng(1)
    n = 20_000
    rows = (random.random(n) ** 3 * 40).astype(np.uint32) * 7
    duration = (10 ** (3 + rows / 100) * random.lognormal(0, 0.3, n)).astype(np.uint64)
    start = np.cumsum(random.integers(0, 3_000, n)).astype(np.uint64) + 10**18
    flops = np.where(rows == 14, np.nan, 1e6 * (1 + rows))
    bytes = random.uniform(1e3, 2e3, n)
    bytes[np.flatnonzero(rows == 7)[3]] = np.nan
    depth = (random.random(n) < 0.2).astype(np.uint16)
    return rows, start, duration, flops, bytes, depth


def filled(sample, batches: int) -> KernelStatistics:
    statistics = KernelStatistics()
    for part in np.array_split(np.arange(len(sample[0])), batches):
        add(statistics, *(column[part] for column in sample))
    return statistics


def test_agrees_with_numpy_on_the_raw_samples(sample):
    rows, start, duration, flops, bytes, depth = sample
    changes = filled(sample, 37).take_changes()
    assert changes.ids.tolist() == np.unique(rows).tolist()
    for k, row in enumerate(changes.ids):
        mine = rows == row
        raw = duration[mine].astype(np.float64)
        assert changes.launches[k] == len(raw)
        assert changes.total_ns[k] == duration[mine].sum()
        assert changes.outer_ns[k] == duration[mine & (depth == 0)].sum()
        assert changes.min_ns[k] == raw.min()
        assert changes.max_ns[k] == raw.max()
        assert changes.last_end_ns[k] == (start[mine] + duration[mine]).max()
        assert changes.cv[k] == pytest.approx(raw.std(ddof=1) / raw.mean(), rel=1e-9)
        assert changes.flops_mean[k] == pytest.approx(flops[mine].mean(), nan_ok=True)
        assert changes.bytes_mean[k] == pytest.approx(bytes[mine].mean(), nan_ok=True)
        ordered = np.sort(raw)
        low, high = median_interval_ranks(len(raw))
        for got, rank in (
            (changes.median_low_ns[k], low),
            (changes.median_high_ns[k], high),
            (changes.p05_ns[k], quantile_ranks(len(raw), 0.05)),
            (changes.p95_ns[k], quantile_ranks(len(raw), 0.95)),
            (changes.median_ns[k], quantile_ranks(len(raw), 0.5)),
        ):
            # A bin wide, and between the neighbours of a fractional rank.
            assert got >= ordered[int(np.floor(rank))] * (1 - BIN)
            assert got <= ordered[int(np.ceil(rank))] * (1 + BIN)
    assert np.isnan(changes.flops_mean[changes.ids == 14]).all()
    assert np.isnan(changes.bytes_mean[changes.ids == 7]).all()
    assert changes.work_varies.all()
    np.testing.assert_array_equal(changes.typical_ns, changes.total_ns / changes.launches)


def test_quantiles_and_bins_agree_with_the_model(sample):
    rows, _, duration, *_ = sample
    changes = filled(sample, 3).take_changes()
    for k, row in enumerate(changes.ids):
        mine = changes.hist_ids == row
        bins, counts = changes.hist_bins[mine], changes.hist_counts[mine]
        expected = np.unique(bin_index(duration[rows == row]), return_counts=True)
        np.testing.assert_array_equal(bins, expected[0])
        np.testing.assert_array_equal(counts, expected[1])
        n = int(changes.launches[k])
        ranks = np.array([quantile_ranks(n, q) for q in (0.05, 0.5, 0.95)])
        model = histogram_quantile(bins, counts, ranks, changes.min_ns[k], changes.max_ns[k])
        got = [changes.p05_ns[k], changes.median_ns[k], changes.p95_ns[k]]
        np.testing.assert_allclose(got, model, rtol=1e-12)


def test_batches_do_not_matter(sample):
    assert_same(filled(sample, 1).all_rows(), filled(sample, 211).all_rows())


def test_only_changes_are_taken_and_they_add_up(sample):
    statistics = KernelStatistics()
    seen = {}
    for part in np.array_split(np.arange(len(sample[0])), 50):
        some = [column[part] for column in sample]
        add(statistics, *some)
        statistics.all_rows()  # must not take anything away
        changes = statistics.take_changes()
        assert changes.ids.tolist() == np.unique(some[0]).tolist()
        pairs = {(int(r), int(b)) for r, b in zip(some[0], bin_index(some[2]), strict=True)}
        taken = list(zip(changes.hist_ids.tolist(), changes.hist_bins.tolist(), strict=True))
        assert set(taken) == pairs
        assert len(taken) == len(pairs)
        seen.update(zip(taken, changes.hist_counts.tolist(), strict=True))
    whole = statistics.all_rows()
    keys = zip(whole.hist_ids.tolist(), whole.hist_bins.tolist(), strict=True)
    assert seen == dict(zip(keys, whole.hist_counts.tolist(), strict=True))
    nothing = statistics.take_changes()
    assert all(len(values) == 0 for values in columns(nothing).values())


def test_empty_and_reset():
    statistics = KernelStatistics()
    assert len(statistics.take_changes().ids) == len(statistics.all_rows().ids) == 0
    add(statistics, [], [], [])
    add(statistics, [300], [10], [5])
    statistics.reset()
    assert len(statistics.take_changes().ids) == len(statistics.all_rows().ids) == 0
    add(statistics, [1], [10], [5])
    changes = statistics.take_changes()
    assert (changes.ids.tolist(), changes.launches.tolist()) == ([1], [1])
    assert changes.median_ns.tolist() == [5]
    assert np.isnan([changes.cv[0], changes.gap_ns[0], changes.flops_mean[0]]).all()


def test_cv_of_a_million_equal_launches_survives_an_odd_first_one():
    random = np.random.default_rng(2)
    duration = random.normal(1e6, 1e3, 1_000_000).astype(np.uint64)
    duration[0] = 10**9
    statistics = KernelStatistics()
    for part in np.array_split(duration, 200):
        add(statistics, np.zeros(len(part)), np.zeros(len(part)), part)
    raw = duration.astype(np.float64)
    (cv,) = statistics.take_changes().cv
    assert cv == pytest.approx(raw.std(ddof=1) / raw.mean(), rel=1e-9)
    statistics.reset()
    for part in np.array_split(duration[1:], 200):
        add(statistics, np.zeros(len(part)), np.zeros(len(part)), part)
    assert statistics.take_changes().cv[0] == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize(("ratio", "varies"), [(1.0, False), (1.009, False), (1.02, True)])
@pytest.mark.parametrize("quantity", ["flops", "bytes"])
def test_work_varies_by_over_a_percent(quantity, ratio, varies):
    statistics = KernelStatistics()
    add(statistics, [0] * 4, [0] * 4, [10, 10, 10, 90], **{quantity: [1e9, 1e9, 1e9, 1e9 * ratio]})
    changes = statistics.take_changes()
    assert changes.work_varies.tolist() == [varies]
    assert changes.typical_ns[0] == (30 if varies else changes.median_ns[0])
    assert changes.median_ns[0] < 11


def test_gap_is_of_the_process_and_never_negative():
    statistics = KernelStatistics()
    add(statistics, [0], [1000], [100], source=1)
    add(statistics, [0], [5000], [100], source=2)
    # Two overlapping threads: the second starts while the first runs.
    add(statistics, [1, 2], [1400, 1300], [50, 500], source=1)
    changes = statistics.take_changes()
    assert np.isnan(changes.gap_ns[0])
    assert changes.gap_ns[1:].tolist() == [0, 200]


@settings(max_examples=50)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 70), st.integers(0, 2**62), st.integers(0, 2**61)), max_size=8
        ),
        max_size=5,
    )
)
def test_any_times_give_statistics_within_their_range(batches):
    statistics = KernelStatistics()
    for batch in batches:
        add(statistics, *np.array(batch, dtype=np.int64).reshape(-1, 3).T)
    changes = statistics.all_rows()
    for name in ("median_ns", "median_low_ns", "median_high_ns", "p05_ns", "p95_ns"):
        values = columns(changes)[name]
        assert (values >= changes.min_ns * (1 - 1e-9)).all()
        assert (values <= changes.max_ns * (1 + 1e-9)).all()
    assert changes.hist_counts.sum() == changes.launches.sum() == sum(map(len, batches))


def test_keeps_up_with_many_records_of_many_rows():
    random = np.random.default_rng(3)
    statistics = KernelStatistics()
    n = 10_000
    begin = time.process_time()
    for batch in range(20):  # a second of 200,000 records/s, read 20 times and taken twice
        rows = random.integers(0, 5_000, n)
        duration = (1e4 * (1 + rows) * random.lognormal(0, 0.02, n)).astype(np.int64)
        add(statistics, rows, np.arange(n) + batch * n, duration, np.ones(n), np.ones(n))
        if batch % 10 == 9:
            statistics.take_changes()
    assert time.process_time() - begin < 1  # measured: see tests/benchmarks/bench_region.py


BITS = np.array([1, 1, 2, 4], dtype=np.uint64)


def test_launches_on_a_gpu_know_their_streams_and_graphs_and_no_work():
    statistics = KernelStatistics()
    rows, start, duration = (
        np.array([0, 1, 0, 0]),
        np.array([0, 10, 20, 30]),
        np.array([5, 7, 9, 4]),
    )
    statistics.add_on_gpu(rows, start, duration, BITS, np.array([True, False, False, True]))
    changes = statistics.take_changes()
    assert changes.launches.tolist() == [3, 1]
    assert changes.total_ns.tolist() == changes.outer_ns.tolist() == [18, 7]
    assert changes.last_end_ns.tolist() == [34, 17]
    assert changes.streams.tolist() == [0b111, 0b001]
    assert changes.graph_share.tolist() == [pytest.approx(2 / 3), 0]
    assert np.isnan([*changes.flops_mean, *changes.bytes_mean, *changes.gap_ns]).all()
    # Without work nothing varies: the median stands for a launch.
    np.testing.assert_array_equal(changes.typical_ns, changes.median_ns)


def test_copies_have_bytes_that_vary():
    statistics = KernelStatistics()
    rows, start = np.array([3, 3]), np.array([0, 100])
    sizes = np.array([1000.0, 3000.0])
    statistics.add_on_gpu(
        rows, start, np.array([10, 30]), BITS[:2], np.zeros(2, dtype=bool), bytes=sizes
    )
    changes = statistics.take_changes()
    assert changes.bytes_mean.tolist() == [2000]
    assert changes.work_varies.tolist() == [True]
    assert changes.typical_ns.tolist() == [20]  # Σ bytes / Σ time is what it achieves


def test_what_is_found_out_later_is_added_and_changes_a_row():
    statistics = KernelStatistics()
    add(statistics, [0, 0, 1], [0, 50, 90], [10, 10, 10])
    statistics.add_on_gpu(
        np.array([2]), np.array([5]), np.array([5]), BITS[:1], np.zeros(1, dtype=bool)
    )
    statistics.take_changes()
    statistics.add_gaps(np.array([2, 2]), np.array([np.nan, 8.0]))
    statistics.add_inside(np.array([0, 0]), np.array([4.0, 6.0]))
    changes = statistics.take_changes()
    assert changes.ids.tolist() == [0, 2]
    assert (changes.gap_ns[1], changes.inside_ns[0]) == (8, 5)
    assert changes.inside_total_ns[0] == 10
    assert np.isnan([changes.inside_ns[1], changes.inside_total_ns[1]]).all()
    # A row that never ran (its records were lost) is not told.
    statistics.add_gaps(np.array([500]), np.array([1.0]))
    assert len(statistics.take_changes().ids) == 0


def test_regions_and_launches_of_one_session_do_not_mix():
    statistics = KernelStatistics()
    add(statistics, [0, 0], [0, 100], [10, 10], source=1)
    statistics.add_on_gpu(
        np.array([1, 1]), np.array([20, 40]), np.array([1, 1]), BITS[:2], np.ones(2, dtype=bool)
    )
    changes = statistics.take_changes()
    assert changes.gap_ns[0] == 90  # between its regions, whatever the GPU did
    assert np.isnan(changes.graph_share[0])
    assert changes.streams.tolist() == [0, 1]
