"""What the collector knows of its host: devices, samples, roofs, progress, notices.

Workers and programs tell it through the messages of the stream; it keeps the latest for keyframes and
passes on what the consumer should have at once.
"""

from collections.abc import Callable

import msgspec

from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.roofline import NO_ROOFS, Ceiling, Roofline
from roofmon.model.session import Notice, Progress, Severity
from roofmon.stream.messages import (
    Describe,
    Message,
    NoticeMessage,
    ProgressMessage,
    Roofs,
    Tick,
)

_NOTICES_KEPT = 50


class HostState:
    """Takes messages of workers in. `send` passes one on to the consumer."""

    def __init__(self, send: Callable[[Message], object]) -> None:
        self._send = send
        self.devices: dict[str, DeviceDescription] = {}
        self.samples: dict[str, DeviceSample] = {}
        self._fresh: set[str] = set()
        self.amend: Callable[[DeviceSample], DeviceSample] = lambda sample: sample
        """What others know better of a sample than its telemetry; called with each, in order."""
        self._measured: dict[str, Roofline] = {}
        self._kept: dict[str, Roofline] = {}  # what was measured before the calibration going on
        self._bounds: dict[str, Roofline] = {}
        self.progress: dict[str, Progress] = {}
        self.notices: list[Notice] = []

    @property
    def gpus(self) -> dict[str, DeviceDescription]:
        """The GPUs by UUID."""
        return {uuid: d for uuid, d in self.devices.items() if d.kind == "cuda"}

    @property
    def rooflines(self) -> dict[str, Roofline]:
        """Of each device what was measured, and its physical bounds."""
        found = {}
        for uuid in {**self._bounds, **self._measured}:
            measured = self._measured.get(uuid, NO_ROOFS)
            new = {_place(ceiling) for ceiling in measured.ceilings}
            kept = self._kept.get(uuid, NO_ROOFS).ceilings
            ceilings = [*measured.ceilings, *(c for c in kept if _place(c) not in new)]
            ceilings += self._bounds.get(uuid, NO_ROOFS).ceilings
            found[uuid] = msgspec.structs.replace(measured, ceilings=tuple(ceilings))
        return found

    def keep_roofs(self, device: str) -> None:
        """A calibration begins: each roof of before stands until a new one takes its place."""
        if device in self._measured:
            kept = self.rooflines[device].ceilings
            kept = tuple(ceiling for ceiling in kept if ceiling.regime != "bound")
            self._kept[device] = msgspec.structs.replace(self._measured[device], ceilings=kept)

    def forget_kept_roofs(self, device: str) -> None:
        """A calibration is complete: what it gave no roof for has none."""
        if self._kept.pop(device, None) is not None:
            self._send(Roofs(device=device, roofline=self.rooflines[device]))

    def gpu_of(self, pid: int) -> str | None:
        """The GPU that a process uses, as far as telemetry tells; the only one where there is one."""
        for uuid, sample in self.samples.items():
            if any(process.pid == pid for process in sample.processes or ()):
                return uuid
        return next(iter(self.gpus)) if len(self.gpus) == 1 else None

    def take(self, message: Message) -> None:
        """Take one message in."""
        match message:
            case Describe():
                new = [d for d in message.devices if self.devices.get(d.uuid) != d]
                self.devices.update({d.uuid: d for d in new})
                if new:
                    self._send(Describe(devices=new))
            case Tick():
                for sample in message.samples:
                    self.samples[sample.device] = self.amend(sample)
                    self._fresh.add(sample.device)
            case Roofs():
                bounds = all(c.regime == "bound" for c in message.roofline.ceilings)
                kept = self._bounds if bounds else self._measured
                kept[message.device] = message.roofline
                self._send(Roofs(device=message.device, roofline=self.rooflines[message.device]))
            case ProgressMessage():
                self._take_progress(message)
            case NoticeMessage():
                self._take_notice(message)
            case _:
                pass

    def notice(self, severity: Severity, what: str, fix: str = "") -> None:
        """Tell the user a line."""
        self._take_notice(NoticeMessage(notice=Notice(severity=severity, what=what, fix=fix)))

    def take_fresh_samples(self) -> list[DeviceSample]:
        """Samples that came since the last call."""
        fresh = [self.samples[device] for device in self._fresh]
        self._fresh.clear()
        return fresh

    def _take_progress(self, message: ProgressMessage) -> None:
        progress = message.progress
        self.progress[progress.device] = progress
        if progress.done >= progress.total:
            del self.progress[progress.device]
        self._send(message)

    def _take_notice(self, message: NoticeMessage) -> None:
        if message.notice not in self.notices[-5:]:
            self.notices = [*self.notices, message.notice][-_NOTICES_KEPT:]
            self._send(message)


def _place(ceiling: Ceiling) -> tuple[object, ...]:
    """What a ceiling is the roof of."""
    return ceiling.level, ceiling.pipe, ceiling.regime, ceiling.counts
