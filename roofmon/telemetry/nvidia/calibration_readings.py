"""What a calibration asks NVML: which GPUs there are, the conditions, the clocks held, and who else works.

Every call may hang where the driver does: make them in a process that somebody watches.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

import pynvml as nvml  # type: ignore[import-untyped, unused-ignore]

from roofmon.device_choice import mark_visible
from roofmon.errors import ExitCode, RoofmonError
from roofmon.model.device import DeviceDescription, DeviceProcess
from roofmon.model.roofline import Roofline
from roofmon.telemetry.nvidia import checks
from roofmon.telemetry.nvidia.facts import Facts, Part, mig_parts
from roofmon.telemetry.nvidia.library import Library, driver_version, reason
from roofmon.telemetry.nvidia.processes import Use, describe_processes, read_processes, read_use
from roofmon.telemetry.nvidia.readings import Readings, newest

_event_reasons = newest(
    nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlDeviceGetCurrentClocksThrottleReasons
)

_NO_SAMPLES = (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND)

T = TypeVar("T")


def list_gpus() -> list[DeviceDescription]:
    """Every GPU and MIG instance of this machine. Raises RoofmonError without driver or GPU."""
    count, driver = Library().open(), driver_version()
    described = []
    for part in _parts(count):
        try:
            described.append(Facts(part, driver).description)
        except nvml.NVMLError:
            continue  # it cannot be chosen, since not even its UUID is known
    return described


def nvlink_peer(uuid: str, visible: str | None) -> tuple[str | None, str]:
    """A GPU that NVLink connects to this one and CUDA_VISIBLE_DEVICES does not hide: (UUID, "").

    Without one: (None, the reason).
    """
    gpus = [gpu for gpu in list_gpus() if gpu.parent is None]
    own = next((gpu for gpu in gpus if gpu.uuid == uuid), None)
    if own is None:
        return None, "a MIG instance has no NVLink"
    seen = [gpu for gpu in mark_visible(gpus, visible) if gpu.selected and gpu.uuid != uuid]
    if not seen:
        return None, "no second GPU is visible"
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    for gpu in seen:
        try:
            status = nvml.nvmlDeviceGetP2PStatus(
                handle, nvml.nvmlDeviceGetHandleByUUID(gpu.uuid), nvml.NVML_P2P_CAPS_INDEX_NVLINK
            )
        except nvml.NVMLError as error:
            return None, f"the driver does not tell of NVLink: {reason(error)}"
        if status == nvml.NVML_P2P_STATUS_OK:
            return gpu.uuid, ""
    return None, "no NVLink connects this GPU to another one that is visible"


class CalibrationReadings:
    """One GPU or MIG instance. Methods raise RoofmonError where it cannot be found or is gone."""

    def __init__(self, uuid: str) -> None:
        count = Library().open()
        self._part = _find(count, uuid)
        with _in_words():
            self._facts = Facts(self._part, driver_version())
        self._readings = Readings(uuid)
        self.description = self._facts.description

    def limits(self) -> Roofline:
        """The physical bounds and the conditions that hold now."""
        with _in_words():
            return self._facts.limits()[1]

    def clock_hz(self) -> float | None:
        """The SM clock."""
        return self._mhz("SM clock", nvml.NVML_CLOCK_SM, checks.CLOCK_MHZ)

    def memory_clock_hz(self) -> float | None:
        """The memory clock."""
        return self._mhz("memory clock", nvml.NVML_CLOCK_MEM, checks.MEMORY_CLOCK_MHZ)

    def event_bits(self) -> int:
        """Why the SM clock is not higher, as NVML's bit mask; 0 where it is not told."""
        gpu = self._part.gpu
        bits = self._ask("event reasons", lambda: int(_event_reasons(gpu)), checks.EVENT_BITS)
        return bits or 0

    def busy(self) -> float | None:
        """The share of recent time with a kernel running; None where it is not told (MIG)."""
        own = self._part.own
        percent = self._ask(
            "load", lambda: int(nvml.nvmlDeviceGetUtilizationRates(own).gpu), checks.PERCENT
        )
        return None if percent is None else percent / 100

    def processes(self) -> tuple[DeviceProcess, ...]:
        """Those that hold memory of the device; empty where they are not told."""
        total = self._facts.memory_bytes
        return self._ask("processes", lambda: read_processes(self._part.own, total)) or ()

    def use_by_others(self, since_us: int, own: Collection[int]) -> list[Use] | None:
        """What processes other than `own` did since then; None where the driver does not tell.

        The driver looks every fraction of a second, so that the latest is missing.
        """
        try:
            found = read_use(self._part.gpu, since_us)
        except nvml.NVMLError as error:
            return [] if error.value in _NO_SAMPLES else None
        return [use for use in found if use.pid not in own and use.time_us > since_us]

    def _ask(
        self, name: str, call: Callable[[], T], check: Callable[[T], str | None] | None = None
    ) -> T | None:
        """A value; None where the driver does not tell. Raises RoofmonError where the GPU is gone."""
        with _in_words():
            return self._readings.read(name, call, check)

    def _mhz(self, name: str, kind: int, check: Callable[[float], str | None]) -> float | None:
        gpu = self._part.gpu
        mhz = self._ask(name, lambda: int(nvml.nvmlDeviceGetClockInfo(gpu, kind)), check)
        return None if mhz is None else mhz * 1e6


def process_name(pid: int) -> str:
    """The name of a process, "" where it cannot be seen from here."""
    (process,) = describe_processes([(pid, None)], None)
    return process.name


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    """What ends the device or the driver, as a RoofmonError."""
    try:
        yield
    except nvml.NVMLError as error:
        raise RoofmonError(reason(error), exit_code=ExitCode.NO_DEVICE) from None


def _find(count: int, uuid: str) -> Part:
    if uuid.startswith("GPU-"):
        with contextlib.suppress(nvml.NVMLError):
            gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
            return Part(gpu, int(nvml.nvmlDeviceGetIndex(gpu)))
    # An instance is found through its GPU, whose handle is needed as well.
    for part in _parts(count):
        with contextlib.suppress(nvml.NVMLError):
            if part.mig is not None and nvml.nvmlDeviceGetUUID(part.mig) == uuid:
                return part
    raise RoofmonError(
        f"the NVIDIA driver shows no device {uuid}",
        "nvidia-smi -L lists those that there are",
        ExitCode.NO_DEVICE,
    )


def _parts(count: int) -> Iterator[Part]:
    for index in range(count):
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            yield Part(gpu, index)
            yield from mig_parts(gpu, index)
        except nvml.NVMLError:
            continue  # a GPU that is lost; the others can still be measured
