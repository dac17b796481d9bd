"""The calibration worker under supervision: what is measured when, one device at a time.

At the start the device shown gets its roofs, on a GPU first the few that say most; the others get those
that are kept from before. What is left is measured while the GPU is idle, and put off when somebody else
uses it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

import msgspec

from roofmon.collector.host_state import HostState
from roofmon.collector.workers import Process, start_process
from roofmon.model.device import DeviceDescription
from roofmon.model.session import Progress
from roofmon.stream.messages import Message, NoticeMessage, ProgressMessage

IDLE_S = 10.0
"""A GPU that did nothing for so long is idle: time between two epochs or two requests is often shorter."""
_IDLE_LOAD = 0.02


@dataclass(frozen=True)
class _Job:
    """One run of the worker. `left_over`: measured in the background, while nobody else uses the GPU."""

    device: str
    arguments: tuple[str, ...] = ()
    left_over: bool = False


class Calibrations:
    """Runs one calibration worker at a time.

    Args:
        host: takes in what the worker says.
        watch, unwatch: as for telemetry.
        measure: whether roofs may be measured unasked; else only those kept from before are drawn.
        log: where the worker's stderr goes.
    """

    def __init__(
        self,
        host: HostState,
        watch: Callable[[Process, Callable[[Message], None], Callable[[str], None]], None],
        unwatch: Callable[[Process], None],
        log: IO[bytes] | int,
        *,
        measure: bool,
    ) -> None:
        self._host = host
        self._watch = watch
        self._unwatch = unwatch
        self._log = log
        self._measure = measure
        self._waiting: list[_Job] = []
        self._worker: Process | None = None
        self._job: _Job | None = None
        self._cpus: set[str] = set()
        self._told = ""  # what the worker has said itself that went wrong
        self._complete = False  # the worker has told that it measured all
        # GPUs whose other roofs are still to be measured, and the seconds that they must be idle before.
        self._left: dict[str, float] = {}
        self._idle_since: dict[str, float] = {}
        self.paused = False

    @property
    def busy(self) -> bool:
        """Whether somebody waits for roofs; those measured in the background nobody does."""
        return bool(self._waiting) or (self._job is not None and not self._job.left_over)

    @property
    def measuring(self) -> str | None:
        """The device whose roofs are being measured now."""
        job = self._job
        return job.device if job is not None and "--cached-only" not in job.arguments else None

    def begin(self, devices: Sequence[DeviceDescription], shown: str) -> None:
        """The devices are known, and which one is shown: that one is measured.

        The other GPUs may be somebody else's, and with a GPU to show, measuring the CPU would only disturb.
        """
        gpus = [device.uuid for device in devices if device.kind == "cuda"]
        self._cpus = {device.uuid for device in devices if device.kind == "cpu"}
        if not self._measure:
            arguments: tuple[str, ...] = ("--cached-only",)
        elif shown in gpus:
            arguments = ("--quick",)
            self._left[shown] = IDLE_S
        else:
            arguments = ()
        self._waiting.append(_Job(shown, arguments))
        self._waiting += [_Job(uuid, ("--cached-only",)) for uuid in gpus if uuid != shown]
        # Told before the worker can, so that nobody takes the roofs for complete in the meantime.
        self._say(shown, 0, "starting")
        self._next()

    def ask(self, device: str, *, thorough: bool) -> None:
        """The user wants the roofs of a device measured anew."""
        self._left.pop(device, None)
        arguments = ("--refresh", "--thorough") if thorough else ("--refresh",)
        self._waiting = [job for job in self._waiting if job.device != device]
        self._waiting.insert(0, _Job(device, arguments))
        if self._job is not None and self._job.left_over:
            self._end("put off")
        self._say(device, 0, "starting")
        self._next()

    def stop(self, device: str | None = None) -> None:
        """Stop measuring, on this device or whichever it is."""
        self._waiting = [job for job in self._waiting if device not in (None, job.device)]
        if self._worker is not None and self._job and device in (None, self._job.device):
            self._end("stopped")

    def supervise(self, now: float) -> None:
        """Start what is due."""
        for uuid in self._host.gpus:
            sample = self._host.samples.get(uuid)
            idle = sample is not None and sample.load is not None and sample.load <= _IDLE_LOAD
            if not idle:
                self._idle_since.pop(uuid, None)
            else:
                self._idle_since.setdefault(uuid, now)
        self._next()
        if self._worker is None and not self.paused:
            for uuid, idle_s in self._left.items():
                if now - self._idle_since.get(uuid, now) >= idle_s:
                    self._start(_Job(uuid, ("--full", "--while-idle"), left_over=True))
                    return

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.end(at_once=True)

    def _next(self) -> None:
        if self._worker is None and self._waiting:
            self._start(self._waiting.pop(0))

    def _start(self, job: _Job) -> None:
        self._job, self._told, self._complete = job, "", False
        self._host.keep_roofs(job.device)
        device = "cpu" if job.device in self._cpus else job.device
        self._worker = start_process(
            "roofmon.calibration.worker", ["--device", device, *job.arguments], self._log
        )
        self._watch(self._worker, self._take, self._ended)

    def _take(self, message: Message) -> None:
        match message:
            case NoticeMessage(notice=notice) if notice.severity == "error":
                self._told = notice.what
                if self._job and "--refresh" not in self._job.arguments:
                    # Nobody asked for it, and all else works without: under the physical bounds.
                    notice = msgspec.structs.replace(notice, severity="warning")
                    message = NoticeMessage(notice=notice)
            case ProgressMessage():
                self._complete |= message.progress.done >= message.progress.total
            case _:
                pass
        self._host.take(message)

    def _end(self, text: str) -> None:
        """End the worker, for this reason."""
        assert self._worker is not None
        self._unwatch(self._worker)
        self._worker.end()
        self._ended("", text)

    def _ended(self, problem: str, text: str = "done") -> None:
        job, self._job, self._worker = self._job, None, None
        assert job is not None
        if problem or text == "stopped":
            self._left.pop(job.device, None)
        elif job.left_over and not self._complete:
            text = "put off"
            if job.device in self._left:
                self._left[job.device] *= 2  # who comes back after so long may do so again
        else:
            self._host.forget_kept_roofs(job.device)
            if job.left_over:
                self._left.pop(job.device, None)
        if job.device in self._host.progress:
            self._say(job.device, 1, (problem and self._told) or problem or text)
        if problem and not self._told:
            what = f"calibration ended early ({problem})"
            self._host.notice("error", what, "press C to try again")
        self._next()

    def _say(self, device: str, done: int, text: str) -> None:
        progress = Progress(task="calibration", device=device, done=done, total=1, text=text)
        self._host.take(ProgressMessage(progress=progress))
