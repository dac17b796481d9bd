"""The telemetry worker under supervision: replaced when it dies, hangs, or a GPU in it hangs.

A driver call that hangs cannot be taken back, only left behind: the worker is killed and a new one goes on
without that GPU, which is tried again later.
"""

import time
from collections.abc import Callable, Sequence
from typing import IO

from roofmon.collector.host_state import HostState
from roofmon.collector.workers import Backoff, Process, start_process
from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.stream.messages import Describe, Message, Tick

HANG_S = 3.0
"""A worker, or a GPU in it, that says nothing for so long is taken for hung."""
_START_S = 10.0  # loading the driver's library can take seconds where the GPU must first wake up
_RETRY_S = 30.0
_RELEASE_S = 60.0
HANGS = "hangs"
"""Part of `DeviceSample.lost` where a driver call does not return; such a GPU needs a new worker."""


class Telemetry:
    """Keeps one telemetry worker going.

    Args:
        device: `auto` or `cpu`.
        interval_s: seconds between samples.
        host: takes in what the worker says.
        watch: waits on a process; called with it and with what to call for messages and at its end.
        unwatch: stops waiting on a process.
        described: called with the devices when they are known for the first time, before anybody else
            hears of them.
        log: where the worker's stderr goes.
    """

    def __init__(
        self,
        device: str,
        interval_s: float,
        host: HostState,
        watch: Callable[[Process, Callable[[Message], None], Callable[[str], None]], None],
        unwatch: Callable[[Process], None],
        described: Callable[[Sequence[DeviceDescription]], None],
        log: IO[bytes] | int,
    ) -> None:
        self._device = device
        self._interval_s = interval_s
        self._host = host
        self._watch = watch
        self._unwatch = unwatch
        self._on_described: Callable[[Sequence[DeviceDescription]], None] | None = described
        self._log = log
        self._worker: Process | None = None
        self._backoff = Backoff()
        self._heard = 0.0
        self._ticked = False
        self._skipped: dict[str, float] = {}  # UUID → when to try it again
        self._paused_since: float | None = None
        self.problem = "starting"

    def start(self) -> None:
        """Start a worker."""
        arguments = ["--device", self._device, "--interval", str(self._interval_s)]
        for uuid in self._skipped:
            arguments += ["--skip", uuid]
        self._worker = start_process("roofmon.telemetry.worker", arguments, self._log)
        self._heard, self._ticked = time.monotonic(), False
        self._watch(self._worker, self._take, self._ended)

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.end(at_once=True)

    def pause(self, paused: bool) -> None:
        """The screen is paused, or goes on: a pause of over a minute releases the driver."""
        self._paused_since = time.monotonic() if paused else None

    def supervise(self, now: float) -> None:
        """To be called at every tick."""
        released = self._paused_since is not None and now - self._paused_since > _RELEASE_S
        if self._worker is None:
            if not released and now >= self._backoff.due:
                self.start()
            return
        if released:
            self._replace("", kill=False)
            self.problem = "released while the screen is paused"
            return
        silent = now - self._heard
        if silent > (HANG_S + self._interval_s if self._ticked else _START_S):
            why = f"telemetry has not answered for {silent:.0f} s"
            self._lose_all(why)
            self._replace(f"{why}: its worker is replaced", kill=True)
            return
        again = [uuid for uuid, due in self._skipped.items() if now >= due]
        if again:
            for uuid in again:
                del self._skipped[uuid]
            self._replace("", kill=False)
            self.start()

    def _take(self, message: Message) -> None:
        self._heard = time.monotonic()
        if isinstance(message, Tick):
            self._ticked = True
            self.problem = ""
            hung = [s.device for s in message.samples if HANGS in s.lost]
            if hung:
                self._host.take(message)
                for uuid in hung:
                    self._skipped[uuid] = self._heard + _RETRY_S
                names = ", ".join(self._name(uuid) for uuid in hung)
                self._replace(
                    f"a driver call on {names} hangs: its worker is replaced, "
                    f"the others go on; tried again in {_RETRY_S:.0f} s",
                    kill=True,
                )
                self.start()
                return
        if isinstance(message, Describe) and self._on_described is not None:
            described, self._on_described = self._on_described, None
            described(message.devices)
        self._host.take(message)

    def _ended(self, problem: str) -> None:
        assert self._worker is not None
        pause = self._backoff.failed(time.monotonic() - self._worker.started)
        self._worker = None
        self.problem = f"the telemetry worker ended ({problem or 'no reason given'})"
        self._host.notice("warning", f"{self.problem}; starting it again in {pause:g} s")

    def _replace(self, what: str, *, kill: bool) -> None:
        """Let go of the worker; the next `supervise` or the caller starts another."""
        assert self._worker is not None
        self._unwatch(self._worker)
        if kill:
            self._worker.kill()
            self._backoff.failed(time.monotonic() - self._worker.started)
        else:
            self._worker.end()
        self._worker = None
        if what:
            self.problem = what
            self._host.notice("warning", what)

    def _lose_all(self, why: str) -> None:
        now = time.time_ns()
        lost = [DeviceSample(device=d, time_unix_ns=now, lost=why) for d in self._host.samples]
        self._host.take(Tick(sequence=0, time_unix_ns=now, interval_ns=0, samples=lost))

    def _name(self, uuid: str) -> str:
        device = self._host.devices.get(uuid)
        return f"GPU{device.index} {device.name}" if device else uuid
