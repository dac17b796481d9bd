"""One program that can be traced: its connection, how it is doing, and the regions it has."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from roofmon.model.activity import TracedProgram, TraceState
from roofmon.model.tracing_cost import EAGER, IN_GRAPH
from roofmon.tracing.activity import Held
from roofmon.tracing.endpoints import Endpoint
from roofmon.tracing.inside import KernelTime, Times
from roofmon.tracing.trace_protocol import State
from roofmon.tracing.trace_reader import TraceConnection
from roofmon.units import duration

if TYPE_CHECKING:
    from roofmon.collector.launches import LaunchRows

Rows = NDArray[np.int64]

STATES: dict[str, TraceState] = {
    "starting": "starting",
    "tracing": "attached",
    "failed": "failed",
    "yielded": "yielded",
}


class Regions:
    """Kernels of a program, and the regions that wait to learn which of them were inside."""

    def __init__(self, since_ns: int) -> None:
        self.time = KernelTime(since_ns)
        self.held = Held()
        self.passes: list[tuple[Rows, Times, Times]] = []


class Program:
    """One program that can be traced. `let_be`: it is not to be attached to without being asked."""

    def __init__(self, endpoint: Endpoint, number: int) -> None:
        self.endpoint = endpoint
        self.number = number
        self.name = endpoint.process or f"pid {endpoint.pid}"
        self.connection: TraceConnection | None = None
        self.state: TraceState = "dormant"
        self.reason = ""
        self.cupti = ""
        self.let_be = False
        self.from_start = False
        """It was attached to as early as could be: the user will take all its kernels to be there."""
        self.unseen = ""
        """What of it was not seen all the same."""
        self.launches: LaunchRows | None = None
        self.regions: Regions | None = None
        self.dropped_now = 0
        self._dropped_before = 0
        self._attached_ns = 0
        self._records = 0
        self._fresh = self._fresh_of_graphs = 0

    def connect(self) -> str | None:
        """Attach; why that is impossible, None where it is not."""
        connection = TraceConnection(self.endpoint)
        if connection.closed is None:
            self.connection, self.state, self.reason = connection, "starting", ""
            self._attached_ns = time.time_ns()
        return connection.closed

    def disconnect(self, state: TraceState, reason: str) -> None:
        """Detach, where it is attached to."""
        if self.connection is not None:
            self.connection.close()
        self.connection, self.regions = None, None
        self.state, self.reason = state, reason
        self._dropped_before += self.dropped_now
        self.dropped_now = 0

    @property
    def dropped(self) -> int:
        """Records lost on their way here, over all connections."""
        return self._dropped_before + self.dropped_now

    def take_state(self, state: State) -> None:
        """What it says of its own state."""
        self.state, self.reason = STATES[state.state], state.reason
        if self.from_start and self.state == "attached" and state.since_ns > state.loaded_ns > 0:
            first = duration(state.since_ns - state.loaded_ns)
            self.unseen = f"kernels of the first {first} after it loaded CUDA were not traced"
            self.reason = "; ".join(filter(None, (state.reason, self.unseen)))
        if state.cupti_version:
            self.cupti = f"{state.cupti_version} {state.cupti_path}".rstrip()

    def count(self, records: int, of_graphs: int) -> None:
        """Records that came."""
        self._records += records
        self._fresh += records
        self._fresh_of_graphs += of_graphs

    def watch_regions(self) -> None:
        """Keep the time of its kernels for its regions, which wait for them."""
        if self.connection is not None and self.regions is None:
            self.regions = Regions(self._attached_ns)

    def add_passes(self, rows: Rows, start_ns: Times, end_ns: Times) -> None:
        """Passes of regions, shape (n,), which `look_inside` will tell about."""
        if self.regions is not None:
            self.regions.passes.append((rows, start_ns, end_ns))

    def look_inside(self, cut: int) -> Iterator[tuple[Rows, NDArray[np.float64]]]:
        """Rows of regions that ended before `cut`, with the time of the kernels inside, in ns."""
        regions = self.regions
        if regions is None:
            return
        start, end, _ = regions.held.take(cut)
        regions.time.add(start, end)
        waiting, regions.passes = regions.passes, []
        for rows, begin, finish in waiting:
            due = finish < cut
            if due.any():
                yield rows[due], regions.time.within(begin[due], finish[due])
            if not due.all():
                regions.passes.append((rows[~due], begin[~due], finish[~due]))

    def state_over(self, seconds: float) -> TracedProgram:
        """How it is doing; begins counting anew."""
        fresh, of_graphs = self._fresh, self._fresh_of_graphs
        self._fresh = self._fresh_of_graphs = 0
        spent = (fresh - of_graphs) * EAGER.attached_s + of_graphs * IN_GRAPH.attached_s
        return TracedProgram(
            pid=self.endpoint.pid,
            name=self.name,
            state=self.state,
            reason=self.reason,
            records=self._records,
            records_per_s=fresh / seconds,
            dropped=self.dropped,
            cost=spent / seconds,
            cupti=self.cupti,
        )


def family(pid: int) -> set[int]:
    """A process, its session, and the processes that it descends from."""
    found: set[int] = set()
    while pid > 1 and pid not in found:
        found.add(pid)
        try:
            found.add(os.getsid(pid))
            # After the name, which may hold anything: the state, then the parent (proc(5)).
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            break
    return found
