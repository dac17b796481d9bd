import itertools
import time
from collections.abc import Callable, Iterable

import pytest

from roofmon.calibration.timing import Rule, time_launches


def kernel(seconds: Iterable[float], calls: list[int] | None = None) -> Callable[[int], float]:
    """A kernel whose launches take these seconds, one value a call, without waiting for them."""
    times = iter(seconds)

    def measure(launches: int) -> float:
        if calls is not None:
            calls.append(launches)
        return next(times) * launches

    return measure


def test_a_steady_kernel_is_done_after_ten_samples_of_the_wanted_length() -> None:
    calls: list[int] = []
    timing = time_launches(
        kernel(itertools.repeat(1e-4), calls), Rule(half_width=0.003, cap_s=5, sample_s=2e-3)
    )
    assert timing.median_s == timing.low_s == timing.high_s == pytest.approx(1e-4)
    assert timing.converged
    assert (timing.n, timing.launches) == (10, 20)
    # One launch tells how many make a sample; two more warm up with that many.
    assert calls == [1, 20, 20] + [20] * 10


def test_a_long_kernel_is_launched_once_a_sample() -> None:
    timing = time_launches(
        kernel(itertools.repeat(0.5)), Rule(half_width=0.003, cap_s=5, sample_s=2e-3)
    )
    assert timing.launches == 1


def test_the_interval_is_that_of_ranks_2_and_9_of_ten() -> None:
    warm_up = [1.0] * 3
    samples = [1.0010, 1.0, 1.0020, 1.0040, 1.0030, 1.0050, 1.0070, 1.0060, 1.0090, 1.0080]
    timing = time_launches(kernel(warm_up + samples), Rule(half_width=0.0035, cap_s=5))
    # Sorted 1.000 … 1.009: the median lies between 1.004 and 1.005; ranks 2 and 9 are 1.001 and 1.008.
    assert timing.n == 10
    assert timing.median_s == pytest.approx(1.0045)
    assert timing.low_s == pytest.approx(1.001)
    assert timing.high_s == pytest.approx(1.008)
    assert timing.converged  # 0.0035 / 1.0045 = 0.35 %, just within


def test_a_noisy_kernel_ends_at_the_cap_and_says_so() -> None:
    def measure(launches: int) -> float:
        time.sleep(0.002)
        return (0.9 + 0.2 * (next(turns) % 2)) * launches

    turns = itertools.count()
    start = time.monotonic()
    timing = time_launches(measure, Rule(half_width=0.003, cap_s=0.2))
    assert 0.2 <= time.monotonic() - start < 1.0
    assert not timing.converged
    assert timing.n >= 10
    assert timing.low_s == pytest.approx(0.9)
    assert timing.high_s == pytest.approx(1.1)


def test_a_cap_of_nothing_still_gives_a_sample_with_a_wide_claim() -> None:
    timing = time_launches(kernel(itertools.repeat(1.0)), Rule(half_width=0.003, cap_s=0))
    assert timing.n == 1
    assert not timing.converged


def test_a_kernel_that_is_warm_is_sampled_at_once() -> None:
    calls: list[int] = []
    measure = kernel(itertools.repeat(1.0), calls)
    time_launches(measure, Rule(half_width=0.003, cap_s=5), launches=4)
    assert calls == [4] * 10


def test_it_warms_up_until_the_clock_is_steady() -> None:
    clocks = iter([1.0e9, 1.4e9, 1.7e9, 1.9e9, 1.97e9, 1.98e9, 1.98e9, *[1.98e9] * 100])
    calls: list[int] = []
    timing = time_launches(
        kernel(itertools.repeat(1.0), calls),
        Rule(half_width=0.003, cap_s=20),
        clock=lambda: next(clocks),
    )
    # Readings 5 to 7 are the first three within 2 %.
    assert len(calls) == 7 + 10
    assert timing.clock_hz == 1.98e9


def test_the_clock_is_that_of_the_second_half_since_drivers_tell_it_late() -> None:
    clocks = itertools.chain([1.98e9], itertools.repeat(1.545e9))

    def measure(launches: int) -> float:
        time.sleep(0.011)
        return 1.0

    rule = Rule(half_width=-1.0, cap_s=0.15)  # read at its begin, after 0.1 s, and at its end
    assert time_launches(measure, rule, lambda: next(clocks), launches=1).clock_hz == 1.545e9


def test_a_clock_that_is_not_told_is_unknown_not_zero() -> None:
    timing = time_launches(
        kernel(itertools.repeat(1.0)), Rule(half_width=0.003, cap_s=5), clock=lambda: None
    )
    assert timing.clock_hz is None


def test_stopping_is_looked_for_before_each_sample() -> None:
    calls: list[int] = []
    with pytest.raises(InterruptedError):
        time_launches(
            kernel(itertools.count(1.0), calls),
            Rule(half_width=0.003, cap_s=60),
            stop=lambda: len(calls) >= 5,
        )
    assert len(calls) == 5


def test_a_kernel_that_takes_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be timed"):
        time_launches(kernel(itertools.repeat(0.0)), Rule(half_width=0.003, cap_s=1))
