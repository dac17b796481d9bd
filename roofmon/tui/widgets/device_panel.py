"""The device: what it was doing at the last tick, its roofs, and how far the access ladder carries."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from roofmon.tui.arrangement import PanelName
from roofmon.tui.frame import Frame
from roofmon.tui.names import device_label
from roofmon.tui.strips import Line, bar, wrapped
from roofmon.tui.widgets.panel import Panel
from roofmon.tui.widgets.sources import RUNG_MARKS, roofs_age
from roofmon.units import NOT_AVAILABLE, mebibytes, percent, si, significant

if TYPE_CHECKING:
    from roofmon.model.device import DeviceSample
    from roofmon.model.snapshot import Device, Snapshot

_BAR = 6


class DevicePanel(Panel):
    """The most telling lines first: in the small panel only they are seen."""

    panel: ClassVar[PanelName] = "device"

    def title(self, frame: Frame) -> str:
        """The device's name."""
        device = frame.view.device if frame.view else None
        if device is None:
            return "device"
        return f"{device_label(device.description)} ─ {device.description.name}"

    def content(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """Use, clock, memory; programs; sources; roofs."""
        if frame.view is None or frame.view.device is None:
            return [[(" no device yet", "muted")]]
        snapshot, device = frame.view.snapshot, frame.view.device
        return [
            *_now(device),
            *_programs(snapshot, width),
            *_sources(snapshot, width),
            *_roofs(snapshot, device),
        ]


def _now(device: "Device") -> Iterator[Line]:
    sample, memory = device.sample, device.description.memory_bytes
    if sample is None:
        yield [(" nothing was sampled yet", "muted")]
        return
    yield _share("load", sample.load, "", _why(sample, "load"))
    used = sample.memory_used_bytes
    share = used / memory if used is not None and memory else None
    text = f"{significant((used or 0) / 2**30)} of {mebibytes(memory)}"
    yield _share("memory", share, text, _why(sample, "memory_used_bytes"))
    clock = f"{sample.clock_hz / 1e6:.0f} MHz" if sample.clock_hz else _why(sample, "clock_hz")
    if sample.memory_clock_hz:
        clock += f", memory {sample.memory_clock_hz / 1e6:.0f}"
    yield _fact("clock", clock)
    power = f"{sample.power_w:.0f} W" if sample.power_w is not None else _why(sample, "power_w")
    heat = sample.temperature_c
    warmth = f"{heat:.0f} °C" if heat is not None else _why(sample, "temperature_c")
    yield _fact("power", f"{power}, {warmth}")
    if sample.event_reasons is not None:
        yield _fact("limits", ", ".join(sample.event_reasons) or "the clock is not held back")


def _why(sample: "DeviceSample", field: str) -> str:
    reason = sample.missing.get(field, "")
    return f"{NOT_AVAILABLE} ({reason})" if reason else NOT_AVAILABLE


def _fact(name: str, text: str) -> Line:
    return [(f" {name:<7}", "muted"), (text, "")]


def _share(name: str, share: float | None, text: str, why: str) -> Line:
    if share is None:
        return _fact(name, why)
    return [(f" {name:<7}", "muted"), (bar(share, _BAR), "bar"), (f" {text or percent(share)}", "")]


def _programs(snapshot: "Snapshot", width: int) -> list[Line]:
    named = " · ".join(f"{name} {pid}" for pid, name in snapshot.programs.items())
    return wrapped(named, width, "", " " * 8, " runs   ") if named else []


def _sources(snapshot: "Snapshot", width: int) -> Iterator[Line]:
    for rung in snapshot.rungs:
        mark, role = RUNG_MARKS[rung.state]
        yield [(f" {mark} ", role), (f"{rung.rung} {rung.state}", "")]
        if rung.reason:
            yield from wrapped(rung.reason, width, "muted", "   ")
        if rung.fix:
            yield from wrapped(rung.fix, width, "accent", "     ", "   → ")


def _roofs(snapshot: "Snapshot", device: "Device") -> Iterator[Line]:
    age = roofs_age(snapshot, device)
    if age:
        yield [(f" {age}", "")]
    for ceiling in device.roofline.ceilings:
        unit = "B/s" if ceiling.kind == "bandwidth" else "FLOP/s"
        spread = (ceiling.ci_high - ceiling.ci_low) / 2 / ceiling.value * 100
        flags = f" {', '.join(ceiling.flags)}" if ceiling.flags else ""
        yield [
            (f"   {ceiling.name:<12}", "muted"),
            (f"{si(ceiling.value, unit):>13} ± {spread:.1f} %  ", ""),
            (f"{ceiling.regime} {ceiling.probe} n={ceiling.n}", "muted"),
            (flags, "warning"),
        ]
