"""What a counters worker does: it samples, attributes, lets go of the counters and takes them again."""

import sys
import time
from collections.abc import Callable
from typing import Protocol

from roofmon.counters.attribution import Attributor
from roofmon.counters.hold import Hold
from roofmon.counters.rivals import Lookout
from roofmon.counters.samples import Samples
from roofmon.counters.waiting import Waiting
from roofmon.counters.worker_messages import (
    Batch,
    CountersState,
    Health,
    Heard,
    Order,
    Said,
    State,
    result_of,
)
from roofmon.errors import RoofmonError
from roofmon.stream.framing import StreamError

_LOOK_S, _HEALTH_S = 0.25, 1.0
_AFTER_RIVALS_S = 3.0  # after another tool was last seen: it may be started again
_BUSY_S = 5.0  # between tries while somebody else has the counters
_LONGEST_PAUSE_S = 60.0


class Source(Protocol):
    """Where samples come from: a GPU or a file."""

    metrics: tuple[str, ...]
    interval_us: int
    overflows: int
    gaps: int

    @property
    def ended(self) -> bool:
        """Whether no samples will come any more."""

    @property
    def read_s(self) -> float:
        """Seconds from one read to the next."""

    def read(self) -> Samples:
        """What came since the last call."""

    def close(self) -> None:
        """Give the counters back."""


