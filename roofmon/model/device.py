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


class DeviceSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a device was doing at one moment; None where it cannot be told, with the reason.

    `load` is the share of time (0 … 1) that the device was busy, `event_reasons` what limits its clock.
    `missing` maps field names to why they are None.
    """

    device: str
    time_unix_ns: int
    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    load: float | None = None
    memory_used_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    event_reasons: tuple[str, ...] | None = None
    missing: Mapping[str, str] = {}
