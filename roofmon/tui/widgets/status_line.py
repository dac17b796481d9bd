"""The first line: what is watched and how it is doing; or, before all else, why the data is not live."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roofmon.tui.frame import Frame
from roofmon.tui.names import clock_time, device_label
from roofmon.tui.strips import Line, Piece, bar, fitted, spread, width_of
from roofmon.tui.widgets.lines import Lines
from roofmon.units import percent, significant

if TYPE_CHECKING:
    from roofmon.model.snapshot import Device
    from roofmon.view import View


class StatusLine(Lines):
    """One line. Facts about the device give way from the right when the window is narrow."""

    def lines(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """The line."""
        name = "roofmon" if not frame.title else f"roofmon {frame.title}"
        left: list[Piece] = [(f" {name}  ", "title")]
        view = frame.view
        if view is None or frame.state:
            return [_trouble(left, frame, width)]
        right = _right(frame, view)
        facts = device_facts(view.device) if view.device else []
        room = width - width_of(left) - width_of(right) - 2
        if facts and room < len(facts[0]) and not _is_urgent(frame):
            right, room = [], width - width_of(left)
        text = ""
        for fact in facts:
            longer = f"{text}  {fact}" if text else fact
            if len(longer) > room:
                break
            text = longer
        return [spread([*left, (text, "")], right, width)]


def _is_urgent(frame: Frame) -> bool:
    return frame.choices.paused or (frame.view is not None and frame.view.comparison is not None)


def _trouble(left: list[Piece], frame: Frame, width: int) -> Line:
    if frame.view is None:
        text = "starting collector…" if frame.state == "starting" else frame.state
        return [*left, (text, "warning")]
    room = max(0, width - width_of(left) - 10)
    return [*left, (" STALE ", "alert"), (f" {fitted(frame.state, room)}", "error")]


def _right(frame: Frame, view: "View") -> list[Piece]:
    if frame.choices.paused:
        at = clock_time(view.snapshot.time_unix_ns)
        return [(" PAUSED ", "alert"), (f" at {at} ", "warning")]
    progress = view.device.progress if view.device else None
    if progress is not None:
        share = progress.done / progress.total if progress.total else 0.0
        steps = f" {progress.done} of {progress.total} "
        return [(f"{progress.task} ", "warning"), (f"▕{bar(share, 10)}▏", "bar"), (steps, "")]
    if view.comparison is not None:
        baseline = clock_time(view.comparison.before.time_unix_ns)
        changed = ", ".join(view.comparison.changed) or "nothing else changed"
        return [(f"since {baseline}: {changed} ", "accent")]
    programs = view.snapshot.programs
    if not programs:
        return [("no program attached ", "muted")]
    pid, name = next(iter(programs.items()))
    more = f" +{len(programs) - 1}" if len(programs) > 1 else ""
    return [(f"attached: {name} {pid}{more} ", "")]


def device_facts(device: "Device") -> list[str]:
    """What there is to say about a device, the most telling first; what is not known is left out."""
    facts = [f"{device_label(device.description)} {device.description.name}"]
    sample = device.sample
    if sample is None:
        return facts
    if sample.clock_hz is not None:
        facts.append(f"{sample.clock_hz / 1e6:.0f} MHz")
    if sample.load is not None:
        facts.append(f"load {percent(sample.load)}")
    if sample.power_w is not None:
        facts.append(f"{sample.power_w:.0f} W")
    if sample.temperature_c is not None:
        facts.append(f"{sample.temperature_c:.0f} °C")
    if sample.event_reasons:
        facts.append(", ".join(sample.event_reasons))
    if sample.memory_used_bytes is not None and device.description.memory_bytes:
        used, total = sample.memory_used_bytes / 2**30, device.description.memory_bytes / 2**30
        facts.append(f"memory {significant(used)} of {significant(total)} GiB")
    return facts
