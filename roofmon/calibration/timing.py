"""The timing loop and its stopping rule, the same for a CPU by the host clock and a GPU by its events.

A sample is the mean of as many launches as fill a few milliseconds. Sampling stops when the 95 % rank
interval of the median is narrow enough, at a time cap, or when asked to; the interval is part of the
result whether or not it became narrow.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from roofmon.model.stats import median_with_interval

HALF_WIDTH = {"bandwidth": 0.003, "compute": 0.005}
"""Half-width of the interval over the median at which a kind of roof has converged."""

_STEADY = 0.02  # warm-up ends when three readings in a row agree to this
_CHECK_EVERY_S = 0.02  # the interval is worked out no more often than this: it sorts all samples
_CLOCK_EVERY_S = 0.1


@dataclass(frozen=True)
class Rule:
    """When to stop. `cap_s` bounds everything, warm-up included, up to one sample too many."""

    half_width: float
    cap_s: float
    sample_s: float = 0.002
    minimum: int = 10


@dataclass(frozen=True)
class Timing:
    """Seconds per launch: the median over `n` samples of `launches` each, and its 95 % interval.

    `clock_hz` is the median clock held in the second half, as drivers tell it up to 0.1 s late; None where
    it is not told.
    """

    median_s: float
    low_s: float
    high_s: float
    n: int
    launches: int
    converged: bool
    clock_hz: float | None = None


def time_launches(
    measure: Callable[[int], float],
    rule: Rule,
    clock: Callable[[], float | None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    launches: int = 0,
) -> Timing:
    """Time a kernel until its median is known well enough.

    Args:
        measure: runs a kernel that many times, and returns the seconds all of them took.
        rule: when to stop.
        clock: reads the clock that the kernel's rate follows, in Hz.
        stop: asked before each sample.
        launches: launches in a sample of a kernel that is warm already; 0 warms it up and finds out.

    Raises: InterruptedError when `stop` says so; ValueError when `measure` returns no positive time.
    """
    began = time.monotonic()
    deadline = began + rule.cap_s
    launches = launches or _warm_up(measure, rule, clock, stop, began + rule.cap_s / 4)
    samples: list[float] = []
    clocks: list[float | None] = []
    clock_due = checked = 0.0
    converged = False
    while not converged:
        samples.append(_sample(measure, launches, stop))
        now = time.monotonic()
        if clock and now >= clock_due:
            clock_due = now + _CLOCK_EVERY_S
            clocks.append(clock())
        if len(samples) >= rule.minimum and now - checked >= _CHECK_EVERY_S:
            checked = now
            converged = _half_width(samples) <= rule.half_width
        if now >= deadline:
            break
    clocks.append(clock() if clock else None)
    held = [reading for reading in clocks[len(clocks) // 2 :] if reading is not None]
    median, low, high = median_with_interval(np.array(samples))
    return Timing(
        median_s=median,
        low_s=low,
        high_s=high,
        n=len(samples),
        launches=launches,
        converged=len(samples) >= rule.minimum and _half_width(samples) <= rule.half_width,
        clock_hz=float(np.median(held)) if held else None,
    )


def _sample(measure: Callable[[int], float], launches: int, stop: Callable[[], bool]) -> float:
    if stop():
        raise InterruptedError("asked to stop")
    seconds = measure(launches) / launches
    if not seconds > 0:
        raise ValueError(f"a kernel that takes {seconds} s cannot be timed")
    return seconds


def _warm_up(
    measure: Callable[[int], float],
    rule: Rule,
    clock: Callable[[], float | None] | None,
    stop: Callable[[], bool],
    deadline: float,
) -> int:
    """Run until the clock (else the time of a launch) is steady; returns the launches in a sample."""
    launches = 1
    readings: list[float] = []
    while True:
        seconds = _sample(measure, launches, stop)
        launches = max(1, round(rule.sample_s / seconds))
        reading = clock() if clock else None
        readings.append(seconds if reading is None else reading)
        last = readings[-3:]
        if len(last) == 3 and max(last) - min(last) <= _STEADY * max(last):
            return launches
        if time.monotonic() >= deadline:
            return launches


def _half_width(samples: list[float]) -> float:
    median, low, high = median_with_interval(np.array(samples))
    return (high - low) / 2 / median
