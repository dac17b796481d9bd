"""Launches of one kernel that do different amounts of work, told apart by how long they take.

Libraries run problems of different sizes by one kernel with one grid (a persistent GEMM has as many blocks
as the device has SMs). Such launches do not move the same amount each; those of the same duration do.
Durations of one size lie close together, so sizes are cut apart where hardly any launch lies between them.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmon.counters.overlap import numbered

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BITS = 6
_MOST_SIZES = (1 << _BITS) - 1
_PER_OCTAVE = 16  # steps of a histogram in a factor of two of the duration, 4 % each
_BINS = 64 * _PER_OCTAVE
_APART, _APART_BESIDE_OTHERS = 1.1, 1.5
"""Duration of a size over that of the next smaller one. Another process slows launches down by as much as
libraries' sizes differ; where one is active, only what is well apart is taken for sizes."""
_VALLEY = 0.1  # of the lower of two peaks: with fewer launches between them they are two sizes
_WIDEST = _PER_OCTAVE // 2  # steps of one size: what spreads over more is cut there, valley or not
_SAME = 0.1  # octaves that a size may move from one window to the next
_LEAST_TIME = 0.01  # of all kernels: the others are not worth columns of their own
_LEAST_CLASS = 0.02  # of the kernel's time
_MOST_KERNELS = 1024


class _Size(NamedTuple):
    """From step `low` up to `high` of the histogram; `mean` of log₂ ns."""

    low: int
    high: int
    mean: float


class Sizes:
    """Numbers the sizes of kernels, the same size by the same number in each window."""

    def __init__(self) -> None:
        self._known: dict[int, list[float]] = {}  # kernel → log₂ of the duration of each size

    def of(self, kernel: Integers, alone_ns: Floats, *, foreign: bool = False) -> Integers:
        """Ids of kernel and size of each launch, shape (n,); `kernel_of` gives the kernel back.

        Args:
            kernel: ids ≥ 0, shape (n,).
            alone_ns: duration that each launch has or would have alone, shape (n,).
            foreign: whether another process uses the GPU.
        """
        apart = _APART_BESIDE_OTHERS if foreign else _APART
        sizes = np.zeros(len(kernel), dtype=np.int64)
        kernels, which = numbered(kernel)
        time = np.bincount(which, weights=alone_ns, minlength=len(kernels))
        # Numbers of 16 bits are sorted by radix, in a tenth of the time.
        small = which.astype(np.uint16) if len(kernels) < 1 << 16 else which
        order = np.argsort(small, kind="stable")
        bounds = np.searchsorted(which[order], np.arange(len(kernels) + 1))
        if len(self._known) > _MOST_KERNELS:
            self._known.clear()
        for number in np.flatnonzero(time >= _LEAST_TIME * time.sum()).tolist():
            mine = order[bounds[number] : bounds[number + 1]]
            durations = alone_ns[mine]
            known = int(kernels[number]) in self._known
            if not known and not _spreads(durations, apart):
                continue
            steps = (_PER_OCTAVE * np.log2(durations)).astype(np.int64).clip(0, _BINS - 1)
            found = _sizes(steps, durations, apart)
            if not known and len(found) < 2:
                continue
            number_of = np.zeros(_BINS, dtype=np.int64)
            numbers = self._numbers(int(kernels[number]), [size.mean for size in found])
            for size, its in zip(found, numbers, strict=True):
                number_of[size.low : size.high] = its
            sizes[mine] = number_of[steps]
        return kernel << _BITS | sizes

    def _numbers(self, kernel: int, means: list[float]) -> list[int]:
        """The number of each size: that of the known one nearest to it, or a new one."""
        known = self._known.setdefault(kernel, [])
        numbers: list[int] = []
        for mean in means:
            free = [n for n in range(len(known)) if n + 1 not in numbers]
            nearest = min(free, key=lambda n: abs(known[n] - mean), default=None)
            if nearest is not None and (
                abs(known[nearest] - mean) <= _SAME or len(known) == _MOST_SIZES
            ):
                known[nearest] = mean
                numbers.append(nearest + 1)
            else:
                known.append(mean)
                numbers.append(len(known))
        return numbers


def _spreads(durations: Floats, apart: float) -> bool:
    """Whether the longest is so many times the shortest, without the outer twentieths."""
    shortest, longest = np.quantile(durations, [0.05, 0.95])
    return bool(longest > apart * shortest)


def _sizes(steps: Integers, durations: Floats, apart: float) -> list[_Size]:
    """The sizes of a kernel that take some of its time, in order, each at least `apart` times the last."""
    first = int(steps.min())
    count = np.bincount(steps - first)
    time = np.bincount(steps - first, weights=durations)
    logs = np.bincount(steps - first, weights=np.log2(durations))
    found: list[_Size] = []

    def size(low: int, high: int) -> _Size:
        mean = logs[low:high].sum() / count[low:high].sum()
        return _Size(first + low, first + high, float(mean))

    for low, high in itertools.pairwise([0, *_cuts(count), len(count)]):
        if time[low:high].sum() < _LEAST_CLASS * time.sum():
            continue
        new = size(low, high)
        if found and new.mean - found[-1].mean < math.log2(apart):
            new = size(found.pop().low - first, high)
        found.append(new)
    return found[:_MOST_SIZES]


def _cuts(count: Integers) -> list[int]:
    """Where a histogram that begins and ends with something is cut."""
    if len(count) < 4:
        return []
    # Single steps are empty by chance where there are few launches.
    pairs = (count[:-1] + count[1:]).astype(np.float64)
    before, after = np.maximum.accumulate(pairs), np.maximum.accumulate(pairs[::-1])[::-1]
    depth = pairs[1:-1] / np.minimum(before[:-2], after[2:])
    if depth.min() <= _VALLEY:
        cut = int(depth.argmin()) + 2
    elif len(count) > _WIDEST:
        quarter = len(pairs) // 4
        cut = quarter + int(pairs[quarter:-quarter].argmin()) + 1
    else:
        return []
    low = np.flatnonzero(count[:cut])[-1] + 1
    high = cut + np.flatnonzero(count[cut:])[0]
    return [*_cuts(count[:low]), cut, *(int(high) + c for c in _cuts(count[high:]))]


def kernel_of(ids: Integers) -> Integers:
    """The kernels of ids of `Sizes.of`; negative ids stay negative."""
    return ids >> _BITS
