"""Device samples: what the counters of one GPU counted in each short interval, and which can be used."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

_JITTER = (
    0.05  # of a sample: distances this small between two samples are rounding of the time stamps
)
_USUAL = 0.5  # a sample that is this much longer or shorter than the median is not one interval


@dataclass(frozen=True, eq=False)
class Samples:
    """Counts of one GPU in successive intervals, in order of time.

    Times in ns on one clock. `values` has a row a sample and a column a metric.
    """

    metrics: tuple[str, ...]
    start_ns: Integers  # (s,)
    end_ns: Integers  # (s,)
    values: Floats  # (s, c)

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, which: Mask | slice) -> "Samples":
        """Some of the samples."""
        return Samples(self.metrics, self.start_ns[which], self.end_ns[which], self.values[which])


def usable(
    samples: Samples, traced_ns: Integers | None = None, lost_ns: Integers | None = None
) -> Samples:
    """The samples that attribution may use, their ends moved off the next one's start.

    Dropped are: the first of a session (it starts at 0 and counts since nobody knows when) and others
    without a time or a number; those of an unusual length; the one after a gap, which may hold what was
    counted in the gap; those outside the traced time; and those that touch a loss.

    Args:
        traced_ns: starts and ends of the time during which launches were traced, shape (t, 2), in order;
            None where all of it was. What is not inside is masked, since its launches are not known:
            its traffic is neither attributed nor called untraced.
        lost_ns: starts and ends in which samples (or launches) were lost, shape (l, 2).
    """
    keep = (samples.start_ns > 0) & (samples.end_ns > samples.start_ns)
    keep &= np.isfinite(samples.values).all(axis=1) & (samples.values >= 0).all(axis=1)
    found = samples.take(keep)
    if not len(found):
        return found
    length = found.end_ns - found.start_ns
    median = float(np.median(length))
    gap = np.zeros(len(found), dtype=np.float64)
    gap[1:] = found.start_ns[1:] - found.end_ns[:-1]
    keep = (np.abs(length - median) <= _USUAL * median) & (np.abs(gap) <= _JITTER * median)
    if traced_ns is not None:
        keep &= _inside(found, traced_ns)
    if lost_ns is not None:
        for start, end in lost_ns.tolist():
            keep &= (found.end_ns <= start) | (found.start_ns >= end)
    found = found.take(keep)
    end_ns = found.end_ns.copy()
    # Successive samples share an edge but for the rounding of their time stamps.
    near = np.abs(found.start_ns[1:] - end_ns[:-1]) <= _JITTER * median
    end_ns[:-1][near] = found.start_ns[1:][near]
    return Samples(found.metrics, found.start_ns, end_ns, found.values)


def _inside(samples: Samples, spans_ns: Integers) -> Mask:
    """Samples that lie wholly inside one of the spans, which are in order."""
    if not len(spans_ns):
        return np.zeros(len(samples), dtype=np.bool_)
    span = np.searchsorted(spans_ns[:, 0], samples.start_ns, side="right") - 1
    inside: Mask = (span >= 0) & (samples.end_ns <= spans_ns[span, 1])
    return inside