class CountersSession:
    """Holds the counters of one GPU while they are wanted, and tells what kernels moved.

    Args:
        uuid: of the GPU.
        open_source: takes the counters; raises RoofmonError where they are not to be had.
        send: for what there is to say.
        idle_s: seconds without kernels after which to let go.
    """

    def __init__(
        self,
        uuid: str,
        open_source: Callable[[], Source],
        send: Callable[[Said], object],
        idle_s: float,
    ) -> None:
        self._open_source = open_source
        self._send = send
        self._idle_s = idle_s
        self._hold = Hold(uuid)
        self._lookout = Lookout()
        self._source: Source | None = None
        self._attributor: Attributor | None = None
        self._waiting = Waiting()
        self._state: State | None = None
        self._let_go = ""  # why the counters are left alone, although they could be had
        self._idle = False
        self._launched = time.monotonic()
        self._try_at = self._read_at = self._look_at = 0.0
        self._pause_s = 1.0
        self._samples, self._sampled_s = 0, 0.0
        self._sampled = 0.0  # when samples were read last
        self._lost_before = (0, 0)
        self._health_at = time.monotonic() + _HEALTH_S
        self._spent = (time.monotonic(), time.process_time())
        self.done = False

    def hear(self, message: Heard) -> None:
        """Take a message of the collector in. Raises StreamError where it is not one."""
        match message:
            case Batch():
                try:
                    self._waiting.add_batch(message)
                except ValueError as error:
                    raise StreamError(str(error)) from None
                if message.kernel:
                    self._launched, self._idle = time.monotonic(), False
            case Order(order="release"):
                self.release(message.reason or "not wanted now")
            case Order(order="resume"):
                self._let_go, self._try_at = "", 0.0
                self._look_at = 0.0  # another tool may have started meanwhile
                self._launched, self._idle = time.monotonic(), False
            case Order():
                self.done = True

    def release(self, reason: str) -> None:
        """Free the counters until told otherwise."""
        self._let_go = reason
        self._close("released", reason)

    def step(self) -> float:
        """Do what is due; returns the seconds until the next call."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._look(now)
        if self._source is None:
            if not self._let_go and not self._idle and now >= self._try_at:
                self._open()
        elif now - self._launched > self._idle_s:
            self._idle = True
            reason = f"no traced kernel ran for {self._idle_s:.0f} s"
            self._close("released", reason, "they come back with the next")
        elif now >= self._read_at:
            self._read_at = now + self._source.read_s
            self._read()
        if now >= self._health_at:
            self._health_at = now + _HEALTH_S
            self._say_health()
        due = min(self._look_at, self._health_at)
        if self._source is not None:
            # One that comes late may find more samples than there is room for.
            due = min(due, self._read_at)
        return max(0.0, due - time.monotonic())

    def close(self) -> None:
        """Give the counters back."""
        if self._source is not None:
            self._source.close()
        self._hold.give_back()

    def _look(self, now: float) -> None:
        rivals = self._lookout.look()
        if not rivals:
            return
        self._try_at = now + _AFTER_RIVALS_S
        if not self._let_go and not self._idle:
            pid, tool = min(rivals.items())
            reason = f"{tool} ({pid}) runs: it may want the counters"
            self._close("released", reason, "they come back when it has ended")

    def _open(self) -> None:
        self._say("starting")
        try:
            holder = self._hold.take()
            if holder is not None:
                self._failed(
                    f"another roofmon ({holder}) has the counters", "roofmon release", _BUSY_S
                )
                return
            self._source = self._open_source()
        except RoofmonError as error:
            self._lose(error)
            return
        except OSError as error:
            self._lose(RoofmonError(f"the counters cannot be reserved: {error}"))
            return
        self._sampled = time.monotonic()
        if self._attributor is None or self._attributor.metrics != self._source.metrics:
            self._attributor = Attributor(self._source.metrics)
        self._say("sampling")

    def _read(self) -> None:
        assert self._source is not None
        try:
            samples = self._source.read()
        except RoofmonError as error:
            self._lose(error)
            return
        if len(samples):
            self._pause_s = 1.0
        self._samples += len(samples)
        before, self._sampled = self._sampled, time.monotonic()
        self._sampled_s += self._sampled - before
        self._waiting.add_samples(samples)
        self._attribute(rest=self._source.ended)

    def _attribute(self, *, rest: bool) -> None:
        attributor = self._attributor
        assert attributor is not None
        window = self._waiting.take(attributor.clock.offset_ns, rest=rest)
        if window is None:
            return
        found = attributor.window(
            window.samples,
            window.launches,
            traced_ns=window.traced_ns,
            lost_ns=window.lost_ns,
            foreign=window.foreign,
        )
        if found is not None:
            start, end = int(window.samples.start_ns[0]), int(window.samples.end_ns[-1])
            self._send(result_of(found, start, end))

    def _lose(self, error: RoofmonError) -> None:
        """Sampling failed, or could not begin: try again later."""
        if self._state is None or self._state.reason != error.what:
            print(f"roofmon: counters: {error}", file=sys.stderr, flush=True)
        pause = _BUSY_S if getattr(error, "busy", False) else self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._failed(error.what, error.fix, pause)

    def _failed(self, reason: str, fix: str, pause_s: float) -> None:
        self._try_at = time.monotonic() + pause_s
        self._close("unavailable", reason, fix)

    def _close(self, state: CountersState, reason: str, fix: str = "") -> None:
        source, self._source = self._source, None
        if source is not None:
            self._lost_before = self._lost(source)
            source.close()
        self._hold.give_back()
        self._say(state, reason, fix)

    def _lost(self, source: Source | None) -> tuple[int, int]:
        overflows, gaps = self._lost_before
        return (
            (overflows, gaps)
            if source is None
            else (overflows + source.overflows, gaps + source.gaps)
        )

    def _say(self, state: CountersState, reason: str = "", fix: str = "") -> None:
        said = State(state=state, reason=reason, fix=fix)
        # A new try says nothing new where the last one failed.
        again = (
            state == "starting" and self._state is not None and self._state.state == "unavailable"
        )
        if said != self._state and not again:
            self._state = said
            self._send(said)

    def _say_health(self) -> None:
        wall, cpu = time.monotonic(), time.process_time()
        elapsed, spent = wall - self._spent[0], cpu - self._spent[1]
        self._spent = wall, cpu
        overflows, gaps = self._lost(self._source)
        self._send(
            Health(
                interval_us=self._source.interval_us if self._source else 0,
                samples_per_s=self._samples / self._sampled_s if self._sampled_s else 0.0,
                cost=spent / elapsed,
                overflows=overflows,
                gaps=gaps,
                dropped=self._waiting.dropped,
            )
        )
        self._samples, self._sampled_s = 0, 0.0
