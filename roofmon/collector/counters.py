"""The counters workers under supervision: one for each GPU with traced kernels, told what ran.

A worker is started with the first kernel on its GPU, and replaced when it dies or falls silent. It decides
itself when to let go of the counters (see `counters.worker`); here a pause of the screen makes it.
"""

import selectors
import time
from collections.abc import Callable, Collection, Mapping
from typing import IO, Literal

from roofmon.collector.counted_device import CountedDevice, Integers
from roofmon.collector.counters_process import CountersProcess
from roofmon.collector.host_state import HostState
from roofmon.collector.row_work import Chip
from roofmon.collector.sampled_work import SampledWork
from roofmon.counters.worker_messages import CountersState, Health, Order, Result, State
from roofmon.model.device import DeviceSample
from roofmon.model.kernel import KernelDescription
from roofmon.model.session import Rung
from roofmon.model.traffic import Traffic

INTERVAL_US = 1000
# How a worker's state is shown; the best comes first.
_SHOWN: dict[CountersState, Literal["active", "waiting", "off", "unavailable"]] = {
    "sampling": "active",
    "starting": "waiting",
    "released": "off",
    "unavailable": "unavailable",
}
_SILENT_S, _START_S = 10.0, 60.0  # a driver that must first wake a GPU takes seconds


