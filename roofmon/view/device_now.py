"""What a device is doing now, in words: for the first line, and a line a device for hosts with several."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from roofmon.model.activity import Activity
from roofmon.model.device import DeviceSample
from roofmon.model.roofline import pipe_label
from roofmon.model.snapshot import Device
from roofmon.units import NOT_AVAILABLE, mebibytes, percent, si, significant
from roofmon.view.device_point import device_point
from roofmon.view.tracing import activity_facts

IDLE = "idle"
"""The one reason for a low clock that holds nothing back."""


def device_now(device: Device, activity: Activity | None = None) -> list[str]:
    """Facts about a device and its traced kernels, the most telling first, as far as they are known."""
    sample = device.sample
    traced = activity_facts(activity)[:1] if activity is not None else []
    kernels = [f"kernels {fact}" for fact in traced]
    if sample is None:
        return kernels
    if sample.lost:
        return [f"LOST: {sample.lost}"]
    facts = [f"{sample.clock_hz / 1e6:.0f} MHz"] if sample.clock_hz else []
    facts += kernels
    rates = _rates(device)
    if sample.load is not None and not rates:
        facts.append(f"load {percent(sample.load)}")
    if sample.power_w is not None:
        facts.append(f"{power(sample)} W")
    if sample.event_reasons:
        facts.append(", ".join(sample.event_reasons))
    if sample.temperature_c is not None:
        facts.append(f"{sample.temperature_c:.0f} °C")
    facts += rates
    used, total = sample.memory_used_bytes, device.description.memory_bytes
    if used is not None:
        text = f"{significant(used / 2**30)} of {mebibytes(total)}" if total else mebibytes(used)
        facts.append(f"memory {text}")
    return facts


def _rates(device: Device) -> list[str]:
    """DRAM in byte/s, and what the busiest pipe does of its roof."""
    point = device_point(device)
    if point is None:
        return []
    facts = [] if point.bytes_per_s is None else [f"DRAM {si(point.bytes_per_s, 'B/s')}"]
    pipe = point.main_pipe
    roof = device.roofline.compute(pipe) if pipe else None
    if pipe and roof:
        name = "tensor" if pipe.unit == "tensor" else pipe_label(pipe)
        facts.append(f"{name} {percent(point.rates[pipe] / roof.value)}")
    return facts


def power(sample: DeviceSample) -> str:
    """The power drawn in W, of its limit where there is one: `698/700`."""
    if sample.power_w is None:
        return NOT_AVAILABLE
    limit = f"/{sample.power_limit_w:.0f}" if sample.power_limit_w else ""
    return f"{sample.power_w:.0f}{limit}"


def limits(sample: DeviceSample) -> tuple[str, ...]:
    """What holds the clock back, without its being idle."""
    return tuple(reason for reason in sample.event_reasons or () if reason.casefold() != IDLE)


@dataclass(frozen=True)
class OverviewColumn:
    """One column of the overview; the last one, `state`, takes what is left of the width."""

    title: str
    width: int
    align: Literal["left", "right"]
    cell: Callable[[Device], str]


def overview_cells(device: Device) -> list[str]:
    """The texts of a device's line, in the order of OVERVIEW, neither padded nor cut.

    Of a device that is lost only the number, the name and the state mean anything.
    """
    return [column.cell(device) for column in OVERVIEW]


def _of_sample(cell: Callable[[DeviceSample], str]) -> Callable[[Device], str]:
    """A cell of the sample; n/a without one."""

    def of_device(device: Device) -> str:
        return NOT_AVAILABLE if device.sample is None else cell(device.sample)

    return of_device


def _number(device: Device) -> str:
    return "CPU" if device.description.kind == "cpu" else str(device.description.index)


def _name(device: Device) -> str:
    description = device.description
    return f"↳ {description.mig_profile}" if description.mig_profile else description.name


def _clock(sample: DeviceSample) -> str:
    return f"{sample.clock_hz / 1e6:.0f}" if sample.clock_hz else NOT_AVAILABLE


def _temperature(sample: DeviceSample) -> str:
    return NOT_AVAILABLE if sample.temperature_c is None else f"{sample.temperature_c:.0f}"


def _load(sample: DeviceSample) -> str:
    return percent(sample.load)


def _dram(device: Device) -> str:
    point = device_point(device)
    if point is None or point.bytes_per_s is None:
        return NOT_AVAILABLE
    return si(point.bytes_per_s)


def _flops(device: Device) -> str:
    point = device_point(device)
    if point is None or point.flops is None:
        return NOT_AVAILABLE
    pipe = point.main_pipe
    name = f" {pipe_label(pipe)}" if pipe else ""
    return f"{'≤' if point.upper_bound else ''}{si(point.flops)}{name}"


def _memory(device: Device) -> str:
    used = device.sample.memory_used_bytes if device.sample else None
    total = device.description.memory_bytes
    of = f"/{total / 2**30:.0f}" if total else ""
    return NOT_AVAILABLE if used is None else f"{significant(used / 2**30, 2)}{of}"


def _state(device: Device) -> str:
    sample, progress = device.sample, device.progress
    if sample is None:
        return "nothing was sampled yet"
    if sample.lost:
        return f"lost: {sample.lost}"
    if progress is not None:
        return f"{progress.task} {progress.done}/{progress.total}"
    return ", ".join(sample.event_reasons or ())


OVERVIEW: tuple[OverviewColumn, ...] = (
    OverviewColumn("#", 3, "right", _number),
    OverviewColumn("device", 14, "left", _name),
    OverviewColumn("MHz", 4, "right", _of_sample(_clock)),
    OverviewColumn("W", 7, "right", _of_sample(power)),
    OverviewColumn("°C", 3, "right", _of_sample(_temperature)),
    OverviewColumn("busy", 5, "right", _of_sample(_load)),
    OverviewColumn("DRAM/s", 6, "right", _dram),
    OverviewColumn("FLOP/s", 11, "right", _flops),
    OverviewColumn("GiB", 7, "right", _memory),
    OverviewColumn("state", 0, "left", _state),
)
"""One line a device, 79 cells and its state where names are no longer than their column."""
