"""Bandwidth as a hardware counter sees it: the counter is sampled in another process while a kernel runs.

The roof of sampled bytes must be in what the counter counts: that of L2 also sees what moves between the
halves of an L2, 1.5 times what is asked for on an H200.
"""

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from roofmon.calibration.run import NotApplicableError
from roofmon.calibration.timing import HALF_WIDTH, Rule, Timing, time_launches
from roofmon.counters.meter_messages import Counted, Ready, Said
from roofmon.model.stats import median_with_interval
from roofmon.resources import python_module
from roofmon.stream.framing import Deframer, StreamError
from roofmon.units import percent

_READY_S = 4.0  # a tenth where all is well; each set of counters that gives no samples takes 1 s
_COUNTED_S = 2.0
_KILLED_S = 2.0
_SETTLE_S = 0.05  # the GPU may have waited for the counters, and must get up to its clocks again
_BUSY_S = 0.15
_TOGETHER_NS = 10_000_000  # kernels of 2 ms rest at their ends, which single samples hit or miss
_FEWEST = 8
_LEAST = 0.9  # of what was requested: a counter that sees less does not see all of it


T = TypeVar("T")


class Meter(Protocol):
    """What samples a counter: `CounterMeter`."""

    def prepare(self) -> None:
        """Take the counters meanwhile, which needs 0.2 s: `begin` waits for it."""

    def begin(self) -> None:
        """Sample from now on. Raises NotApplicableError where that is not to be had."""

    def end(self) -> Counted:
        """All that was sampled; the counters are free again. Raises NotApplicableError."""

    def close(self) -> None:
        """Sample no more, whatever happened."""


class CounterMeter:
    """One counter of one GPU, sampled by a process that is started at once and waits for `prepare`.

    To be made in the main thread: the process ends with the thread that started it. Good for one time.
    """

    def __init__(self, uuid: str, counter: str) -> None:
        self._process = subprocess.Popen(
            [*python_module("roofmon.counters.meter"), "--device", uuid, "--counter", counter],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._deframer: Deframer[Said] = Deframer(msgspec.msgpack.Decoder(Said))
        self._prepared = False

    def prepare(self) -> None:
        """Take the counters meanwhile."""
        if not self._prepared:
            self._prepared = True
            self._go_on()

    def begin(self) -> None:
        """Wait until they are taken."""
        self.prepare()
        self._answer(Ready, _READY_S)

    def end(self) -> Counted:
        """Give them back; what was counted."""
        self._go_on()
        return self._answer(Counted, _COUNTED_S)

    def close(self) -> None:
        """End the process, if it has not; the driver takes back what it had."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILLED_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _go_on(self) -> None:
        """Ask for the next step."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended: its answer tells why
            self._process.stdin.write(b"\n")

    def _answer(self, expected: type[T], limit_s: float) -> T:
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            raise NotApplicableError("its counter was sampled before, without success")
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + limit_s
        while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            data = os.read(descriptor, 65536)
            if not data:
                raise NotApplicableError("the process that samples its counter ended early")
            try:
                for said in self._deframer.feed(data):
                    if isinstance(said, expected):
                        return said
                    raise NotApplicableError(getattr(said, "reason", f"not {expected.__name__}"))
            except StreamError as error:
                raise NotApplicableError(f"the samples cannot be read: {error}") from None
        raise NotApplicableError(f"the counters did not answer within {limit_s:g} s")


def time_of_counted_byte(
    meter: Meter,
    measure: Callable[[int], float],
    requested: float,
    clock: Callable[[], float | None],
) -> Timing:
    """Seconds that the GPU takes for one byte of the counter's while a kernel runs.

    Args:
        measure: runs the kernel that many times; returns the seconds that took, and leaves the GPU busy.
        requested: the bytes that the kernel asks for.
        clock: reads the SM clock in Hz.

    Returns a Timing whose launch is one byte and whose `n` counts stretches of 10 ms. Raises
    NotApplicableError where the counter cannot be had, or does not see what was requested.
    """
    try:
        meter.begin()
        time_launches(measure, _for_all(_SETTLE_S), launches=1)
        busy_from = time.time_ns()
        timing = time_launches(measure, _for_all(_BUSY_S), clock, launches=1)
        busy_until = time.time_ns()
        seconds = _seconds_per_byte(meter.end(), busy_from, busy_until)
    finally:
        meter.close()
    if len(seconds) < _FEWEST:
        told = f"samples of only {len(seconds)} × {_TOGETHER_NS // 1_000_000} ms"
        raise NotApplicableError(f"{told} of the counter lie in its time")
    median, low, high = median_with_interval(seconds)
    seen = timing.median_s / median / requested
    if not seen >= _LEAST:
        raise NotApplicableError(
            f"the counter saw {percent(seen)} of the bytes that were requested"
        )
    return Timing(
        median_s=median,
        low_s=low,
        high_s=high,
        n=len(seconds),
        launches=timing.n,
        converged=(high - low) / 2 / median <= HALF_WIDTH["bandwidth"],
        clock_hz=timing.clock_hz,
    )


def _for_all(seconds: float) -> Rule:
    """Run for that long, however narrow the interval gets."""
    return Rule(half_width=-1.0, cap_s=seconds)


def _seconds_per_byte(
    counted: Counted, busy_from_ns: int, busy_until_ns: int
) -> NDArray[np.float64]:
    """Of stretches of samples that lie wholly within the busy time, shape (s,); infinite where nothing
    moved."""
    start, end = np.array(counted.start_ns, np.int64), np.array(counted.end_ns, np.int64)
    inside = (start >= busy_from_ns) & (end <= busy_until_ns) & (end > start)
    length, counts = (end - start)[inside], np.array(counted.counts)[inside]
    if not len(length):
        return np.empty(0)
    each = max(1, round(_TOGETHER_NS / float(np.median(length))))
    whole = len(length) // each * each
    with np.errstate(divide="ignore"):
        seconds: NDArray[np.float64] = (
            length[:whole].reshape(-1, each).sum(axis=1)
            / 1e9
            / counts[:whole].reshape(-1, each).sum(axis=1)
        )
    return seconds
