"""The collector's loop: waits on workers, programs and the consumer, and ticks."""

import os
import platform
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO

import msgspec

from roofmon import __version__
from roofmon.collector.calibration import Calibrations
from roofmon.collector.counters import Counters
from roofmon.collector.demo_workload import DemoWorkload
from roofmon.collector.host_state import HostState
from roofmon.collector.kernels import KernelRegistry
from roofmon.collector.programs import Programs
from roofmon.collector.rungs import ladder
from roofmon.collector.telemetry import Telemetry
from roofmon.collector.traced import Traced
from roofmon.collector.workers import Process
from roofmon.device_choice import choose, default_device
from roofmon.errors import RoofmonError
from roofmon.model.activity import Activity, TracedProgram
from roofmon.model.device import DeviceDescription
from roofmon.stream.framing import Deframer, StreamError
from roofmon.stream.messages import (
    VERSION,
    Command,
    Describe,
    Hello,
    Keyframe,
    Message,
    Roofs,
    Status,
    Tick,
)
from roofmon.stream.writer import StreamWriter
from roofmon.telemetry.host import describe_cpu

_KEYFRAME_S = 30.0
_DEVICES_S = 5.0  # within which the devices should be known


class Collector:
    """Owns the sources of one host and speaks the stream.

    Args:
        writer: where the stream goes.
        device: the one shown first, as users name it, or `auto`; with `cpu` no GPU is watched.
        interval_s: seconds between ticks.
        demo: start the bundled workload after calibration.
        calibrate: measure roofs where no valid cached ones are; else only draw cached ones.
        attach: ids of processes to trace as soon as they can be.
        attach_tree: the same for these processes and all that they start.
    """

    def __init__(
        self,
        writer: StreamWriter,
        *,
        device: str,
        interval_s: float,
        demo: bool,
        calibrate: bool,
        attach: Sequence[int] = (),
        attach_tree: Sequence[int] = (),
    ) -> None:
        self._writer = writer
        self._interval_s = interval_s
        self._device = device
        self._cpu = describe_cpu()
        self._begun = False
        self._started = time.monotonic()
        self._log: IO[bytes] | int = sys.stderr.fileno()
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._hello = Hello(
            version=VERSION,
            roofmon=__version__,
            host=platform.node(),
            pid=os.getpid(),
            time_unix_ns=time.time_ns(),
        )
        self._sequence = 0
        self._last_tick_ns = time.monotonic_ns()
        self._next_keyframe = 0.0
        self._reset = False

        self._host = HostState(self._send)
        self._status: Status | None = None

        self._kernels = KernelRegistry()
        self._counters = Counters(self._selector, self._host, self._kernels.description, self._log)
        self._kernels.sampled = self._counters.work
        self._traced = Traced(
            self._selector,
            self._kernels,
            self._host,
            self._counters,
            attach=attach,
            attach_tree=attach_tree,
            log=sys.stderr.fileno(),
        )
        self._programs = Programs(
            self._selector,
            self._kernels,
            self._cpu.uuid,
            self._host,
            self._traced,
        )
        self._activity: list[Activity] = []
        self._tracing: list[TracedProgram] = []
        self._commands: Deframer[Command] = Deframer(msgspec.msgpack.Decoder(Command), limit=4096)
        self._telemetry = Telemetry(
            "cpu" if device == "cpu" else "auto",
            interval_s,
            self._host,
            self._watch,
            self._unwatch,
            self._begin,
            self._log,
        )
        self._calibrations = Calibrations(
            self._host, self._watch, self._unwatch, self._log, measure=calibrate
        )
        self._workload = (
            DemoWorkload(self._host, self._watch, self._log, on_cpu=device == "cpu")
            if demo
            else None
        )

    def stop(self) -> None:
        """End the loop soon; safe to call from a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Loop until told to stop or the consumer is gone, then end every child."""
        self._selector.register(0, selectors.EVENT_READ, self._read_commands)
        wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)  # so that a signal ends the wait of `select`
        self._selector.register(wake, selectors.EVENT_READ, self.stop)
        self._writer.send(self._hello)
        self._telemetry.start()
        try:
            next_tick = time.monotonic()
            while not self._stopping:
                self._watch_writer()
                due = min(next_tick, self._traced.next_look)
                for key, _ in self._selector.select(max(0.0, due - time.monotonic())):
                    key.data()
                now = time.monotonic()
                self._traced.look(now)
                if now >= next_tick:
                    self._tick(now)
                    # After a pause (suspend, a stopped process) ticks go on from now, not in a burst.
                    next_tick = max(next_tick + self._interval_s, now + self._interval_s / 2)
        finally:
            if self._workload is not None:
                self._workload.close()
            self._calibrations.close()
            self._counters.close()
            self._telemetry.close()
            self._programs.close()
            self._traced.close()

    def _watch_writer(self) -> None:
        """Write on as fast as the consumer reads, not only at ticks."""
        watched = self._writer.fileno() in self._selector.get_map()
        if self._writer.backed_up and not watched:
            self._selector.register(self._writer, selectors.EVENT_WRITE, self._writer.flush)
        elif watched and not self._writer.backed_up:
            self._selector.unregister(self._writer)

    # --- the stream ---------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        # A program may name a GPU: this host's own devices, which have more to say, are to come first.
        if self._begun or now - self._started > _DEVICES_S:
            self._programs.look(now)
        self._activity = self._traced.advance(time.time_ns())
        self._tracing = self._traced.states(now)
        self._supervise(now)
        status = Status(
            rungs=ladder(
                telemetry=self._telemetry.problem,
                host=self._host,
                programs=len(self._programs.names),
                traced=self._tracing,
                counters=self._counters.rung(),
            ),
            programs={**self._programs.names, **self._traced.names},
        )
        self._writer.flush()
        if self._writer.backed_up:
            return  # changes gather until the consumer takes bytes again
        if self._writer.needs_keyframe or now >= self._next_keyframe:
            self._status = status
            self._send_keyframe()
            self._next_keyframe = now + _KEYFRAME_S
            return
        if status != self._status:
            self._status = status
            self._writer.send(status)
        described = self._kernels.take_descriptions()
        if described:
            self._writer.send(Describe(kernels=described))
        self._writer.send(self._make_tick(everything=False))

    def _make_tick(self, *, everything: bool) -> Tick:
        now_ns = time.monotonic_ns()
        interval_ns, self._last_tick_ns = now_ns - self._last_tick_ns, now_ns
        self._sequence += 1
        fresh = self._host.take_fresh_samples()
        reset, self._reset = self._reset, False
        return Tick(
            sequence=self._sequence,
            time_unix_ns=time.time_ns(),
            interval_ns=interval_ns,
            samples=list(self._host.samples.values()) if everything else fresh,
            kernels=self._kernels.columns(interval_ns, everything=everything),
            dropped=self._programs.dropped + self._traced.dropped,
            reset=reset,
            activity=self._activity,
            traced=self._tracing,
            traffic=self._counters.traffic,
        )

    def _send_keyframe(self) -> None:
        assert self._status is not None
        self._kernels.take_descriptions()
        self._writer.send(
            Keyframe(
                hello=self._hello,
                describe=Describe(
                    kernels=self._kernels.descriptions, devices=list(self._host.devices.values())
                ),
                tick=self._make_tick(everything=True),
                roofs=[Roofs(device=d, roofline=r) for d, r in self._host.rooflines.items()],
                status=self._status,
                notices=self._host.notices,
                progress=list(self._host.progress.values()),
            )
        )

    def _send(self, message: Message) -> None:
        if (
            self._sequence
        ):  # before the first keyframe, which carries it, nothing but hello goes out
            self._writer.send(message)

    # --- workers ------------------------------------------------------------------------------

    def _watch(
        self,
        process: Process,
        take: Callable[[Message], None],
        ended: Callable[[str], None],
    ) -> None:
        def ready() -> None:
            messages = process.receive()
            if messages is None:
                self._unwatch(process)
                ended(process.end())
                return
            for message in messages:
                take(message)

        self._selector.register(process.fileno(), selectors.EVENT_READ, ready)

    def _unwatch(self, process: Process) -> None:
        self._selector.unregister(process.fileno())

    def _begin(self, devices: Sequence[DeviceDescription]) -> None:
        """The devices are known: measure, where that is wanted."""
        self._begun = True
        shown = default_device(devices)
        if self._device != "auto":
            try:
                shown = choose(devices, self._device)
            except RoofmonError as error:
                self._host.notice("warning", error.what, error.fix)
        if shown is not None:
            self._calibrations.begin(devices, shown)

    def _supervise(self, now: float) -> None:
        self._telemetry.supervise(now)
        self._calibrations.supervise(now)
        self._counters.lend(self._calibrations.measuring)
        self._counters.supervise(now)
        if self._workload is not None and self._begun and not self._calibrations.busy:
            self._workload.start()

    # --- commands -----------------------------------------------------------------------------

    def _read_commands(self) -> None:
        data = os.read(0, 4096)
        if not data:
            self._stopping = True
            return
        try:
            for command in self._commands.feed(data):
                self._obey(command)
        except StreamError as error:
            self._host.notice("warning", f"a command cannot be read: {error}")
            self._commands = Deframer(msgspec.msgpack.Decoder(Command), limit=4096)

    def _obey(self, command: Command) -> None:
        match command.command:
            case "calibrate":
                device = command.device or self._cpu.uuid
                self._calibrations.ask(device, thorough=command.thorough)
            case "stop-calibration":
                self._calibrations.stop(command.device or None)
            case "reset":
                self._kernels.reset()
                self._reset = True
            case "attach":
                self._traced.attach(command.pid)
            case "next-precision":
                if command.kernel is not None:
                    self._counters.next_precision(command.kernel)
            case "detach":
                self._traced.detach(command.pid)
            case "quit":
                self._stopping = True
            case "pause" | "resume":
                self._telemetry.pause(command.command == "pause")
                self._calibrations.paused = command.command == "pause"
                self._counters.pause(command.command == "pause")
            case other:
                self._host.notice("warning", f"unknown command {other!r}")
