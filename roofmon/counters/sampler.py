"""The counters of one GPU, sampled: which set, how often, and what was lost on the way."""

import math
import time
from typing import Any

import numpy as np

from roofmon.counters.cupti_library import device_index, load_cupti
from roofmon.counters.failures import CountersLostError, explain
from roofmon.counters.metric_sets import SETS, candidate_sets
from roofmon.counters.pm_sampling import Decoded, PmSampling
from roofmon.counters.samples import Samples

MOST_COST = 0.20
"""Of a core: where reading takes more, samples get longer, and shorter again where half as long ones would
long have taken clearly less. On an H200 a sample of the first set costs 0.07 to 0.1 ms, by what the SMs do;
with one more counter of the SMs 0.2 to 0.4 ms beside a GEMM."""
LONGEST_US = 4_000
"""Samples of 5 ms mix kernels from 10 µs up."""
_PROBE_S = 0.5  # for the first samples of a set to complete
_PROBE_SAMPLES = 10
_BUFFER_BYTES, _MOST_BUFFER_BYTES = 128 * 2**20, 512 * 2**20
LONGEST_READ_S = 0.5
"""Seconds between two reads: each costs 10 ms of a core beside what its samples cost, and one of them."""
_MOST_A_READ = 500  # samples: one takes 50 KiB
_ROOM = 1.5  # times the samples expected: a read may be late
_LATE = 16  # samples are complete some time after their end
_MOST_READS = 4  # at a time: the worker has other things to do as well
_COST_OVER_S = 3.0
_CHEAP, _LONG = 0.8, 4  # of the most that reading may cost; times that it must have been looked at
_GAP = 0.5  # of a sample: a distance of this to the one before means that some are missing
_CYCLES_PER_NS = 1.5  # of the system clock, roughly, where the trigger knows no time


