"""Annotated programs: found by their sockets, connected, and their records turned into rows."""

import re
import selectors
from pathlib import Path

import numpy as np

from roofmon.collector.host_state import HostState
from roofmon.collector.intake import UNKNOWN_GPU
from roofmon.collector.kernels import MAX_ROWS, KernelRegistry
from roofmon.collector.traced import Traced
from roofmon.model.device import DeviceDescription
from roofmon.model.kernel import KernelDescription
from roofmon.model.roofline import Pipe
from roofmon.stream.messages import Describe
from roofmon.tracing.endpoints import Endpoint, find_endpoints
from roofmon.tracing.protocol import MAX_ID, UNUSABLE_WORK, Described, Drops, Hello, Records
from roofmon.tracing.reader import RegionConnection

_LOOK_S = 1.0
_LAUNCH_ONLY = "a region on a GPU times the launch only; its kernels have to be traced"
_NOT_WAITING = (
    "the region does not wait for the GPU, so times do not tell which kernels are its own"
)
_RETRY_S = 30.0  # a program whose connection was refused or broke may be asked again after this


class Programs:
    """Looks for programs every second and takes in what they send.

    Args:
        selector: where connections are waited on; the data of a key is what to call.
        kernels: where rows and records go.
        cpu: UUID of the CPU.
        host: told of GPUs that programs name, and of what the user should know.
        traced: the same programs where they are traced; told of regions that contain their kernels.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        kernels: KernelRegistry,
        cpu: str,
        host: HostState,
        traced: Traced,
    ) -> None:
        self._selector = selector
        self._traced = traced
        self._kernels = kernels
        self._cpu = cpu
        self._host = host
        self._programs: dict[tuple[int, int], _Program] = {}
        self._ended: dict[str, set[int]] = {}  # process name → pids whose rows still stand
        self._shunned: dict[tuple[int, int], float] = {}
        self._next_look = 0.0
        self._dropped_before = 0

    @property
    def names(self) -> dict[int, str]:
        """Connected programs by pid."""
        return {p.endpoint.pid: p.name for p in self._programs.values()}

    @property
    def dropped(self) -> int:
        """Records that programs lost on their way here, since the start."""
        return self._dropped_before + sum(p.dropped for p in self._programs.values())

    def look(self, now: float) -> None:
        """Connect to programs that are new."""
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_S
        for endpoint in find_endpoints():
            key = (endpoint.pid, endpoint.start_time)
            if key in self._programs or self._shunned.get(key, 0.0) > now:
                continue
            connection = RegionConnection(endpoint)
            if connection.closed is not None:
                self._shunned[key] = now + _RETRY_S
                continue
            program = _Program(endpoint, connection)
            self._programs[key] = program
            self._selector.register(
                connection, selectors.EVENT_READ, lambda p=program: self._read(p)
            )
        self._shunned = {key: until for key, until in self._shunned.items() if until > now}

    def close(self) -> None:
        """Let go of every program."""
        for program in self._programs.values():
            self._selector.unregister(program.connection)
            program.connection.close()
        self._programs.clear()

    def _read(self, program: "_Program") -> None:
        descriptor = program.connection.fileno()
        for event in program.connection.receive():
            match event:
                case Hello():
                    self._greet(program, event)
                case Described():
                    self._describe(program, event)
                case Records():
                    self._take(program, event)
                case Drops():
                    program.dropped = event.count
        if program.connection.closed is not None:
            self._selector.unregister(descriptor)
            self._gone(program, program.connection.closed)

    def _greet(self, program: "_Program", hello: Hello) -> None:
        program.name = hello.process or program.name
        for pid in self._ended.pop(program.name, set()):
            self._kernels.forget(pid, program.name, ["region"])
        on_gpu = uses_gpu(program.endpoint.pid) if not hello.device else hello.device != "cpu"
        if not on_gpu:
            program.device = self._cpu
            return
        program.device = hello.device or self._host.gpu_of(program.endpoint.pid) or UNKNOWN_GPU
        program.timed = hello.synchronised
        if program.device not in self._host.devices:
            name = hello.device_name or "GPU"
            found = DeviceDescription(uuid=program.device, index=0, name=name, kind="cuda")
            self._host.take(Describe(devices=[found]))
        if program.timed:
            self._traced.watch_regions((program.endpoint.pid, program.endpoint.start_time))
            self._host.notice(
                "info", f"{program.name} waits for its GPU in every region: times include that", ""
            )

    def _describe(self, program: "_Program", described: Described) -> None:
        reasons = {} if program.timed else {"time": _LAUNCH_ONLY, "kernels": _NOT_WAITING}
        row = self._kernels.add_row(
            KernelDescription(
                id=0,
                name=described.name,
                device=program.device,
                kind="region",
                pid=program.endpoint.pid,
                process=program.name,
                pipe=Pipe(described.unit, described.precision).key,
                level=described.level,
                reasons=reasons,
            )
        )
        if row is None:
            self._host.notice(
                "warning", f"more than {MAX_ROWS} kernels: later ones are not shown", ""
            )
        else:
            program.rows[described.id] = row

    def _take(self, program: "_Program", event: Records) -> None:
        records = event.records
        rows = program.rows[records["id"]]
        known = rows >= 0
        if not known.all():
            rows, records = rows[known], records[known]
        self._kernels.add_records(rows, records, source=program.endpoint.pid)
        if program.timed and program.device != self._cpu:
            start, duration = (records[n].astype(np.int64) for n in ("start_ns", "duration_ns"))
            key = (program.endpoint.pid, program.endpoint.start_time)
            self._traced.add_passes(key, rows, start, duration)
        if not program.told_unusable and (records["flags"] & UNUSABLE_WORK).any():
            program.told_unusable = True
            name = program.name
            self._host.notice(
                "warning",
                f"{name} declares FLOPs or bytes that are negative, infinite or no number",
                "they count as unknown; see what it passes to region()",
            )

    def _gone(self, program: "_Program", reason: str) -> None:
        key = (program.endpoint.pid, program.endpoint.start_time)
        del self._programs[key]
        self._dropped_before += program.dropped
        self._ended.setdefault(program.name, set()).add(program.endpoint.pid)
        if reason != "the program ended":
            self._shunned[key] = self._next_look + _RETRY_S
            self._host.notice("warning", f"{program.name} ({program.endpoint.pid}): {reason}", "")


def uses_gpu(pid: int) -> bool:
    """Whether a process has an NVIDIA GPU open, as far as this user may see."""
    try:
        links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(re.match(r"/dev/nvidia\d", link) for link in links)


class _Program:
    """One connected program: its rows by description id (−1: none) and what it said of itself."""

    def __init__(self, endpoint: Endpoint, connection: RegionConnection) -> None:
        self.endpoint = endpoint
        self.connection = connection
        self.name = endpoint.process or f"pid {endpoint.pid}"
        self.rows = np.full(MAX_ID, -1, dtype=np.int64)
        self.device = ""
        self.timed = True
        self.dropped = 0
        self.told_unusable = False
