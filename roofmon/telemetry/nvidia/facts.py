"""What a GPU or a MIG instance is: its description, and its roofline of physical bounds."""

import re
from dataclasses import dataclass
from typing import Any

import pynvml as nvml  # type: ignore[import-untyped, unused-ignore]

from roofmon.model.device import DeviceDescription
from roofmon.model.roofline import Conditions, Roofline
from roofmon.telemetry.nvidia import bounds, checks
from roofmon.telemetry.nvidia.library import raise_if_gone
from roofmon.telemetry.nvidia.point import Peaks
from roofmon.telemetry.nvidia.readings import Readings, newest
from roofmon.units import clean

SLOWLY_S = 30.0
"""How often limits are read again that an administrator may change."""


def _memory_v2(handle: Any) -> Any:
    return nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)


memory_info = newest(_memory_v2, nvml.nvmlDeviceGetMemoryInfo)
"""Memory of a device as a structure with `total` and `used`; the older call counts what the driver keeps
for itself as used."""


@dataclass(frozen=True)
class Part:
    """A GPU (`mig` None) or a MIG instance of it: handles, valid until the driver is reloaded."""

    gpu: Any
    index: int
    mig: Any = None

    @property
    def own(self) -> Any:
        """The handle of this part itself."""
        return self.gpu if self.mig is None else self.mig


class Facts:
    """The facts of one part. Raises NVMLError where not even the UUID can be had."""

    def __init__(self, part: Part, driver: str | None) -> None:
        self._part = part
        self._driver = driver
        self.uuid = clean(nvml.nvmlDeviceGetUUID(part.own), 96)
        self._readings = Readings(self.uuid)
        self.memory_bytes = self._total(part.own)
        self._capability = self._read_capability()
        self._sms = self._read_sms()
        self.description = self._describe()

    def limits(self) -> tuple[Peaks, Roofline]:
        """What utilisations are shares of, and the physical bounds, under the limits that hold now."""
        sm_clock = self._mhz("sm", nvml.NVML_CLOCK_SM, checks.CLOCK_MHZ)
        memory_clock = self._mhz("memory", nvml.NVML_CLOCK_MEM, checks.MEMORY_CLOCK_MHZ)
        gpu = self._part.gpu
        bits = self._readings.read(
            "bus width", lambda: nvml.nvmlDeviceGetMemoryBusWidth(gpu), checks.BUS_BITS
        )
        dram = bounds.dram_bound(memory_clock, bits) if memory_clock and bits else None
        if dram and self._part.mig is not None:
            whole = self._total(gpu)
            share = self.memory_bytes and whole and bounds.memory_share(self.memory_bytes, whole)
            dram = dram * share if share else None
        limit = self._readings.read(
            "power limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu), checks.POWER_MW
        )
        ecc = self._readings.read("ECC", lambda: nvml.nvmlDeviceGetEccMode(gpu)[0])
        widths = bounds.WIDTHS.get(self._capability or "", {})
        roofline = Roofline(
            ceilings=bounds.physical_ceilings(
                compute_capability=self._capability,
                sms=self._sms,
                sm_clock_hz=sm_clock,
                dram_bytes_per_s=dram,
                memory_clock_hz=memory_clock,
            ),
            conditions=Conditions(
                device=self.uuid,
                driver=self._driver,
                power_limit_w=None if limit is None else limit / 1000,
                ecc=None if ecc is None else bool(ecc),
                mig_profile=self.description.mig_profile,
            ),
        )
        return Peaks(dram, self._sms, widths), roofline

    def has_nvlink(self) -> bool:
        """Whether any NVLink is up."""
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                if nvml.nvmlDeviceGetNvLinkState(self._part.gpu, link):
                    return True
            except nvml.NVMLError as error:
                # No such link, or none at all; a driver too old to be asked may still count their bytes.
                raise_if_gone(error)
                return bool(error.value == nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return False

    def _describe(self) -> DeviceDescription:
        part = self._part
        name = self._readings.read("name", lambda: clean(nvml.nvmlDeviceGetName(part.own), 80))
        pci = self._readings.read("PCI id", lambda: str(nvml.nvmlDeviceGetPciInfo(part.gpu).busId))
        profile = None
        parent = None
        if part.mig is not None:
            found = re.search(r"\bMIG (\S+)", name or "")
            profile = found[1] if found else "unknown"
            parent = self._readings.read("parent", lambda: str(nvml.nvmlDeviceGetUUID(part.gpu)))
        return DeviceDescription(
            uuid=self.uuid,
            index=part.index,
            name=name or "NVIDIA GPU",
            kind="cuda",
            cores=self._sms,
            memory_bytes=self.memory_bytes,
            driver=self._driver,
            compute_capability=self._capability,
            pci_bus_id=clean(pci, 32) if pci else None,
            parent=parent,
            mig_profile=profile,
        )

    def _total(self, handle: Any) -> int | None:
        return self._readings.read(
            "memory", lambda: int(memory_info(handle).total), checks.MEMORY_BYTES
        )

    def _read_capability(self) -> str | None:
        pair = self._readings.read(
            "compute capability", lambda: nvml.nvmlDeviceGetCudaComputeCapability(self._part.gpu)
        )
        return f"{pair[0]}.{pair[1]}" if pair else None

    def _read_sms(self) -> int | None:
        if self._part.mig is not None:
            return self._readings.read(
                "SMs",
                lambda: int(nvml.nvmlDeviceGetAttributes_v2(self._part.mig).multiprocessorCount),
                checks.CORES,
            )
        cores = self._readings.read(
            "cores", lambda: int(nvml.nvmlDeviceGetNumGpuCores(self._part.gpu)), checks.CORES
        )
        return bounds.sm_count(cores, self._capability or "") if cores else None

    def _mhz(self, name: str, kind: int, check: Any) -> float | None:
        mhz = self._readings.read(
            f"highest {name} clock",
            lambda: nvml.nvmlDeviceGetMaxClockInfo(self._part.gpu, kind),
            check,
        )
        return None if mhz is None else mhz * 1e6


def mig_parts(gpu: Any, index: int) -> list[Part]:
    """The MIG instances of a GPU, numbered as the driver does; empty without MIG."""
    try:
        if nvml.nvmlDeviceGetMigMode(gpu)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    except nvml.NVMLError as error:
        raise_if_gone(error)
        return []
    parts = []
    for number in range(most):
        try:
            parts.append(Part(gpu, index, nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)))
        except nvml.NVMLError as error:  # numbers need not be contiguous
            raise_if_gone(error)
    return parts
