"""Samples in which something that was not traced moved data under traced kernels."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_SHORTEST = 5  # samples that a burst must last to be told from noise
_SIGNIFICANT = 6.0  # standard deviations of the running mean
_LEAST = 0.05  # of the mean signal: less is an error of the model and not foreign
_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


def foreign_samples(residual: Floats, values: Floats, launch_samples: float) -> Mask:
    """Runs of samples that hold clearly more than the traced kernels explain, shape (s,).

    The rate of a kernel varies within a launch, so single samples lie beside the fit by a lot, up and
    down; over whole launches that cancels, while traffic of others does not. So the mean over two
    launches (at least five samples) is compared with its usual scatter, taken from the median, which
    bursts move little while they fill less than half of the time.

    Args:
        residual: bytes counted less those fitted, shape (s,), in order of time.
        values: what was counted, shape (s,).
        launch_samples: how many samples a typical launch lasts.
    """
    count = len(residual)
    length = max(_SHORTEST, round(2 * launch_samples))
    found = np.zeros(count, dtype=np.bool_)
    if count < 4 * length:
        return found
    running = _running_mean(residual, length)
    centred = running - np.median(running)
    scatter = _MAD * float(np.median(np.abs(centred)))
    limit = max(_SIGNIFICANT * scatter, _LEAST * float(values.mean()))
    # A mean stands for all samples that it was taken over, up to the first and last one above the limit.
    marks = np.zeros(count + 1)
    starts = np.flatnonzero(centred > limit)
    marks[starts] += 1
    marks[starts + length] -= 1
    run = np.cumsum(marks[:-1]) > 0
    above = residual - np.median(residual) > limit
    for first, last in zip(*_runs(run), strict=True):
        within = np.flatnonzero(above[first:last])
        if len(within):
            found[first + within[0] : first + within[-1] + 1] = True
    return found


def _runs(mask: Mask) -> tuple[list[int], list[int]]:
    """Where runs of True begin, and where they have ended."""
    change = np.diff(mask.astype(np.int8), prepend=0, append=0)
    return np.flatnonzero(change > 0).tolist(), np.flatnonzero(change < 0).tolist()


def _running_mean(values: Floats, length: int) -> Floats:
    """Means of `length` successive values, shape (s − length + 1,)."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    means: Floats = (sums[length:] - sums[:-length]) / length
    return means
