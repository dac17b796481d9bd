"""counter_loads.py as a process, and the collector's own parts around it, with a worker of any interval."""

import os
import queue
import selectors
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from asked_program import AskedProgram, plain_environment

from roofmon.collector.counters import Counters
from roofmon.collector.host_state import HostState
from roofmon.collector.kernels import KernelRegistry
from roofmon.collector.traced import Traced
from roofmon.counters.worker_messages import Health
from roofmon.model.session import Rung
from roofmon.model.snapshot import Snapshot
from roofmon.program.environment import tracing_variables
from roofmon.stream.messages import VERSION, Describe, Hello, Tick
from roofmon.stream.state import StreamState

LOADS = Path(__file__).with_name("counter_loads.py")
ANSWER_S = 60.0  # beyond what was asked for: a workload is made first
TICK_S = 0.25


class Loads(AskedProgram):
    """counter_loads.py, with the injected library in it where it is traced."""

    def __init__(self, *, traced: bool, core: int | None = None) -> None:
        environment = plain_environment()
        if traced:
            environment |= tracing_variables(environment, region=False)
        super().__init__(LOADS, environment, core)

    def result(self, seconds: float) -> dict[str, Any]:
        """Its answer to a command that takes `seconds`."""
        return self.answer(seconds + ANSWER_S)

    def run(self, name: str, seconds: float) -> dict[str, Any]:
        self.start(f"run {name} {seconds}")
        return self.result(seconds)


@dataclass(frozen=True)
class Seen:
    """What a screen would have shown at one moment, as of time.time_ns(), of what ran up to another."""

    time_ns: int
    counted_ns: int
    snapshot: Snapshot
    rung: Rung
    health: Mapping[str, Health]
    explained: Sequence[float]
    attached: bool
    dropped: int


class _KeptLaunches(Counters):
    """Also remembers which rows began when."""

    kept: list[tuple[np.ndarray, np.ndarray]]

    def launched(
        self, device: str, rows: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray
    ) -> None:
        super().launched(device, rows, start_ns, end_ns)
        self.kept.append((rows, start_ns))


class Watch:
    """Traces one program and samples its GPU, in a thread; `history` has what was to be seen each tick.

    What the collector does, without telemetry and calibration, and for any length of a sample.
    """

    def __init__(self, pid: int, interval_us: int) -> None:
        self.interval_us = interval_us
        self._selector = selectors.DefaultSelector()
        self._host = HostState(lambda _: None)
        self._kernels = KernelRegistry()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._counters = _KeptLaunches(
            self._selector,
            self._host,
            self._kernels.description,
            self._log,
            [f"--interval-us={interval_us}"],
        )
        self._counters.kept = []
        self._kernels.sampled = self._counters.work
        self._traced = Traced(
            self._selector,
            self._kernels,
            self._host,
            self._counters,
            attach=[pid],
            log=self._log.fileno(),
        )
        self._state = StreamState()
        self._state.apply(
            Hello(
                version=VERSION, roofmon="", host="", pid=os.getpid(), time_unix_ns=time.time_ns()
            )
        )
        self._ticks, self._ticked_ns = 0, time.monotonic_ns()
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._closing = False
        self.failure = ""
        self.history: list[Seen] = []
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    @property
    def seen(self) -> Seen | None:
        """The latest."""
        return self.history[-1] if self.history else None

    def wait(self, condition: Callable[[Seen], bool], seconds: float) -> Seen | None:
        """The first moment from now on of which something holds; None where none came in time."""
        first, deadline = len(self.history), time.monotonic() + seconds
        while time.monotonic() < deadline and not self.failure:
            for seen in self.history[first:]:
                first += 1
                if condition(seen):
                    return seen
            time.sleep(0.02)
        return None

    def wait_state(self, state: str, seconds: float = 20.0) -> bool:
        """Until the counters are `active` or `off`; whether they are."""
        now = self.seen
        if now is not None and now.rung.state == state:
            return True
        return self.wait(lambda seen: seen.rung.state == state, seconds) is not None

    def wait_sampling(self) -> str:
        """Until the counters are sampled; why they are not, "" where they are."""
        for _ in range(3):
            if self.wait_state("active", 12.0):
                return ""
            # Where another one just had them they come with the next try.
            if self.seen is not None and self.seen.rung.state == "unavailable":
                break
        rung = self.seen.rung if self.seen is not None else None
        said = f"{rung.reason}; {rung.fix}" if rung is not None else "nothing was seen"
        return self.failure or f"the counters are not sampled: {said}; {self.log()}"

    def launches(self, start_ns: int, end_ns: int) -> dict[int, int]:
        """Row → its launches that began between two moments."""
        counts: dict[int, int] = {}
        for rows, start in list(self._counters.kept):
            inside = rows[(start >= start_ns) & (start <= end_ns) & (rows >= 0)]
            for row, count in zip(*np.unique(inside, return_counts=True), strict=True):
                counts[int(row)] = counts.get(int(row), 0) + int(count)
        return counts

    def pause(self, paused: bool) -> None:
        """Give the counters back, or take them again, as a pause of the screen does."""
        self._asked.put(lambda: self._counters.pause(paused))

    def log(self) -> str:
        """The end of what the workers said on stderr."""
        data = os.pread(self._log.fileno(), 1 << 20, 0)
        return data[-3000:].decode(errors="replace").strip()

    def close(self) -> None:
        """Detach, and end the worker."""
        self._closing = True
        self._thread.join(30)

    def _loop(self) -> None:
        next_tick = time.monotonic()
        try:
            while not self._closing:
                due = min(next_tick, self._traced.next_look, time.monotonic() + 0.05)
                for key, _ in self._selector.select(max(0.0, due - time.monotonic())):
                    key.data()
                while not self._asked.empty():
                    self._asked.get()()
                now = time.monotonic()
                self._traced.look(now)
                if now >= next_tick:
                    next_tick = now + TICK_S
                    self._tick(now)
        except Exception:
            self.failure = traceback.format_exc()
        finally:
            self._counters.close()
            self._traced.close()

    def _tick(self, now: float) -> None:
        self._traced.advance(time.time_ns())
        states = self._traced.states(now)
        self._counters.supervise(now)
        described = self._kernels.take_descriptions()
        self._state.apply(Describe(kernels=described, devices=list(self._host.devices.values())))
        before, self._ticked_ns = self._ticked_ns, time.monotonic_ns()
        self._ticks += 1
        interval_ns = self._ticked_ns - before
        self._state.apply(
            Tick(
                sequence=self._ticks,
                time_unix_ns=time.time_ns(),
                interval_ns=interval_ns,
                kernels=self._kernels.columns(interval_ns, everything=False),
                traced=states,
            )
        )
        traffic = self._counters.traffic
        self.history.append(
            Seen(
                time.time_ns(),
                max((t.end_unix_ns for t in traffic), default=0),
                self._state.snapshot(),
                self._counters.rung(),
                dict(self._counters.health),
                [t.explained for t in traffic if t.explained is not None],
                any(program.state == "attached" for program in states),
                self._traced.dropped,
            )
        )