class Counters:
    """All workers, and what they found.

    Args:
        selector: where workers are waited on; the data of a key is what to call.
        host: the devices, and where notices go.
        describe: the row of an id, None where it does not stand.
        log: where the workers' stderr goes.
        arguments: more of them for the workers' command lines.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        host: HostState,
        describe: Callable[[int], KernelDescription | None],
        log: IO[bytes] | int,
        arguments: Collection[str] = (),
    ) -> None:
        self._selector = selector
        self._host = host
        self._describe = describe
        self._log = log
        self._arguments = [f"--interval-us={INTERVAL_US}", *arguments]
        self._devices: dict[str, CountedDevice] = {}
        self._paused = False
        self._lent: str | None = None
        self.work = SampledWork()
        host.amend = self.amended

    @property
    def traffic(self) -> list[Traffic]:
        """Where the traffic of the GPUs of attached programs went, in the last window."""
        return [d.traffic.now(d.why_not) for d in self._devices.values() if d.programs]

    def amended(self, sample: DeviceSample) -> DeviceSample:
        """A sample of telemetry, with its FLOP/s at the clock that the counters tell, where they do."""
        device = self._devices.get(sample.device)
        return sample if device is None else device.traffic.amended(sample)

    def next_precision(self, row: int) -> None:
        """The user says that the tensor work of a kernel, and all of its name, is of the next precision."""
        description = self._describe(row)
        if description is not None and self.work.next_precision(description):
            for uuid, device in self._devices.items():
                if device.result is not None:
                    self._take_work(uuid, device, device.result)

    @property
    def health(self) -> dict[str, Health]:
        """GPU → how sampling goes."""
        return {u: d.health for u, d in self._devices.items() if d.health is not None}

    def launched(self, device: str, rows: Integers, start_ns: Integers, end_ns: Integers) -> None:
        """Kernels and copies that ran on a GPU, shape (n,), −1 for those without a row."""
        if not device.startswith(("GPU-", "MIG-")) or not len(rows):
            return
        known = self._devices.get(device)
        if known is None:
            known = self._devices[device] = CountedDevice(device)
        known.launches.append((rows, start_ns, end_ns))
        if known.traced_ns is None:
            known.traced_ns = int(start_ns.min())  # what ran before was not traced

    def lost(self, device: str, start_ns: int, end_ns: int) -> None:
        """Records of launches in this time were lost."""
        if device in self._devices:
            self._devices[device].lost.append((start_ns, end_ns))

    def advance(self, until_ns: int, traced: Mapping[str, Collection[int]]) -> None:
        """To be called at every tick: tells the workers what ran.

        Args:
            until_ns: all that ended before this has been told; as of time.time_ns().
            traced: GPU → the ids of the processes on it that are attached to.
        """
        for uuid, device in self._devices.items():
            device.programs = traced.get(uuid, ())
            device.tell(until_ns)
            if device.worker is not None:
                self._watch_writing(device.worker)
            if not device.programs:
                device.traced_ns = None

    def supervise(self, now: float) -> None:
        """Start what is due and replace what hangs; `now` is as of time.monotonic()."""
        for uuid, device in self._devices.items():
            worker = device.worker
            if worker is None:
                if device.wanted and not self._let_go(uuid) and now >= device.backoff.due:
                    self._start(uuid, device)
                continue
            silent = now - device.heard
            limit = _START_S if device.state.state == "starting" else _SILENT_S
            if silent > limit:
                self._unwatch(worker)
                worker.kill()
                worker.end()
                self._ended(device, worker, f"has not answered for {silent:.0f} s")

    def pause(self, paused: bool) -> None:
        """The screen is paused, or goes on: a pause gives the counters back."""
        self._paused = paused
        for uuid in self._devices:
            self._hold_or_release(uuid)

    def lend(self, device: str | None) -> None:
        """Leave the counters of a GPU to the calibration that measures its roofs, and take them again."""
        before, self._lent = self._lent, device
        if device != before:
            for uuid in self._devices:
                if uuid in (before, device):
                    self._hold_or_release(uuid)

    def _let_go(self, uuid: str) -> str:
        """Why not to sample now; "" where nothing is against it."""
        if self._paused:
            return "the screen is paused"
        return "its roofs are being measured" if uuid == self._lent else ""

    def _hold_or_release(self, uuid: str) -> None:
        worker = self._devices[uuid].worker
        if worker is not None:
            reason = self._let_go(uuid)
            worker.tell(Order(order="release" if reason else "resume", reason=reason))

    def rung(self) -> Rung:
        """How far the counters carry: the GPU that does best speaks."""
        said = [device.state for device in self._devices.values()]
        for state, shown in _SHOWN.items():
            of_it = [s for s in said if s.state == state]
            if of_it:
                reason = of_it[0].reason or "starting"
                if state == "sampling":
                    reason = self._active_words()
                return Rung(rung="counters", state=shown, reason=reason, fix=of_it[0].fix)
        return Rung(rung="counters", state="waiting", reason="no kernel is traced yet")

    def close(self) -> None:
        """End the workers."""
        for device in self._devices.values():
            if device.worker is not None:
                self._unwatch(device.worker)
                device.worker.end(at_once=True)
                device.worker = None

    def _watch_writing(self, worker: CountersProcess) -> None:
        """Write on as fast as the worker reads, not only at ticks."""
        watched = worker.stdin in self._selector.get_map()
        if worker.backed_up and not watched:
            self._selector.register(
                worker.stdin, selectors.EVENT_WRITE, lambda: self._write_on(worker)
            )
        elif watched and not worker.backed_up:
            self._selector.unregister(worker.stdin)

    def _write_on(self, worker: CountersProcess) -> None:
        if worker.stdin in self._selector.get_map():  # it may have ended just now
            worker.flush()
            self._watch_writing(worker)

    def _unwatch(self, worker: CountersProcess) -> None:
        for descriptor in (worker.fileno(), worker.stdin):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)

    def _active_words(self) -> str:
        rates = [h.samples_per_s for h in self.health.values()]
        return f"{max(rates):.0f} samples/s" if rates else ""

    def _start(self, uuid: str, device: CountedDevice) -> None:
        worker = CountersProcess(uuid, self._log, self._arguments)
        device.worker, device.heard = worker, time.monotonic()
        device.state = State(state="starting")
        self._selector.register(
            worker.fileno(), selectors.EVENT_READ, lambda: self._read(uuid, device, worker)
        )

    def _read(self, uuid: str, device: CountedDevice, worker: CountersProcess) -> None:
        said = worker.hear()
        if said is None:
            self._unwatch(worker)
            self._ended(device, worker, f"ended ({worker.end() or 'exit code 0'})")
            return
        for message in said:
            device.heard = time.monotonic()
            match message:
                case State():
                    device.state = message
                case Health():
                    device.health = message
                case Result():
                    self._take(uuid, device, message)

    def _take(self, uuid: str, device: CountedDevice, result: Result) -> None:
        device.result = result
        device.traffic.take(result, device.programs)
        self._take_work(uuid, device, result)

    def _take_work(self, uuid: str, device: CountedDevice, result: Result) -> None:
        about = self._host.devices.get(uuid)
        capability = about.compute_capability if about is not None else None
        chip = Chip(capability or "", about.cores if about is not None else None)
        self.work.take(result, self._describe, chip, device.traffic.contention)

    def _ended(self, device: CountedDevice, worker: CountersProcess, problem: str) -> None:
        device.worker, device.health = None, None
        pause = device.backoff.failed(time.monotonic() - worker.started)
        what = f"the counters worker {problem}"
        device.state = State(
            state="unavailable",
            reason=what,
            fix=f"it is started again in {pause:.0f} s; see the log",
        )
        self._host.notice("warning", what, "kernels go on without their bytes; see the log")
