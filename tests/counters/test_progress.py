"""How others slow a kernel down, and what launches would take alone, from durations only."""

import numpy as np
import pytest
from made_up_device import BANDWIDTH, EIGHT, Kernel, run_device, shuffled

from roofmon.counters.overlap import Cells, Launches
from roofmon.counters.progress import alone_durations, progress_clocks
from roofmon.counters.samples import Samples
from roofmon.counters.sizes import Sizes, kernel_of


def launches(table):
    kernel, start, end = np.array(table, dtype=np.int64).T
    return Launches(kernel, start, end)


def test_one_stream_needs_no_clocks():
    run = run_device(0.05, EIGHT, shuffled(8), seed=1)
    assert progress_clocks(run.launches()) == {}
    assert progress_clocks(launches(np.zeros((0, 3)))) == {}


def test_launches_beside_others_take_as_long_as_alone_by_their_own_clock():
    # Each asks for 3/4 of the bandwidth: side by side both run at 2/3 of their speed.
    kernels = [Kernel(100e3, 0.75 * BANDWIDTH * 100e3), Kernel(30e3, 0.75 * BANDWIDTH * 30e3)]
    run = run_device(0.3, kernels, shuffled(2), streams=2, gap_ns=20_000, seed=2)
    found = run.launches()
    duration = found.end_ns - found.start_ns
    alone = alone_durations(found, progress_clocks(found))
    for number, kernel in enumerate(kernels):
        # What ran beside the last ones has no record.
        mine = (found.kernel == number) & (found.end_ns < found.end_ns[-1] - 1_000_000)
        assert duration[mine].max() > 1.4 * kernel.duration_ns
        np.testing.assert_allclose(alone[mine], kernel.duration_ns, rtol=0.05)


def test_kernels_that_do_not_slow_each_other_keep_their_time():
    kernels = [Kernel(100e3, 0.3 * BANDWIDTH * 100e3), Kernel(30e3, 0.3 * BANDWIDTH * 30e3)]
    found = run_device(0.2, kernels, shuffled(2), streams=2, gap_ns=20_000, seed=3).launches()
    alone = alone_durations(found, progress_clocks(found))
    np.testing.assert_allclose(alone, found.end_ns - found.start_ns, rtol=0.01)


def test_a_varying_clock_is_not_taken_for_slowing():
    # Durations vary by a quarter for reasons of their own, whatever runs beside.
    random = np.random.default_rng(4)
    table = []
    for kernel in (0, 1):
        length = random.uniform(75e3, 125e3, 2000)
        start = np.cumsum(length + random.exponential(60e3, 2000)) - length
        table.append(np.column_stack([np.full(2000, kernel), start, start + length]))
    found = launches(np.concatenate(table))
    alone = alone_durations(found, progress_clocks(found))
    assert np.median(np.abs(alone / (found.end_ns - found.start_ns) - 1)) < 0.02


def test_shares_follow_a_clock():
    # By a clock that runs at half speed in [100, 200), a launch over [50, 250) has done 50 of its 150
    # after 50 ns, 50 more after 100 further ones.
    def clock(times):
        return np.interp(times, [0, 100, 200, 300], [0, 100, 150, 250])

    edges = np.array([0, 100, 200, 300])
    samples = Samples(("count",), edges[:-1] + 1000, edges[1:] + 1000, np.ones((3, 1)))
    cells = Cells.of(samples)
    found = cells.shares(np.array([1050]), np.array([1250]), lambda times: clock(times - 1000))
    np.testing.assert_allclose(found, [50 / 150, 50 / 150, 50 / 150])


def sizes_of(means, counts, seed, spread=0.02):
    """Launches of kernel 3, so many of each mean duration, in random order, and the size of each."""
    random = np.random.default_rng(seed)
    size = np.repeat(np.arange(len(means)), counts)
    random.shuffle(size)
    return size, np.array(means)[size] * random.uniform(1 - spread, 1 + spread, len(size))


@pytest.mark.parametrize("means", [(20e3, 80e3), (66e3, 85e3), (25e3, 66e3, 85e3), (64e3, 74e3)])
def test_sizes_are_told_apart_where_hardly_a_launch_lies_between(means):
    size, alone = sizes_of(means, 300, 5)
    ids = Sizes().of(np.full(len(alone), 3), alone)
    assert (kernel_of(ids) == 3).all()
    pairs = set(zip(size.tolist(), ids.tolist(), strict=True))
    assert len(pairs) == len(means) == len(set(ids.tolist()))


def test_one_size_is_not_cut_by_its_own_spread():
    for seed, counts in ((6, 400), (7, 12)):
        _, alone = sizes_of([50e3], counts, seed, spread=0.1)
        assert len(np.unique(Sizes().of(np.full(counts, 3), alone))) == 1


def test_beside_another_process_only_sizes_well_apart_count():
    _, alone = sizes_of((66e3, 85e3), 300, 8)
    assert len(np.unique(Sizes().of(np.full(600, 3), alone, foreign=True))) == 1
    _, alone = sizes_of((20e3, 80e3), 300, 9)
    assert len(np.unique(Sizes().of(np.full(600, 3), alone, foreign=True))) == 2


def test_a_size_keeps_its_number_whatever_else_runs():
    sizes = Sizes()
    first, alone = sizes_of((25e3, 85e3), 200, 10)
    numbers = sizes.of(np.full(400, 3), alone)
    small, large = (int(numbers[first == s][0]) for s in (0, 1))
    _, alone = sizes_of((84e3,), 100, 11)
    assert (sizes.of(np.full(100, 3), alone) == large).all()
    size, alone = sizes_of((25e3, 45e3, 86e3), 200, 12)
    numbers = sizes.of(np.full(600, 3), alone)
    assert (numbers[size == 0] == small).all()
    assert (numbers[size == 2] == large).all()
    assert not np.isin(numbers[size == 1], [small, large]).any()


def test_what_spreads_over_octaves_is_cut_all_the_same():
    random = np.random.default_rng(13)
    alone = 2.0 ** random.uniform(13, 16, 5000)
    ids = Sizes().of(np.full(5000, 3), alone)
    for number in np.unique(ids):
        shortest, longest = np.quantile(alone[ids == number], [0.02, 0.98])
        assert longest < 1.6 * shortest


def test_reserved_ids_stay_reserved():
    assert kernel_of(np.array([-1, -2])).tolist() == [-1, -1]


@pytest.mark.parametrize("shift_ns", [100, -100])
def test_slips_are_what_a_small_shift_changes(shift_ns):
    random = np.random.default_rng(6)
    start = np.sort(random.integers(10_000, 90_000, 200))
    found = Launches(random.integers(0, 3, 200), start, start + random.integers(3_000, 9_000, 200))
    edges = np.arange(0, 100_001, 5_000)
    samples = Samples(("count",), edges[:-1] + 7, edges[1:] + 7, np.ones((20, 1)))
    cells, weight = Cells.of(samples), 1.0 / (found.end_ns - found.start_ns)
    span = (found.start_ns, found.end_ns)
    before = cells.overlaps(found.kernel, 3, *span, weight)
    after = cells.overlaps(found.kernel, 3, span[0] + shift_ns, span[1] + shift_ns, weight)
    change = shift_ns * cells.slips(found.kernel, 3, *span, weight)
    # To first order: launches that begin or end within 100 ns of an edge are the difference.
    assert np.abs(after - before - change).sum() < 0.1 * np.abs(after - before).sum()
