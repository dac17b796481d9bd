"""Samples and launches that wait for each other: a window is taken when it has all of both.

Samples come at once, launches when they have ended and their program's buffers were full. What is kept is
bounded; what found no room is masked, not taken for time without kernels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofmon.counters.alignment import SEARCH_NS
from roofmon.counters.overlap import Launches
from roofmon.counters.samples import Samples
from roofmon.counters.worker_messages import Batch

Integers = NDArray[np.int64]

WINDOW_NS = 1_000_000_000
_MOST_SAMPLES = 20_000  # 20 s at 1 ms
_MOST_LAUNCHES = 2_000_000  # 48 MB; ten seconds at the highest rates that programs reach
_MOST_SPANS = 1_000


@dataclass(frozen=True, eq=False)
class Window:
    """What `Attributor.window` takes."""

    samples: Samples
    launches: Launches
    traced_ns: Integers
    lost_ns: Integers
    foreign: bool


class Waiting:
    """Keeps samples of one set of metrics and the launches beside them."""

    def __init__(self) -> None:
        self.dropped = 0
        self._until_ns = 0
        self._samples: list[Samples] = []
        self._launches: list[Launches] = []
        self._traced: Integers = np.empty((0, 2), dtype=np.int64)
        self._lost: Integers = np.empty((0, 2), dtype=np.int64)
        self._foreign = False

    def add_samples(self, samples: Samples) -> None:
        """Takes samples, later ones than those before."""
        if self._samples and self._samples[0].metrics != samples.metrics:
            self._samples.clear()
        if len(samples):
            self._samples.append(samples)
        while sum(map(len, self._samples)) > _MOST_SAMPLES:
            self.dropped += len(self._samples.pop(0))

    def add_batch(self, batch: Batch) -> None:
        """Takes launches. Raises ValueError where the batch is not one."""
        launches = batch.launches()
        traced, lost = batch.spans(batch.traced_ns), batch.spans(batch.lost_ns)
        self._until_ns = max(self._until_ns, batch.until_ns)
        self._foreign |= batch.foreign
        if sum(map(len, self._launches)) + len(launches) > _MOST_LAUNCHES:
            self.dropped += len(launches)
            lost = np.concatenate(
                [lost, [[int(launches.start_ns.min()), int(launches.end_ns.max())]]]
            )
        elif len(launches):
            self._launches.append(launches)
        self._traced = _merged(np.concatenate([self._traced, traced]))[-_MOST_SPANS:]
        self._lost = _merged(np.concatenate([self._lost, lost]))[-_MOST_SPANS:]

    def take(self, offset_ns: float, *, rest: bool = False) -> Window | None:
        """A window of at least WINDOW_NS whose launches have all come; None where there is none yet.

        Args:
            offset_ns: of the samples' clock over that of the trace, as far as it is known.
            rest: take a shorter one as well, since no samples will come any more.
        """
        if not self._samples:
            return None
        shift, reach = round(offset_ns), SEARCH_NS + abs(round(offset_ns))
        newest = int(self._samples[-1].end_ns[-1])
        cut = min(newest, self._until_ns + shift - SEARCH_NS)
        length = cut - int(self._samples[0].start_ns[0])
        if length <= 0 or (length < WINDOW_NS and not (rest and cut == newest)):
            return None
        samples = _joined(self._samples)
        done = samples.end_ns <= cut
        self._samples = [later] if len(later := samples.take(~done)) else []
        samples = samples.take(done)
        launches = self._take_launches(cut + reach, cut - reach)
        foreign, self._foreign = self._foreign, False
        traced, lost = self._traced, self._lost
        self._traced = traced[traced[:, 1] > cut - reach]
        self._lost = lost[lost[:, 1] > cut - reach]
        # Losses of launches are told on the clock of the trace.
        return Window(samples, launches, traced, lost + shift, foreign) if len(samples) else None

    def _take_launches(self, before_ns: int, keep_ns: int) -> Launches:
        """Those that began before a moment; those that ended after another stay for the next window."""
        columns = (
            np.concatenate([getattr(part, name) for part in self._launches] or [[]]).astype(
                np.int64
            )
            for name in ("kernel", "start_ns", "end_ns")
        )
        launches = Launches(*columns)
        later = launches.take(launches.end_ns > keep_ns)
        self._launches = [later] if len(later) else []
        return launches.take(launches.start_ns < before_ns)


def _joined(parts: list[Samples]) -> Samples:
    start, end, values = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("start_ns", "end_ns", "values")
    )
    return Samples(parts[0].metrics, start, end, values)


def _merged(spans: Integers) -> Integers:
    """Spans in order, those that touch or overlap as one."""
    if len(spans) < 2:
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(spans[:, 1])
    first = np.concatenate([[True], spans[1:, 0] > ends[:-1]])
    last = np.append(first[1:], True)
    return np.stack([spans[first, 0], ends[last]], axis=1)
