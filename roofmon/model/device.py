"""Devices as the collector sees them: what they are, and what they were doing at one moment."""

from collections.abc import Mapping
from typing import Literal

import msgspec


class DeviceDescription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What does not change about a device. `uuid` is the key; ordinals are only shown."""

    uuid: str
    index: int
    name: str
    kind: Literal["cpu", "cuda"]
    cores: int | None = None  # CPU cores, or streaming multiprocessors
    memory_bytes: int | None = None
    cache_bytes: int | None = None  # last-level cache, or L2
    driver: str | None = None
    compute_capability: str | None = None  # "9.0"
    pci_bus_id: str | None = None
    parent: str | None = None  # UUID of the GPU that a MIG instance is a slice of
    mig_profile: str | None = None
    selected: bool = True  # whether CUDA_VISIBLE_DEVICES, where it is set, names it


class DeviceProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that uses a device. `note` says why name and user are empty.

    `sm_busy` is the share of time (0 … 1) that its kernels ran lately; None where the driver does not tell.
    """

    pid: int
    name: str = ""
    user: str = ""
    memory_bytes: int | None = None
    sm_busy: float | None = None
    note: str = ""


class DeviceSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a device was doing at one moment; None where it cannot be told, with the reason.

    `load` is the share of time (0 … 1) that the device was busy, `memory_busy` that its memory was: time,
    not bandwidth. `event_reasons` is what limits its clock, in words. `rates` is the device's own point on
    its roofline: byte/s by level (`dram`) and FLOP/s by pipe (`vector/fp32`), None where no counter tells.
    FLOP/s were computed with the SM clock `rates_clock_hz`: what the driver told, as `clock_hz` is, which
    reads high where something limits the clock; or `mean_clock_hz`, counted cycles over a second or so up
    to now, where that is known.
    `lost` says why the device does not answer, "" while it does. `missing` maps field names to why they
    are None.
    """

    device: str
    time_unix_ns: int
    clock_hz: float | None = None
    mean_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    load: float | None = None
    memory_busy: float | None = None
    memory_used_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    event_reasons: tuple[str, ...] | None = None
    pcie_in_bytes_per_s: float | None = None  # to the device
    pcie_out_bytes_per_s: float | None = None
    nvlink_in_bytes_per_s: float | None = None
    nvlink_out_bytes_per_s: float | None = None
    sm_busy: float | None = None
    occupancy: float | None = None
    rates: Mapping[str, float] | None = None
    rates_clock_hz: float | None = None
    processes: tuple[DeviceProcess, ...] | None = None
    lost: str = ""
    missing: Mapping[str, str] = {}
