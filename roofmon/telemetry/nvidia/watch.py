"""One GPU with its MIG instances, watched in a thread of its own: a call that hangs stops nothing else."""

import threading
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pynvml as nvml  # type: ignore[import-untyped, unused-ignore]

from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.roofline import Roofline
from roofmon.telemetry.nvidia.device import Device
from roofmon.telemetry.nvidia.facts import Part, mig_parts
from roofmon.telemetry.nvidia.library import DRIVER_GONE, Library, driver_version, reason

HANG_S = 3.0
"""A call that has not returned for so long is said to hang; the slowest healthy one takes 0.2 s."""
_RETRY_S = 2.0
_MIG_S = 5.0  # instances come and go by an administrator's hand
_REMOVED = "the MIG instance was removed"


@dataclass
class Outcome:
    """What one round over the parts of a GPU gave."""

    samples: list[DeviceSample] = field(default_factory=list)
    descriptions: list[DeviceDescription] = field(default_factory=list)
    rooflines: dict[str, Roofline] = field(default_factory=dict)
    problem: str = ""  # why the GPU cannot even be described
    replaced: bool = False  # the loaded library no longer fits the driver


class Watch:
    """Samples GPU number `index` whenever asked to.

    Args:
        library: opened.
        gpm_interval_s: least time between samples of GPM.
        skip: UUIDs of GPUs that no call is made on, beyond asking who they are.
        done: called from the thread after every round.
    """

    def __init__(
        self,
        index: int,
        library: Library,
        gpm_interval_s: float,
        skip: Collection[str],
        done: Callable[[], None],
    ) -> None:
        self.index = index
        self._library = library
        self._gpm_interval_s = gpm_interval_s
        self._skip = skip
        self._done = done
        self._wanted = threading.Event()
        self._asked: float | None = None  # when the round began that is going on
        self._outcome: Outcome | None = None

        self._uuid = ""
        self._generation = -1
        self._devices: dict[str, Device] = {}
        self._removed: list[str] = []  # MIG instances that are gone, not said yet
        self._lost = ""  # why nothing here answers
        self._retry = 0.0
        self._find_due = 0.0
        self.uuids: tuple[str, ...] = ()
        """The devices that this GPU has shown, itself first."""
        self.skipped = False
        threading.Thread(target=self._run, name=f"gpu{index}", daemon=True).start()

    def ask(self) -> bool:
        """Begin a round; False while the last one goes on."""
        if self._asked is not None or self.skipped:
            return False
        self._asked = time.monotonic()
        self._wanted.set()
        return True

    @property
    def busy_s(self) -> float:
        """How long the present round has taken; 0 between rounds."""
        asked = self._asked
        return 0.0 if asked is None else time.monotonic() - asked

    def take(self) -> Outcome | None:
        """The outcome of the last round, once; while a call hangs, that it does."""
        outcome, self._outcome = self._outcome, None
        if outcome is None and self.busy_s > HANG_S:
            why = f"does not answer (a driver call hangs for {self.busy_s:.0f} s)"
            return Outcome([_lost(uuid, why) for uuid in self.uuids], problem=why)
        return outcome

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            self._outcome = self._round()
            self._asked = None
            self._done()

    def _round(self) -> Outcome:
        now = time.monotonic()
        if now < self._retry:
            return self._all_lost()
        try:
            if self._generation != self._library.generation:
                self._forget()
            if now >= self._find_due:
                self._find()
                self._find_due = now + _MIG_S
            samples = [device.sample() for device in self._devices.values()]
        except nvml.NVMLError as error:
            return self._lose(error)
        except Exception:
            # What a driver can answer is not ours to foresee; the thread must live to try again.
            traceback.print_exc()
            self._retry, self._lost = now + _RETRY_S, "cannot be read: the log says why"
            self._forget()
            return self._all_lost()
        if self._generation != self._library.generation:
            # Another thread opened the driver anew meanwhile: what these handles said means nothing.
            return Outcome()
        self._lost = ""
        samples += [_lost(uuid, _REMOVED) for uuid in self._removed]
        self._removed = []
        return Outcome(
            samples,
            [device.description for device in self._devices.values()],
            {uuid: device.roofline for uuid, device in self._devices.items()},
        )

    def _find(self) -> None:
        """Look which parts there are, and get to know the new ones."""
        gpu = (
            nvml.nvmlDeviceGetHandleByUUID(self._uuid)
            if self._uuid
            else nvml.nvmlDeviceGetHandleByIndex(self.index)
        )
        if not self._uuid:
            uuid = str(nvml.nvmlDeviceGetUUID(gpu))
            if uuid in self._skip:
                self.skipped = True
                return
            self._uuid = uuid
        parts: dict[str, Part] = {self._uuid: Part(gpu, self.index)}
        for part in mig_parts(gpu, self.index):
            parts[str(nvml.nvmlDeviceGetUUID(part.mig))] = part
        for uuid in [uuid for uuid in self._devices if uuid not in parts]:
            self._devices.pop(uuid).close()
            self._removed.append(uuid)
        driver = driver_version()
        for uuid, part in parts.items():
            if uuid not in self._devices:
                self._devices[uuid] = Device(part, driver, self._gpm_interval_s)
        self.uuids = tuple(parts)

    def _lose(self, error: Any) -> Outcome:
        """The GPU, or the whole driver, does not answer: say so, and try again later."""
        self._retry = time.monotonic() + _RETRY_S
        self._lost = reason(error)
        replaced = error.value == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
        if error.value in DRIVER_GONE and not replaced:
            self._lost = f"{self._lost}: connecting to it again"
            try:
                self._library.reopen(self._generation)
                self._retry = 0.0
            except nvml.NVMLError as again:
                replaced = again.value == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
        self._forget()
        return self._all_lost(replaced)

    def _all_lost(self, replaced: bool = False) -> Outcome:
        samples = [_lost(uuid, self._lost) for uuid in self.uuids]
        return Outcome(samples, problem=self._lost, replaced=replaced)

    def _forget(self) -> None:
        """Drop all handles. Nothing is given back: the driver that gave them may be gone."""
        self._devices = {}
        self._find_due = 0.0
        self._generation = self._library.generation


def _lost(uuid: str, why: str) -> DeviceSample:
    return DeviceSample(device=uuid, time_unix_ns=time.time_ns(), lost=why)
