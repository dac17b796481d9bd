"""What one GPU, or one MIG instance, is doing now: a sample, each value as often as it changes."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pynvml as nvml  # type: ignore[import-untyped, unused-ignore]

from roofmon.model.device import DeviceSample
from roofmon.model.roofline import NO_ROOFS, Roofline
from roofmon.telemetry.nvidia import checks, gpm
from roofmon.telemetry.nvidia.events import event_words
from roofmon.telemetry.nvidia.facts import SLOWLY_S, Facts, Part, memory_info
from roofmon.telemetry.nvidia.point import Peaks, Point
from roofmon.telemetry.nvidia.processes import read_busy, read_processes
from roofmon.telemetry.nvidia.readings import Readings, newest

_TEMPERATURE_S = 1.0
_PROCESSES_S = 2.0
_PCIE_S = 2.0  # before GPM, each direction makes the driver measure for 20 ms
_NOT_COUNTED = "cycles are counted while kernels are traced and counters may be read"
_NVLINK = ("nvlink_in_bytes_per_s", "nvlink_out_bytes_per_s")

_event_reasons = newest(
    nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlDeviceGetCurrentClocksThrottleReasons
)


class Device:
    """Samples one part of a GPU. Methods raise NVMLError where the GPU or the driver is gone."""

    def __init__(self, part: Part, driver: str | None, gpm_interval_s: float) -> None:
        self._gpu, self._own = part.gpu, part.own
        self._facts = Facts(part, driver)
        self.uuid = self._facts.uuid
        self.description = self._facts.description
        self._readings = Readings(self.uuid)
        instance = None
        if part.mig is not None:
            instance = self._readings.read(
                "rates", lambda: int(nvml.nvmlDeviceGetGpuInstanceId(part.mig))
            )
            whole = "it is measured for the whole GPU only"
            for field in ("power_w", "power_limit_w"):
                self._readings.refuse(field, whole)
        why_not = gpm.supported(part.gpu)
        if part.mig is not None and instance is None:
            why_not = why_not or f"no GPM: {self._readings.missing['rates']}"
        self._gpm = gpm.Gpm(part.gpu, instance, Peaks(None, None, {}), gpm_interval_s, why_not)
        self._whole = part.mig is None
        self._has_nvlink = self._facts.has_nvlink()
        if not self._has_nvlink:
            for field in _NVLINK:
                self._readings.refuse(field, "no NVLink is active")
        self._limits_due = 0.0
        self.roofline: Roofline = NO_ROOFS

    def close(self) -> None:
        """Give back what the driver holds for us."""
        self._gpm.close()

    def sample(self) -> DeviceSample:
        """The present state. `roofline` is brought up to date as well."""
        if time.monotonic() >= self._limits_due:
            self._gpm.peaks, self.roofline = self._facts.limits()
            self._limits_due = time.monotonic() + SLOWLY_S
        read = self._readings
        clock = self._mhz("clock_hz", nvml.NVML_CLOCK_SM, checks.CLOCK_MHZ)
        point = self._gpm.read(clock)
        links = self._links(point)
        load, memory_busy = self._utilization()
        memory = read.read(
            "memory_used_bytes",
            lambda: memory_info(self._own),
            lambda m: checks.memory_used(m.used, m.total),
        )
        events = read.read(
            "event_reasons", lambda: int(_event_reasons(self._gpu)), checks.EVENT_BITS
        )
        total = self._facts.memory_bytes
        busy = read.read("process_busy", lambda: read_busy(self._own), None, _PROCESSES_S)
        sample = DeviceSample(
            device=self.uuid,
            time_unix_ns=time.time_ns(),
            clock_hz=clock,
            memory_clock_hz=self._mhz(
                "memory_clock_hz", nvml.NVML_CLOCK_MEM, checks.MEMORY_CLOCK_MHZ
            ),
            load=load,
            memory_busy=memory_busy,
            memory_used_bytes=None if memory is None else int(memory.used),
            temperature_c=read.read(
                "temperature_c",
                lambda: float(nvml.nvmlDeviceGetTemperature(self._gpu, nvml.NVML_TEMPERATURE_GPU)),
                checks.TEMPERATURE_C,
                _TEMPERATURE_S,
            ),
            power_w=self._watts("power_w", nvml.nvmlDeviceGetPowerUsage, 0.0),
            power_limit_w=self._watts(
                "power_limit_w", nvml.nvmlDeviceGetEnforcedPowerLimit, SLOWLY_S
            ),
            event_reasons=None if events is None else event_words(events),
            pcie_in_bytes_per_s=links.get("pcie_in_bytes_per_s"),
            pcie_out_bytes_per_s=links.get("pcie_out_bytes_per_s"),
            nvlink_in_bytes_per_s=links.get("nvlink_in_bytes_per_s"),
            nvlink_out_bytes_per_s=links.get("nvlink_out_bytes_per_s"),
            sm_busy=point.values.get("sm_busy"),
            occupancy=point.values.get("occupancy"),
            rates=point.rates,
            rates_clock_hz=point.clock_hz,
            processes=read.read(
                "processes", lambda: read_processes(self._own, total, busy), None, _PROCESSES_S
            ),
        )
        why_no_clock = point.missing.get("rates") or read.missing.get("clock_hz", "")
        clocks = {"rates_clock_hz": why_no_clock, "mean_clock_hz": _NOT_COUNTED}
        return _with_missing(sample, {**clocks, **point.missing, **read.missing})

    def _mhz(self, field: str, kind: int, check: Callable[[float], str | None]) -> float | None:
        mhz = self._readings.read(
            field, lambda: int(nvml.nvmlDeviceGetClockInfo(self._gpu, kind)), check
        )
        return None if mhz is None else mhz * 1e6

    def _watts(self, field: str, call: Callable[[Any], int], every_s: float) -> float | None:
        milliwatts = self._readings.read(field, lambda: call(self._gpu), checks.POWER_MW, every_s)
        return None if milliwatts is None else milliwatts / 1000

    def _utilization(self) -> tuple[float | None, float | None]:
        """(share of time with a kernel running, share of time with memory active)."""
        read = self._readings
        rates = read.read("load", lambda: nvml.nvmlDeviceGetUtilizationRates(self._own))
        if rates is None:
            read.missing["memory_busy"] = read.missing["load"]
            return None, None
        load = read.accept("load", rates.gpu, checks.PERCENT)
        memory = read.accept("memory_busy", rates.memory, checks.PERCENT)
        return (None if load is None else load / 100, None if memory is None else memory / 100)

    def _links(self, point: Point) -> dict[str, float]:
        """PCIe and NVLink traffic in byte/s: GPM's, or the older PCIe counters without it."""
        links = {f: v for f, v in point.values.items() if self._has_nvlink or f not in _NVLINK}
        if self._gpm.why_not and self._whole:
            for field, counter in (
                ("pcie_in_bytes_per_s", nvml.NVML_PCIE_UTIL_RX_BYTES),
                ("pcie_out_bytes_per_s", nvml.NVML_PCIE_UTIL_TX_BYTES),
            ):
                kib = self._pcie(field, counter)
                if kib is not None:
                    links[field] = kib * 1024.0
        return links

    def _pcie(self, field: str, counter: int) -> int | None:
        """The older PCIe counters, in KiB/s."""
        return self._readings.read(
            field,
            lambda: int(nvml.nvmlDeviceGetPcieThroughput(self._gpu, counter)),
            checks.PCIE_KIB_PER_S,
            _PCIE_S,
        )


def _with_missing(sample: DeviceSample, reasons: dict[str, str]) -> DeviceSample:
    """`sample` with a reason for each field that has no value, and for no other."""
    fields = sample.__struct_fields__
    return msgspec.structs.replace(
        sample,
        missing={
            f: why for f, why in reasons.items() if f in fields and getattr(sample, f) is None
        },
    )
