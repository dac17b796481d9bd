"""What a device did: against a count of every nanosecond, and stretches worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmon.tracing.activity import HOLD_NS, Arrivals, Timeline

BEGIN = 1_800_000_000_000_000_000
US = 1_000


def timeline(*kernels, copies=(), length_us=1000, begin=BEGIN):
    """The activity and gaps of kernels and copies given as (start, end) in ns after `begin`."""
    device = Timeline("GPU-0")
    device.advance(begin + HOLD_NS)
    for start, end in kernels:  # one by one: their order must not matter
        one = np.array([begin + start, begin + end, 7])
        device.add_kernels(one[:1], one[1:2], one[2:], 1, 0)
    if copies:
        times = np.array(copies) + begin
        device.add_copies(times[:, 0], times[:, 1])
    return device.advance(begin + length_us * US + HOLD_NS)


def test_serial_kernels_and_the_gaps_between_them():
    # 100 µs of kernels, 5 and 15 µs between them; the last gap is not before any launch.
    found, gaps = timeline((60 * US, 100 * US), (0, 40 * US), (45 * US, 45 * US + 20 * US))
    assert (found.busy_ns, found.kernels_ns, found.overlap_ns) == (95 * US, 100 * US, 5 * US)
    assert found.length_ns == 1000 * US
    assert found.busy == pytest.approx(0.095)
    assert found.idle == pytest.approx(0.905)
    assert np.isnan(gaps.gap_ns[0])  # the very first
    assert gaps.gap_ns[1:].tolist() == [5 * US, 0]
    assert gaps.rows.tolist() == [7, 7, 7]


def test_many_tiny_kernels_with_longer_gaps_are_launch_bound():
    # 50 kernels of 2 µs, one each 6 µs: 49 gaps of 4 µs in between, 50 · 2 + 49 · 4 µs in all.
    kernels = [(6 * US * i, 6 * US * i + 2 * US) for i in range(50)]
    found, _ = timeline(*kernels)
    assert (found.launches, found.tiny, found.tiny_ns) == (50, 50, 100 * US)
    assert found.launch_bound_ns == 296 * US
    assert found.launch_bound == pytest.approx(0.296)


def test_neither_long_kernels_nor_pauses_of_the_host_are_launch_bound():
    back_to_back = [(20 * US * i, 20 * US * i + 15 * US) for i in range(10)]
    found, _ = timeline(*back_to_back)
    assert (found.launch_bound_ns, found.tiny) == (0, 0)
    # Two single kernels 5 ms apart: the host does something else, that is no launching.
    found, _ = timeline((0, 5 * US), (5_000 * US, 5_005 * US), length_us=10_000)
    assert found.launch_bound_ns == 0
    # A launch-bound stretch, a pause, and a busy one: only the first counts, 2 + 8 + 2 µs.
    found, _ = timeline(
        (0, 2 * US),
        (10 * US, 12 * US),
        (5_000 * US, 5_100 * US),
        (5_110 * US, 5_200 * US),
        length_us=10_000,
    )
    assert found.launch_bound_ns == 12 * US


def test_copies_that_hide_behind_kernels():
    found, _ = timeline(
        (100 * US, 200 * US),
        (300 * US, 400 * US),
        copies=[(0, 50 * US), (150 * US, 350 * US), (340 * US, 360 * US)],
    )
    # Copies run 0–50 and 150–360; kernels meanwhile 150–200 and 300–360.
    assert (found.copies, found.copies_ns, found.hidden_ns) == (3, 260 * US, 110 * US)


def test_a_kernel_longer_than_the_stretch_is_split():
    device = Timeline("GPU-0")
    device.advance(BEGIN + HOLD_NS)
    device.add_kernels(
        np.array([BEGIN + 100]), np.array([BEGIN + 2600]), np.array([3]), streams=1, program=0
    )
    busy, launches = [], []
    for step in range(1, 5):
        found, _ = device.advance(BEGIN + step * 1000 + HOLD_NS)
        busy.append(found.busy_ns)
        launches.append(found.launches)
    assert busy == [900, 1000, 600, 0]
    assert launches == [1, 0, 0, 0]


def test_what_comes_too_late_is_counted_and_has_no_gap():
    device = Timeline("GPU-0")
    device.advance(BEGIN + HOLD_NS)
    device.advance(BEGIN + 1000 + HOLD_NS)
    times = np.array([BEGIN + 500, BEGIN + 1700])
    device.add_kernels(times, times + 100, np.array([0, 1]), 1, 0)
    found, gaps = device.advance(BEGIN + 2000 + HOLD_NS)
    assert (found.late, found.launches, found.busy_ns) == (1, 2, 100)
    assert np.isnan(gaps.gap_ns).tolist() == [True, False]


def test_records_are_waited_for_as_long_as_they_took_lately():
    arrivals = Arrivals()
    assert arrivals.hold_ns(BEGIN) == HOLD_NS
    arrivals.take(np.array([BEGIN - 4 * 10**9, BEGIN]), BEGIN)
    assert arrivals.hold_ns(BEGIN) == 5 * 10**9
    arrivals.take(np.array([BEGIN + 10**9]), BEGIN + 10**9)  # one that came at once changes little
    assert 4.5e9 < arrivals.hold_ns(BEGIN + 10**9) < 5e9
    assert arrivals.hold_ns(BEGIN + 60 * 10**9) == HOLD_NS
    arrivals.take(np.array([BEGIN - 3600 * 10**9]), BEGIN + 61 * 10**9)  # for ever is too long
    assert arrivals.hold_ns(BEGIN + 61 * 10**9) == 10 * 10**9


def test_streams_of_several_programs_are_told_apart():
    device = Timeline("GPU-0")
    device.advance(BEGIN + HOLD_NS)
    one = np.array([BEGIN + 10])
    device.add_kernels(one, one + 5, np.array([0]), 0b101, program=1)
    device.add_kernels(one, one + 5, np.array([1]), 0b1, program=2)
    found, _ = device.advance(BEGIN + 1000 + HOLD_NS)
    assert found.streams == 3
    found, _ = device.advance(BEGIN + 2000 + HOLD_NS)
    assert found.streams == 0


def test_times_in_the_far_future_are_forgotten():
    device = Timeline("GPU-0")
    device.advance(BEGIN + HOLD_NS)
    far = np.array([BEGIN + 10**17])
    for _ in range(3):
        device.add_kernels(far, far + 5, np.array([0]), 1, 0)
        found, gaps = device.advance(device._cut + 1000 + HOLD_NS)
        assert (found.launches, len(gaps.rows)) == (0, 0)
    assert device._kernels._count == 0


def test_a_clock_that_is_set_back_gives_no_activity():
    device = Timeline("GPU-0")
    device.advance(BEGIN + HOLD_NS)
    assert device.advance(BEGIN - 10**9 + HOLD_NS)[0] is None
    assert device.advance(BEGIN + 1000 + HOLD_NS)[0].length_ns == 1000


LENGTH = 400
intervals = st.lists(st.tuples(st.integers(0, LENGTH - 1), st.integers(0, 60)), max_size=12)


@settings(max_examples=150, deadline=None)
@given(intervals, intervals, st.lists(st.integers(1, LENGTH - 1), max_size=3))
def test_activity_agrees_with_counting_every_nanosecond(kernels, copies, cuts):
    """The stretch is looked at in parts; kernels reach over the cuts and are in no order."""
    device = Timeline("GPU-0")
    device.advance(BEGIN + HOLD_NS)
    for start, length in kernels:
        one = np.array([BEGIN + start])
        device.add_kernels(one, one + length, np.array([1]), 1, 0)
    for start, length in copies:
        device.add_copies(np.array([BEGIN + start]), np.array([BEGIN + start + length]))
    depth, copying = np.zeros(LENGTH + 100, dtype=int), np.zeros(LENGTH + 100, dtype=bool)
    for start, length in kernels:
        depth[start : start + length] += 1
    for start, length in copies:
        copying[start : start + length] = True
    begin = 0
    for cut in sorted({*cuts, LENGTH}):
        found, _ = device.advance(BEGIN + cut + HOLD_NS)
        part = slice(begin, cut)
        begin = cut
        assert found.busy_ns == (depth[part] > 0).sum()
        assert found.kernels_ns == depth[part].sum()
        assert found.overlap_ns == (depth[part] > 1).sum()
        assert found.copies_ns == copying[part].sum()
        assert found.hidden_ns == (copying[part] & (depth[part] > 0)).sum()
        assert found.late == 0
        assert found.launches == sum(part.start <= start < part.stop for start, _ in kernels)
