"""Launches of one kernel that do different amounts of work, told apart by how long they take.

Libraries run problems of different sizes by one kernel with one grid (a persistent GEMM has as many blocks
as the device has SMs). Such launches do not move the same amount each; those of the same duration do.
"""

import numpy as np
from numpy.typing import NDArray

from roofmon.counters.overlap import numbered

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BITS = 6
_PER_OCTAVE = 2  # classes in a factor of two of the duration
_WIDE = 1.5  # longest over shortest duration, without the outer twentieths, from which sizes differ
_LEAST_TIME = 0.01  # of all kernels: the others are not worth columns of their own
_LEAST_CLASS = 0.05  # of the kernel's time


def sized(kernel: Integers, alone_ns: Floats) -> Integers:
    """Ids of kernel and size of each launch, shape (n,); `kernel_of` gives the kernel back.

    Args:
        kernel: ids ≥ 0, shape (n,).
        alone_ns: duration that each launch has or would have alone, shape (n,).
    """
    sizes = np.zeros(len(kernel), dtype=np.int64)
    kernels, which = numbered(kernel)
    time = np.bincount(which, weights=alone_ns, minlength=len(kernels))
    steps = np.floor(_PER_OCTAVE * np.log2(np.maximum(alone_ns, 1.0))).astype(np.int64)
    # Numbers of 16 bits are sorted by radix, in a tenth of the time.
    small = which.astype(np.uint16) if len(kernels) < 1 << 16 else which
    order = np.argsort(small, kind="stable")
    bounds = np.searchsorted(which[order], np.arange(len(kernels) + 1))
    for number in np.flatnonzero(time >= _LEAST_TIME * time.sum()):
        mine = order[bounds[number] : bounds[number + 1]]
        shortest, longest = np.quantile(alone_ns[mine], [0.05, 0.95])
        if longest > _WIDE * shortest:
            per_step = np.bincount(steps[mine].clip(0, 62), weights=alone_ns[mine], minlength=63)
            often = per_step >= _LEAST_CLASS * time[number]
            step = steps[mine].clip(0, 62)
            sizes[mine] = np.where(often[step], step + 1, 0)
    return kernel << _BITS | sizes


def kernel_of(ids: Integers) -> Integers:
    """The kernels of ids of `sized`; negative ids stay negative."""
    return ids >> _BITS
