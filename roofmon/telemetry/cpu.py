"""What the CPU is doing now, through psutil: clock, load, memory, temperature."""

import time
from pathlib import Path

import psutil

from roofmon.model.device import DeviceSample
from roofmon.telemetry.host import Host

_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal")
_NOT_TOLD = "a CPU does not tell it without privileges"
_SHORTEST_S = 0.05  # the kernel counts in ticks of 10 ms: over fewer than five a load means nothing


def why_no_clock(host: Host) -> str | None:
    """Why the clock of this CPU cannot be told; None where it can.

    A virtual machine without frequency scaling shows the nominal clock for ever, whatever the cores
    really run at.
    """
    if host.virtual and not Path("/sys/devices/system/cpu/cpu0/cpufreq").exists():
        return "this virtual machine shows only a nominal clock, not the one held"
    return "the system does not tell the clock" if read_clock_hz() is None else None


def read_clock_hz() -> float | None:
    """The mean clock over all CPUs in Hz, as the system tells it."""
    try:
        frequency = psutil.cpu_freq()
    except (OSError, RuntimeError, NotImplementedError):
        return None
    return frequency.current * 1e6 if frequency and frequency.current > 0 else None


def read_temperature_c() -> float | None:
    """The hottest CPU sensor in °C."""
    try:
        sensors = psutil.sensors_temperatures()
    except (AttributeError, OSError, RuntimeError):
        return None
    readings = [reading.current for name in _SENSORS for reading in sensors.get(name, ())]
    return max((reading for reading in readings if reading > 0), default=None)


class CpuSampler:
    """Samples one CPU device. What cannot be told is found out once and not asked for again."""

    def __init__(self, host: Host) -> None:
        self._device = host.uuid
        self._cpus = host.cpus
        self._all_cpus = len(host.cpus) == psutil.cpu_count()
        self._missing = {
            "memory_clock_hz": _NOT_TOLD,
            "power_w": _NOT_TOLD,
            "event_reasons": _NOT_TOLD,
        }
        if reason := why_no_clock(host):
            self._missing["clock_hz"] = reason
        if read_temperature_c() is None:
            self._missing["temperature_c"] = "the system shows no CPU temperature sensor"
        self._load_since = time.monotonic()
        self._busy()  # the first value of psutil has no interval; this one is thrown away

    def sample(self) -> DeviceSample:
        """The present state; `load` is the mean since the last sample over the usable CPUs."""
        missing = dict(self._missing)
        load = clock = temperature = None
        now = time.monotonic()
        if now - self._load_since < _SHORTEST_S:
            missing["load"] = "too little time since the last sample"
        else:
            load = self._busy()
            self._load_since = now
        if "clock_hz" not in missing and (clock := read_clock_hz()) is None:
            missing["clock_hz"] = "the clock could not be read this time"
        if "temperature_c" not in missing and (temperature := read_temperature_c()) is None:
            missing["temperature_c"] = "the sensor could not be read this time"
        memory = psutil.virtual_memory()
        return DeviceSample(
            device=self._device,
            time_unix_ns=time.time_ns(),
            clock_hz=clock,
            load=load,
            memory_used_bytes=memory.total - memory.available,
            temperature_c=temperature,
            missing=missing,
        )

    def _busy(self) -> float:
        if self._all_cpus:
            return float(psutil.cpu_percent()) / 100
        each: list[float] = psutil.cpu_percent(percpu=True)
        usable = [each[cpu] for cpu in self._cpus if cpu < len(each)]
        return sum(usable) / max(1, len(usable)) / 100
