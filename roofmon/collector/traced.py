"""Traced programs: which there are, attaching to them and detaching, and how each is doing.

To connect is to attach and to close is to detach, so looking for programs connects to none of them.
"""

import selectors
import subprocess
from collections.abc import Collection
from pathlib import Path

from roofmon.collector.counters import Counters
from roofmon.collector.host_state import HostState
from roofmon.collector.intake import Intake
from roofmon.collector.kernels import KernelRegistry
from roofmon.collector.traced_program import STATES, Program, Rows, family
from roofmon.model.activity import Activity, TracedProgram, TraceState
from roofmon.tracing.endpoints import find_endpoints, start_time_of
from roofmon.tracing.inside import Times
from roofmon.tracing.protocol import Drops
from roofmon.tracing.trace_protocol import Hello, State

Key = tuple[int, int]
"""Process id and start time."""

_LOOK_S = 1.0
_QUICK_LOOK_S = 0.03
"""Between looks while a program of `roofmon run` has yet to load the library: its first kernels matter."""
_QUICK_LOOKS, _MORE_QUICK_LOOKS = 2_000, 200
"""How many for the first program, and after each one: the ranks of a launcher come one after the other."""


class Traced:
    """Looks for programs every second, and takes in what those attached to send.

    Args:
        selector: where connections are waited on; the data of a key is what to call.
        kernels: where rows and launches go.
        host: told of GPUs that programs name, and of what the user should know.
        counters: told what ran when.
        attach: process ids to attach to as soon as they can be.
        attach_tree: the same for these processes and all that they start.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        kernels: KernelRegistry,
        host: HostState,
        counters: Counters,
        *,
        attach: Collection[int] = (),
        attach_tree: Collection[int] = (),
        log: int = subprocess.DEVNULL,
    ) -> None:
        self._selector = selector
        self._kernels = kernels
        self._host = host
        self._wanted = set(attach)
        self._trees = frozenset(attach_tree)
        self._intake = Intake(kernels, host, counters, log)
        self._programs: dict[Key, Program] = {}
        self._ended: dict[str, set[int]] = {}  # process name → pids whose rows still stand
        self._with_regions: set[Key] = set()
        self.next_look = 0.0
        """When `look` will look again, in seconds as of time.monotonic()."""
        self._quick_looks = _QUICK_LOOKS if self._trees else 0
        self._stated = 0.0
        self._numbers = 0
        self._dropped_before = 0

    @property
    def names(self) -> dict[int, str]:
        """The programs attached to, by pid."""
        return {p.endpoint.pid: p.name for p in self._programs.values() if p.connection is not None}

    @property
    def dropped(self) -> int:
        """Records lost on their way here, since the start."""
        return self._dropped_before + sum(p.dropped for p in self._programs.values())

    def look(self, now: float) -> None:
        """See which programs there are, and attach to those that are wanted."""
        if now < self.next_look:
            return
        found = {(e.pid, e.start_time): e for e in find_endpoints("trace")}
        self.next_look = now + (_QUICK_LOOK_S if self._quick_looks else _LOOK_S)
        self._quick_looks = max(0, self._quick_looks - 1)
        for key in [k for k, p in self._programs.items() if k not in found and not p.connection]:
            self._forget(key)
        for key, endpoint in found.items():
            if key not in self._programs:
                self._numbers += 1
                self._programs[key] = Program(endpoint, self._numbers)
            program = self._programs[key]
            if program.connection is None and not program.let_be and self._is_wanted(endpoint.pid):
                program.from_start = endpoint.pid not in self._wanted
                self._connect(program)

    def attach(self, pid: int) -> None:
        """Attach to a program, now or when it can be; 0 means all that there are."""
        if pid:
            self._wanted.add(pid)
        for program in self._of(pid):
            program.let_be = False
            if program.connection is None:
                program.from_start = False
                self._connect(program)

    def detach(self, pid: int) -> None:
        """Detach from a program; 0 means all. It is not attached to again unless asked for."""
        self._wanted = {other for other in self._wanted if pid not in (0, other)}
        for program in self._of(pid):
            program.let_be = True
            if program.connection is not None:
                self._disconnect(program, "dormant", "")

    def states(self, now: float) -> list[TracedProgram]:
        """How each program is doing, with its rates since the last call; `now` is in seconds."""
        seconds, self._stated = max(now - self._stated, 1e-3), now
        return [program.state_over(seconds) for _, program in sorted(self._programs.items())]

    def advance(self, now_ns: int) -> list[Activity]:
        """What the devices did since the last call, up to a second before `now_ns`."""
        return self._intake.advance(self._programs.values(), now_ns)

    def watch_regions(self, key: Key) -> None:
        """A program has regions that wait for their kernels: keep the kernels' time for them."""
        self._with_regions.add(key)
        if key in self._programs:
            self._programs[key].watch_regions()

    def add_passes(self, key: Key, rows: Rows, start_ns: Times, duration_ns: Times) -> None:
        """Passes of such regions, whose time of kernels is asked for, shape (n,)."""
        program = self._programs.get(key)
        if program is not None:
            program.add_passes(rows, start_ns, start_ns + duration_ns)

    def close(self) -> None:
        """Detach from all."""
        for program in self._programs.values():
            if program.connection is not None:
                self._selector.unregister(program.connection)
                program.connection.close()
        self._programs.clear()
        self._intake.close()

    def _of(self, pid: int) -> list[Program]:
        return [p for p in self._programs.values() if pid in (0, p.endpoint.pid)]

    def _is_wanted(self, pid: int) -> bool:
        return pid in self._wanted or bool(self._trees and self._trees & family(pid))

    def _connect(self, program: Program) -> None:
        problem = program.connect()
        if problem is not None and start_time_of(program.endpoint.pid) is None:
            program.let_be = True  # it ended just now, and is no longer there at the next look
        elif problem is not None:
            self._fail(program, "failed", problem)
        elif program.connection is not None:
            self._selector.register(
                program.connection, selectors.EVENT_READ, lambda: self._read(program)
            )
            if (program.endpoint.pid, program.endpoint.start_time) in self._with_regions:
                program.watch_regions()
            self._quick_looks = _MORE_QUICK_LOOKS if self._trees else 0

    def _disconnect(self, program: Program, state: TraceState, reason: str) -> None:
        connection = program.connection
        if connection is not None and connection.fileno() >= 0:
            self._selector.unregister(connection)
        program.disconnect(state, reason)

    def _fail(self, program: Program, state: TraceState, reason: str) -> None:
        """Let go of it until the user asks again."""
        self._disconnect(program, state, reason)
        program.let_be = True
        who = f"{program.name} ({program.endpoint.pid})"
        fix = "a shows the programs and attaches again"
        if state == "yielded":
            self._host.notice("warning", f"tracing has let go of {who}: {reason}", fix)
        else:
            self._host.notice("error", f"{who} cannot be traced: {reason}", fix)

    def _read(self, program: Program) -> None:
        connection = program.connection
        if connection is None:
            return
        descriptor = connection.fileno()
        events = connection.receive()
        failure: State | None = None
        for event in events:
            match event:
                case Hello():
                    self._greet(program, event)
                case Drops():
                    program.dropped_now = event.count
                case State():
                    failure = event if event.state in ("failed", "yielded") else None
                    program.take_state(event)
                case _:
                    pass
        self._intake.take(program, events)
        if connection.closed is not None:
            self._selector.unregister(descriptor)
            self._ended_with(program, connection.closed)
        elif failure is not None:
            self._fail(program, STATES[failure.state], failure.reason)

    def _ended_with(self, program: Program, reason: str) -> None:
        if reason == "the program ended":
            self._disconnect(program, "dormant", "")
            if start_time_of(program.endpoint.pid) is None:
                self._forget((program.endpoint.pid, program.endpoint.start_time))
        else:
            self._fail(program, "failed", reason)

    def _forget(self, key: Key) -> None:
        program = self._programs.pop(key)
        self._dropped_before += program.dropped
        self._with_regions.discard(key)
        if program.unseen:
            # While it ran its own line said so; where only the end is printed, nothing else would.
            who = f"{program.name} ({program.endpoint.pid})"
            self._host.notice("info", f"{who}: {program.unseen}")
        if program.launches is not None:
            self._ended.setdefault(program.name, set()).add(program.endpoint.pid)

    def _greet(self, program: Program, hello: Hello) -> None:
        program.name = hello.process or program.name
        if hello.pid_namespace != Path("/proc/self/ns/pid").stat().st_ino:
            program.name += " (other PID namespace)"
        if program.launches is None:
            for pid in self._ended.pop(program.name, set()):
                self._kernels.forget(pid, program.name, ("kernel", "memcpy", "memset"))
            program.launches = self._intake.rows_of(program)
