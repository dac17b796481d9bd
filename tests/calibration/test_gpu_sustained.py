"""When a GEMM is counted: once the clock has found its place under the power cap, and not before."""

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest

from roofmon.calibration.gpu_sustained import settle, without_jumps
from roofmon.calibration.timing import Timing


class Device:
    """Takes these seconds for each sample; `busy_s` in all."""

    def __init__(self, seconds: Iterator[float]) -> None:
        self._seconds = seconds
        self.busy_s = 0.0

    def measure(self, launches: int) -> float:
        assert launches == 7
        took = next(self._seconds)
        self.busy_s += took
        return took


def falling() -> Iterator[float]:
    """A clock that falls by 3 % a block of five samples for 0.1 s, then stays."""
    return chain((0.010 * 1.03 ** (i // 5) for i in range(10)), repeat(0.0106))


@pytest.mark.parametrize(
    ("seconds", "least", "most"),
    [
        (lambda: repeat(0.010), 0.15, 0.16),  # holds from the first: no longer than it must
        (falling, 0.25, 0.3),
        (lambda: chain(repeat(0.010, 6), repeat(0.011, 4), repeat(0.010)), 0.25, 0.3),  # a dip
        (lambda: (0.010 + 0.001 * (i // 5 % 2) for i in range(1000)), 0.3, 0.36),  # never holds
    ],
)
def test_counting_begins_when_the_rate_stays(
    seconds: Callable[[], Iterator[float]], least: float, most: float
) -> None:
    device = Device(iter(seconds()))
    settle(device.measure, 7)
    assert least <= device.busy_s <= most


def timing(median_s: float, half: float) -> Timing:
    low, high = median_s * (1 - half), median_s * (1 + half)
    return Timing(median_s, low, high, n=20, launches=1, converged=half <= 0.005)


def test_what_was_counted_over_a_jump_is_counted_again_but_not_for_ever() -> None:
    told = iter([timing(1.0, 0.012), timing(2.0, 0.001)])
    assert without_jumps(lambda: next(told)).median_s == 1.0  # wide, but no jump
    told = iter([timing(1.0, 0.14), timing(2.0, 0.012), timing(3.0, 0.001)])
    assert without_jumps(lambda: next(told)).median_s == 2.0
    told = iter([timing(1.0, 0.14), timing(2.0, 0.10), timing(3.0, 0.001)])
    again = without_jumps(lambda: next(told))
    assert (again.median_s, again.converged) == (2.0, False)  # and says so
