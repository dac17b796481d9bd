"""Kernel time inside of regions, against sums over the intervals."""

import numpy as np
import pytest

from roofmon.tracing.inside import KernelTime

T0 = 1_800_000_000_000_000_000


def line(*kernels):
    made = KernelTime(T0)
    times = np.array(kernels) + T0
    made.add(times[:, 0], times[:, 1])
    return made


def within(made, *regions):
    times = np.array(regions) + T0
    return made.within(times[:, 0], times[:, 1]).tolist()


def test_kernels_inside_and_across_the_ends_of_a_region():
    made = line((100, 200), (300, 400), (350, 450))
    # All; nothing; half of the first; overlapping kernels count once; from within one to within another.
    regions = [(0, 1000), (210, 290), (150, 250), (300, 1000), (190, 320)]
    assert within(made, *regions) == [250, 0, 50, 150, 30]


def test_kernels_come_in_parts():
    made = KernelTime(T0)
    for start, end in ((0, 50), (20, 30), (60, 90)):
        made.add(np.array([T0 + start]), np.array([T0 + end]))
    made.add(np.empty(0, np.int64), np.empty(0, np.int64))
    assert within(made, (0, 100), (40, 70)) == [80, 20]


def test_what_began_before_the_program_was_attached_is_not_known():
    made = line((100, 200))
    assert np.isnan(within(made, (-1, 150))[0])


def test_an_hour_of_kernels_keeps_to_its_size_and_stays_right_for_long_regions():
    made = KernelTime(T0)
    for second in range(0, 3600, 40):  # every 2 ms a kernel of 1.2
        start = T0 + second * 10**9 + np.arange(20_000) * 2_000_000
        made.add(start, start + 1_200_000)
        assert len(made._at) <= 131_072
    hour = 3600 * 10**9
    whole, recent, early = within(made, (0, hour), (hour - 10**9, hour), (10**10, 2 * 10**10))
    assert whole == pytest.approx(0.6 * hour, rel=1e-9)
    assert recent == pytest.approx(0.6 * 10**9, rel=1e-9)
    assert early == pytest.approx(0.6 * 10**10, rel=1e-3)
