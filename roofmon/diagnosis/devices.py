"""Rules on a device: does it answer, is its clock held back."""

from collections.abc import Iterator

from roofmon.diagnosis.finding import Finding
from roofmon.model.device import DeviceSample
from roofmon.model.snapshot import Device
from roofmon.view.device_now import limits
from roofmon.view.facts import device_called

_HEALTH = ("thermal", "heat", "temperature", "brake", "hardware")
"""Words of reasons that are faults of cooling or supply; a power cap is how a busy GPU lives."""


def device_rules(device: Device) -> Iterator[Finding | None]:
    """What the rules say about one device; None where one does not apply."""
    sample = device.sample
    if sample is None:
        return
    if sample.lost:
        yield lost(device, sample)
        return
    yield clock_free(device, sample)


def lost(device: Device, sample: DeviceSample) -> Finding:
    """Has the device stopped answering?"""
    return Finding(
        rule="device-lost",
        status="fail",
        severity="error",
        title=f"{device_called(device)} is lost",
        evidence=f"{device.description.name}: {sample.lost}",
        advice="dmesg names the fault (Xid); a reset or a reboot by an administrator brings it back",
        device=device.description.uuid,
    )


def clock_free(device: Device, sample: DeviceSample) -> Finding | None:
    """Is something holding its clock back?"""
    if sample.event_reasons is None:
        return None
    reasons = limits(sample)
    fault = any(word in reason.casefold() for reason in reasons for word in _HEALTH)
    return Finding(
        rule="clock-limited",
        status="fail" if reasons else "pass",
        severity="warning" if fault else "info",
        title=f"clock limited: {', '.join(reasons)}" if reasons else "the clock is not held back",
        evidence=f"{device_called(device)}: {', '.join(_state(device, sample)) or 'no numbers known'}",
        advice=_advice(fault) if reasons else "",
        device=device.description.uuid,
    )


def _advice(fault: bool) -> str:
    if fault:
        return "see to cooling and power supply: compute-bound kernels slow down with the clock"
    return "compute roofs fall with the clock; c draws them at the present one"


def _state(device: Device, sample: DeviceSample) -> Iterator[str]:
    if sample.clock_hz:
        bounds = (c for c in device.roofline.ceilings if c.regime == "bound" and c.pipe)
        highest = [c.clock_hz for c in bounds if c.clock_hz]
        of = f" of {max(highest) / 1e6:.0f}" if highest else ""
        yield f"{sample.clock_hz / 1e6:.0f}{of} MHz"
    if sample.power_w is not None:
        of = f" of {sample.power_limit_w:.0f}" if sample.power_limit_w else ""
        yield f"{sample.power_w:.0f}{of} W"
    if sample.temperature_c is not None:
        yield f"{sample.temperature_c:.0f} °C"
