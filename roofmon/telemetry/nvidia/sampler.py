"""All GPUs of this machine: what there is to say about them at each tick, in the stream's messages."""

import os
import threading
from collections.abc import Collection

from roofmon.device_choice import mark_visible
from roofmon.errors import RoofmonError
from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.roofline import Roofline
from roofmon.model.session import Notice
from roofmon.stream.messages import Describe, Message, NoticeMessage, Roofs
from roofmon.telemetry.nvidia.library import Library
from roofmon.telemetry.nvidia.watch import Watch


class GpuSampler:
    """Opens NVML and watches every GPU. No method waits on the driver for longer than it is told.

    Args:
        gpm_interval_s: least time between samples of GPM.
        skip: UUIDs of GPUs to leave alone, since calls on them hang.
    """

    def __init__(self, gpm_interval_s: float, skip: Collection[str] = ()) -> None:
        self._gpm_interval_s = gpm_interval_s
        self._skip = frozenset(skip)
        self._library = Library()
        self._changed = threading.Condition()
        self._opened: int | RoofmonError | None = None
        self._watches: list[Watch] = []
        self._descriptions: dict[str, DeviceDescription] = {}
        self._rooflines: dict[str, Roofline] = {}
        self._noticed: set[int] = set()
        threading.Thread(target=self._open, name="nvml", daemon=True).start()

    def settle(self, timeout_s: float) -> RoofmonError | None:
        """Wait until NVML is open; says why there are no GPUs to show (yet)."""
        with self._changed:
            self._changed.wait_for(lambda: self._opened is not None, timeout_s)
        if isinstance(self._opened, RoofmonError):
            return self._opened
        if self._opened is None:
            return RoofmonError(
                f"the NVIDIA driver has not answered for {timeout_s:.0f} s",
                "its GPUs appear when it does; see the kernel log",
            )
        return None

    def gather(self, timeout_s: float) -> tuple[list[Message], list[DeviceSample]]:
        """Ask every GPU that is not busy, wait for them, at most `timeout_s`, and take what is there.

        Returns: (descriptions, roofs and notices that are new; the samples, by GPU). Raises RoofmonError
        where only a new process can use the driver.
        """
        if not self._watches and isinstance(self._opened, int):
            self._watches = [
                Watch(index, self._library, self._gpm_interval_s, self._skip, self._notify)
                for index in range(self._opened)
            ]
        asked = [watch for watch in self._watches if watch.ask()]
        with self._changed:
            self._changed.wait_for(lambda: all(w.busy_s == 0 for w in asked), timeout_s)
        return self._take()

    @property
    def descriptions(self) -> list[DeviceDescription]:
        """Every device described so far, GPUs by index, each before its MIG instances."""
        return list(self._descriptions.values())

    def _take(self) -> tuple[list[Message], list[DeviceSample]]:
        messages: list[Message] = []
        samples: list[DeviceSample] = []
        found = dict(self._descriptions)
        rooflines: dict[str, Roofline] = {}
        for watch in self._watches:
            outcome = watch.take()
            if outcome is None:
                continue
            if outcome.replaced:
                raise RoofmonError(
                    "the NVIDIA driver was replaced by another version",
                    "a new telemetry process loads its library",
                )
            samples += outcome.samples
            rooflines.update(outcome.rooflines)
            found.update({description.uuid: description for description in outcome.descriptions})
            if not outcome.problem:
                self._noticed.discard(watch.index)
            elif not watch.uuids and watch.index not in self._noticed and not self._skip:
                self._noticed.add(watch.index)
                messages.append(_notice(f"GPU {watch.index}: {outcome.problem}"))
        marked = mark_visible(_in_order(found), os.environ.get("CUDA_VISIBLE_DEVICES"))
        new = [d for d in marked if self._descriptions.get(d.uuid) != d]
        self._descriptions = {d.uuid: d for d in marked}
        if new:
            messages.append(Describe(devices=new))
        for uuid, roofline in rooflines.items():
            if self._rooflines.get(uuid) != roofline:
                self._rooflines[uuid] = roofline
                messages.append(Roofs(device=uuid, roofline=roofline))
        return messages, samples

    def _open(self) -> None:
        opened: int | RoofmonError
        try:
            opened = self._library.open()
        except RoofmonError as error:
            opened = error
        self._opened = opened
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _in_order(found: dict[str, DeviceDescription]) -> list[DeviceDescription]:
    return sorted(found.values(), key=lambda d: (d.index, d.parent is not None))


def _notice(what: str) -> NoticeMessage:
    return NoticeMessage(
        notice=Notice(severity="warning", what=what, fix="the kernel log may say why")
    )
