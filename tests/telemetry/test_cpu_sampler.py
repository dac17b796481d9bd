import time

import pytest

from roofmon.telemetry.cpu import CpuSampler
from roofmon.telemetry.host import read_host

CAN_BE_MISSING = (
    "clock_hz",
    "memory_clock_hz",
    "load",
    "memory_used_bytes",
    "temperature_c",
    "power_w",
    "event_reasons",
)


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_what_is_missing_has_a_reason_and_what_has_one_is_missing() -> None:
    sampler = CpuSampler(read_host())
    spin(0.1)
    sample = sampler.sample()
    missing = {name for name in CAN_BE_MISSING if getattr(sample, name) is None}
    assert missing == set(sample.missing)
    assert all(reason.strip() for reason in sample.missing.values())


def test_the_load_counts_this_busy_core() -> None:
    host = read_host()
    sampler = CpuSampler(host)
    spin(0.3)
    sample = sampler.sample()
    assert sample.load is not None
    # One thread of ours kept a core busy, unless others took part of it.
    assert 0.4 / len(host.cpus) <= sample.load <= 1.0
    assert sample.memory_used_bytes is not None
    assert 0 < sample.memory_used_bytes < host.memory_bytes
    assert sample.time_unix_ns == pytest.approx(time.time_ns(), abs=1e9)


def test_a_load_over_no_time_is_unknown_and_does_not_spoil_the_next() -> None:
    sampler = CpuSampler(read_host())
    sample = sampler.sample()
    assert sample.load is None
    assert "too little time" in sample.missing["load"]
    spin(0.3)
    assert (sampler.sample().load or 0.0) > 0.1
