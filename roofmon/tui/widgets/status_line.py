"""The first line: what is watched and how it is doing; or, before all else, why the data is not live."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roofmon.tui.frame import Frame
from roofmon.tui.names import clock_time, device_label
from roofmon.tui.strips import Line, Piece, bar, fitted, spread, width_of
from roofmon.tui.widgets.lines import Lines

if TYPE_CHECKING:
    from roofmon.model.activity import Activity
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
        facts = _device_facts(view.device, view.activity) if view.device else []
        if view.device and view.device.sample and view.device.sample.lost:
            return [[*left, (fitted("  ".join(facts), width - width_of(left)), "error")]]
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


def _device_facts(device: "Device", activity: "Activity | None") -> list[str]:
    """The device by name, then what it is doing, the most telling first."""
    from roofmon.view import device_now

    description = device.description
    return [f"{device_label(description)} {description.name}", *device_now(device, activity)]