class Sampler:
    """Samples a GPU from when it is made until it is closed. Raises CountersLostError, RoofmonError.

    `overflows` and `gaps` count what was lost; `interval_us` may grow, up to `longest_us`, and shrink back.
    `read` is to be called every `read_s`, which is at most `longest_read_s`.
    """

    def __init__(
        self,
        uuid: str,
        interval_us: int,
        longest_us: int = LONGEST_US,
        longest_read_s: float = LONGEST_READ_S,
    ) -> None:
        self.interval_us = self._shortest_us = interval_us
        self._longest_us = longest_us
        self._longest_read_s = longest_read_s
        self.overflows = self.gaps = 0
        self.metrics: tuple[str, ...] = ()
        self.ended = False
        self._buffer_bytes = _BUFFER_BYTES
        self._by_time = True
        self._last_end = 0
        self._index = device_index(uuid)
        self._cupti: Any = load_cupti()
        self._busy_s, self._since = 0.0, time.monotonic()
        self._cheap = 0
        try:
            self._sampling = PmSampling(self._cupti, self._index)
        except Exception as error:
            raise explain(error, self._cupti) from error
        try:
            self._choose()
        except CountersLostError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise explain(error, self._cupti) from error

    @property
    def read_s(self) -> float:
        """Seconds from one read to the next: for samples that are read much later there is no room."""
        return min(self._longest_read_s, _MOST_A_READ * self.interval_us / 1e6)

    def read(self) -> Samples:
        """What was sampled since the last call. Raises CountersLostError."""
        begun = time.thread_time()
        try:
            parts = self._read_all()
        except CountersLostError:
            raise
        except Exception as error:
            if getattr(error, "status", None) != self._cupti.Result.ERROR_OUT_OF_MEMORY:
                raise explain(error, self._cupti) from error
            parts = []
            self._overflowed()
        self._busy_s += time.thread_time() - begun
        self._adapt()
        start, end, values = (
            np.concatenate([getattr(part, name) for part in parts])
            if parts
            else np.empty((0, len(self.metrics)) if name == "values" else 0)
            for name in ("start_ns", "end_ns", "values")
        )
        found = Samples(self.metrics, start.astype(np.int64), end.astype(np.int64), values)
        whole = found.start_ns > 0  # the first of a session counts since nobody knows when
        if whole.any():
            self._count_gaps(found.take(whole))
        # Of the first of a read nearly all SMs' counts may be missing, which the read before took: 1 to 5 %
        # of them were there on an H200 (CUPTI 13.4) with five counters of the SMs, and all with four.
        for part in parts:
            whole &= ~np.isin(found.start_ns, part.start_ns[:1])
        return found.take(whole)

    def close(self) -> None:
        """Give the counters back."""
        self._sampling.close()

    def _count_gaps(self, found: Samples) -> None:
        before = np.concatenate([[self._last_end or found.start_ns[0]], found.end_ns[:-1]])
        self.gaps += int((found.start_ns - before > _GAP * 1e3 * self.interval_us).sum())
        self._last_end = int(found.end_ns[-1])

    def _read_all(self) -> list[Decoded]:
        parts = [self._sampling.read()]
        while parts[-1].more and not parts[-1].overflow and len(parts) < _MOST_READS:
            parts.append(self._sampling.read())
        if parts[-1].overflow:
            self._overflowed()
        return parts

    def _choose(self) -> None:
        """Start with the best set whose samples complete."""
        tried = []
        # All at once first: asking for each takes a host object of CUPTI for each.
        whole = self._sampling.accepts(*SETS[0])
        for metrics in candidate_sets(lambda name: whole or self._sampling.accepts(name)):
            for by_time in (True, False):
                problem = self._try(metrics, by_time)
                if not problem:
                    return
                tried.append(f"{len(metrics)} counters: {problem}")
        what = f"no set of counters can be sampled on {self._sampling.chip}"
        raise CountersLostError("; ".join([what, *tried[-1:]]), "the log has all that was tried")

    def _try(self, metrics: tuple[str, ...], by_time: bool) -> str:
        """Start with a set; why it cannot be used, "" where it can."""
        result = self._cupti.Result
        try:
            self._by_time = by_time
            self._start(metrics)
        except self._cupti.cuptiError as error:
            # Several passes, or a trigger that this GPU does not have.
            if error.status in (result.ERROR_NOT_SUPPORTED, result.ERROR_INVALID_METRIC_NAME):
                return str(error)
            raise
        completed = populated = 0
        deadline = time.monotonic() + max(_PROBE_S, 50 * self.interval_us / 1e6)
        while completed < _PROBE_SAMPLES:
            if time.monotonic() > deadline:
                return f"samples never complete ({completed} of {populated})"
            time.sleep(0.02)
            part = self._sampling.read()
            completed += len(part.start_ns)
            populated += part.populated
        return ""

    def _start(self, metrics: tuple[str, ...]) -> None:
        self.metrics = metrics
        interval = self.interval_us * 1_000
        if not self._by_time:
            interval = round(interval * _CYCLES_PER_NS)
        if self._sampling.configured:
            self._sampling.close()
            self._sampling = PmSampling(self._cupti, self._index)
        slots = math.ceil(1e6 * _ROOM * self.read_s / self.interval_us) + _LATE
        self._sampling.start(metrics, interval, self._buffer_bytes, slots, by_time=self._by_time)
        self._last_end = 0

    def _overflowed(self) -> None:
        """Samples were lost: begin anew, with more room."""
        self.overflows += 1
        self._buffer_bytes = min(2 * self._buffer_bytes, _MOST_BUFFER_BYTES)
        self._restart()

    def _adapt(self) -> None:
        elapsed = time.monotonic() - self._since
        if elapsed < _COST_OVER_S:
            return
        cost, self._busy_s, self._since = self._busy_s / elapsed, 0.0, time.monotonic()
        self._cheap = self._cheap + 1 if 2 * cost < _CHEAP * MOST_COST else 0
        interval_us = self.interval_us
        if cost > MOST_COST:
            interval_us = min(2 * interval_us, self._longest_us)
        elif self._cheap >= _LONG:
            interval_us = max(interval_us // 2, self._shortest_us)
        if interval_us != self.interval_us:
            self.interval_us, self._cheap = interval_us, 0
            self._restart()

    def _restart(self) -> None:
        try:
            self._start(self.metrics)
        except Exception as error:
            raise explain(error, self._cupti) from error
