"""What the records of traced programs become: rows with their launches, and the activity of devices."""

import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from roofmon.collector.counters import Counters
from roofmon.collector.host_state import HostState
from roofmon.collector.kernels import MAX_ROWS, KernelRegistry
from roofmon.collector.traced_program import Program
from roofmon.model.activity import Activity
from roofmon.model.device import DeviceDescription
from roofmon.stream.messages import Describe
from roofmon.tracing.activity import Arrivals, Timeline
from roofmon.tracing.trace_protocol import Device, Event, Kernels, Name, Transfers

if TYPE_CHECKING:
    from roofmon.collector.launches import LaunchRows
    from roofmon.tracing.demangle import Demangler

UNKNOWN_GPU = "gpu"
"""Stands for the UUID where a program uses a GPU and did not say which."""


class Intake:
    """Takes in what programs send.

    Args:
        kernels: where rows and launches go.
        host: told of GPUs that programs name, and of what the user should know.
        counters: told what ran when.
        log: descriptor for what the demangler says.
    """

    def __init__(
        self,
        kernels: KernelRegistry,
        host: HostState,
        counters: Counters,
        log: int = subprocess.DEVNULL,
    ) -> None:
        self._kernels = kernels
        self._host = host
        self._counters = counters
        self._log = log
        self._demangler: Demangler | None = None
        self._timelines: dict[str, Timeline] = {}
        self._arrivals = Arrivals()
        self._told_full = False

    def rows_of(self, program: Program) -> "LaunchRows":
        """Rows for a program that has none yet."""
        # Late: most sessions trace nothing, and these take a tenth of the collector's start.
        from roofmon.collector.launches import LaunchRows
        from roofmon.tracing.demangle import Demangler

        if self._demangler is None:
            self._demangler = Demangler(self._log)
        return LaunchRows(self._kernels, self._demangler, program.endpoint.pid, program.name)

    def take(self, program: Program, events: Sequence[Event]) -> None:
        """Take devices, names, kernels and copies in, in their order; other events are not for here."""
        launches = program.launches
        if launches is None:
            return
        names = [event for event in events if isinstance(event, Name)]
        for event in events:
            match event:
                case Device():
                    self._take_device(program, launches, event)
                case Name() if names:
                    launches.take_names(names)  # all at once: they come in hundreds
                    names = []
                case Kernels():
                    self._take_kernels(program, launches, event)
                case Transfers():
                    self._take_transfers(program, launches, event)
                case _:
                    pass

    def advance(self, programs: Iterable[Program], now_ns: int) -> list[Activity]:
        """What the devices did since the last call, up to when all records have come.

        Launches get the gaps before them, and regions the time of the kernels inside them.
        """
        used: dict[str, set[int]] = {}
        hold_ns = self._arrivals.hold_ns(now_ns)
        for program in programs:
            for rows, inside in program.look_inside(now_ns - hold_ns):
                self._kernels.add_inside(rows, inside)
            if program.connection is not None and program.launches is not None:
                for uuid in program.launches.devices.values():
                    used.setdefault(uuid, set()).add(program.endpoint.pid)
        self._counters.advance(now_ns - hold_ns, used)
        found = []
        for uuid, timeline in list(self._timelines.items()):
            activity, gaps = timeline.advance(now_ns, hold_ns)
            self._kernels.add_gaps(gaps.rows, gaps.gap_ns)
            if uuid not in used and (activity is None or not activity.launches):
                del self._timelines[uuid]
            elif activity is not None:
                found.append(activity)
        return found

    def close(self) -> None:
        """End the demangler."""
        if self._demangler is not None:
            self._demangler.close()

    def _take_device(self, program: Program, launches: "LaunchRows", device: Device) -> None:
        uuid = device.uuid or self._host.gpu_of(program.endpoint.pid) or UNKNOWN_GPU
        launches.take_device(device, uuid)
        self._timelines.setdefault(uuid, Timeline(uuid))
        if uuid not in self._host.devices:
            found = DeviceDescription(
                uuid=uuid,
                index=device.index,
                name=device.name or "GPU",
                kind="cuda",
                cores=device.sm_count or None,
                compute_capability="{}.{}".format(*device.compute_capability),
            )
            self._host.take(Describe(devices=[found]))

    def _take_kernels(self, program: Program, launches: "LaunchRows", event: Kernels) -> None:
        records = event.records
        rows = launches.of_kernels(records)
        if launches.full and not self._told_full:
            self._told_full = True
            what = f"more than {MAX_ROWS:,} kernels: launches of new ones share a row"
            self._host.notice("warning", what, "restart roofmon to see later ones apart")
        start, end = (records[name].astype(np.int64) for name in ("start_ns", "end_ns"))
        self._arrivals.take(end, time.time_ns())
        streams = launches.stream_bits(records["stream"])
        in_graph = records["graph"] != 0
        shown = rows >= 0
        if shown.all():
            self._kernels.add_on_gpu(rows, start, end - start, streams, in_graph)
        else:
            self._kernels.add_on_gpu(
                rows[shown], start[shown], (end - start)[shown], streams[shown], in_graph[shown]
            )
        program.count(len(records), int(in_graph.sum()))
        if program.regions is not None:
            program.regions.held.add(start, end, rows)
        for device, mine in _by_device(records["device"]):
            uuid = launches.devices.get(device, "")
            self._counters.launched(uuid, rows[mine], start[mine], end[mine])
            timeline = self._timelines.get(uuid)
            if timeline is not None:
                used = int(np.bitwise_or.reduce(streams[mine]))
                timeline.add_kernels(start[mine], end[mine], rows[mine], used, program.number)

    def _take_transfers(self, program: Program, launches: "LaunchRows", event: Transfers) -> None:
        records = event.records
        rows, moved = launches.of_transfers(records)
        start, end = (records[name].astype(np.int64) for name in ("start_ns", "end_ns"))
        shown = rows >= 0
        streams, in_graph = launches.stream_bits(records["stream"]), records["graph"] != 0
        self._kernels.add_on_gpu(
            rows[shown],
            start[shown],
            (end - start)[shown],
            streams[shown],
            in_graph[shown],
            moved[shown],
        )
        program.count(len(records), int(in_graph.sum()))
        for device, mine in _by_device(records["device"]):
            uuid = launches.devices.get(device, "")
            self._counters.launched(uuid, rows[mine], start[mine], end[mine])
            timeline = self._timelines.get(uuid)
            if timeline is not None:
                timeline.add_copies(start[mine], end[mine])


def _by_device(devices: NDArray[np.uint16]) -> Iterator[tuple[int, NDArray[np.bool_] | slice]]:
    """Each device, and which records are of it; all of them nearly always."""
    first = int(devices[0])
    if (devices == first).all():
        yield first, slice(None)
        return
    for device in np.unique(devices).tolist():
        yield device, devices == device
