"""How fast kernels get on while others run beside them, from the durations in the trace alone.

A launch that shares the device with another takes longer, and moves less a nanosecond while it shares than
while it does not. Spreading its amount evenly over its execution then gives part of its traffic to whatever
runs in the other samples: kernels with little traffic come out 20 % too high at two streams. So the
durations of each kernel's launches are regressed on which others ran beside them for how long. A launch's
clock then runs at 1 − Σ slowing, and amounts are spread evenly over that clock.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from roofmon.counters.nnls import solve_nonnegative
from roofmon.counters.overlap import Clock, Launches, busy_spans, numbered

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LAUNCHES = 20_000  # that are looked at, 50 ms
_CONCURRENT = 0.02  # of the busy time: with less of it shared there is nothing to correct
_CLASSES = 12  # kernels with the most time; the others neither slow down nor are told apart
_LEAST_LAUNCHES = 20  # of a kernel, for its slowing to be fitted
_SLOWEST = 0.05  # progress that is left at the least
_RIDGE = 1e-3  # of the mean square of a regressor: slowing that the durations do not show is 0


def progress_clocks(launches: Launches) -> dict[int, Clock]:
    """The clocks of the kernels that others slow down, by kernel: ns on the trace's clock → progress in ns.

    Where there are very many launches, only the longest kernels have clocks: the shorter ones hardly
    ever lie in two samples. Empty where hardly anything runs side by side.
    """
    launches = _longest(launches)
    if not len(launches):
        return {}
    duration = (launches.end_ns - launches.start_ns).astype(np.float64)
    busy_start, busy_end = busy_spans(launches.start_ns, launches.end_ns)
    if duration.sum() < (1 + _CONCURRENT) * float((busy_end - busy_start).sum()):
        return {}
    kernels, which = numbered(launches.kernel)
    leading = np.argsort(-np.bincount(which, weights=duration), kind="stable")[:_CLASSES]
    class_of = np.full(len(kernels), len(leading), dtype=np.int64)
    class_of[leading] = np.arange(len(leading))
    own = class_of[which]
    knots = np.sort(np.concatenate([launches.start_ns, launches.end_ns]))
    knots = knots[np.append(True, np.diff(knots) > 0)]  # np.unique takes three times as long
    first = np.searchsorted(knots, launches.start_ns)
    last = np.searchsorted(knots, launches.end_ns)
    length = np.diff(knots).astype(np.float64)
    running = _running(own, len(leading) + 1, first, last, len(knots))
    ran = np.zeros((len(running), len(knots)))
    np.cumsum(running * length, axis=1, out=ran[:, 1:])
    beside = (ran[:, last] - ran[:, first]).T
    beside[np.arange(len(own)), own] -= duration
    slowing = [_slowing(duration[own == c], beside[own == c]) for c in range(len(leading))]
    origin = int(knots[0])
    # A float64 holds the distances to the first knot to the ns, but not the times themselves.
    after = (knots - origin).astype(np.float64)
    clocks: dict[int, Clock] = {}
    for number, by in enumerate(slowing):
        if by.any():
            # A launch does not slow down itself.
            speed = 1.0 + by[number] - by @ running
            progress = np.concatenate([[0.0], np.cumsum(speed.clip(_SLOWEST, 1.0) * length)])
            clocks[int(kernels[leading[number]])] = partial(_interpolate, origin, after, progress)
    return clocks


def _interpolate(origin_ns: int, knots: Floats, progress: Floats, times: Integers) -> Floats:
    found: Floats = np.asarray(np.interp(times - origin_ns, knots, progress), dtype=np.float64)
    return found


def alone_durations(launches: Launches, clocks: dict[int, Clock]) -> Floats:
    """How long each launch takes by its kernel's clock, in ns, shape (n,)."""
    alone: Floats = (launches.end_ns - launches.start_ns).astype(np.float64)
    for kernel, clock in clocks.items():
        mine = launches.kernel == kernel
        alone[mine] = clock(launches.end_ns[mine]) - clock(launches.start_ns[mine])
    return alone.clip(1.0)


def _longest(launches: Launches) -> Launches:
    """The launches of the kernels that last longest, as many as can be looked at."""
    kernels, which = numbered(launches.kernel)
    number = np.bincount(which, minlength=len(kernels))
    time = np.bincount(which, weights=launches.end_ns - launches.start_ns, minlength=len(kernels))
    order = np.argsort(-time / np.maximum(number, 1), kind="stable")
    chosen = np.zeros(len(kernels), dtype=np.bool_)
    chosen[order] = np.cumsum(number[order]) <= _LAUNCHES
    return launches.take(chosen[which])


def _running(own: Integers, classes: int, first: Integers, last: Integers, knots: int) -> Floats:
    """How many launches of each class run between two knots, shape (classes, knots − 1)."""
    begun = np.bincount(own * knots + first, minlength=classes * knots)
    ended = np.bincount(own * knots + last, minlength=classes * knots)
    found = np.cumsum((begun - ended).reshape(classes, knots), axis=1)[:, :-1]
    return found.astype(np.float64)


def _slowing(duration: Floats, beside: Floats) -> Floats:
    """By how much each class slows a kernel down, 0 … 1, shape (classes,).

    A launch is done when its clock has run for the time it takes alone: duration × (1 − Σ slowing ×
    part of the duration beside) = alone. So 1 / duration is linear in these parts, which do not grow
    with the duration as the times themselves do (that would take any other delay for slowing).
    """
    slowing = np.zeros(beside.shape[1])
    met = beside.any(axis=0)
    if len(duration) < _LEAST_LAUNCHES or not met.any():
        return slowing
    duration = np.maximum(duration, 1.0)
    parts = beside[:, met] / duration[:, np.newaxis]
    centred, rate = parts - parts.mean(axis=0), 1.0 / duration
    gram = centred.T @ centred
    gram += _RIDGE * np.diag(np.diag(gram) + 1e-300)
    slopes = solve_nonnegative(gram, centred.T @ (rate.mean() - rate)[:, np.newaxis]).values[:, 0]
    alone = rate.mean() + float(slopes @ parts.mean(axis=0))
    slowing[met] = np.minimum(slopes / alone, 1 - _SLOWEST)
    return slowing
