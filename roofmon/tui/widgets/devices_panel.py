"""All devices of the host, a line each; the one shown is marked and kept in sight."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from roofmon.tui.arrangement import PanelName
from roofmon.tui.frame import Frame
from roofmon.tui.strips import Line, cells, fitted
from roofmon.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from roofmon.model.snapshot import Device

_NAME = 1
"""The place of the name among the columns."""

_STATE = 16
"""Cells that the state keeps before names get more than their column."""


class DevicesPanel(Panel):
    """A header, and as many lines as fit around the device shown."""

    panel: ClassVar[PanelName] = "devices"
    _first = 0
    page = 1

    def title(self, frame: Frame) -> str:
        """How many devices there are."""
        return f"devices ─ {len(frame.snapshot.devices)}" if frame.snapshot else "devices"

    def note(self, frame: Frame) -> str:
        """How to go to another one."""
        return "[ ] or j k select"

    def content(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """Header and lines."""
        view = frame.view
        if view is None or view.device is None:
            return [[(" no device yet", "muted")]]
        from roofmon.view import OVERVIEW, overview_cells

        devices = view.snapshot.devices
        at = devices.index(view.device)
        names = max(cells(overview_cells(device)[_NAME]) for device in devices)
        widths = [column.width for column in OVERVIEW]
        used = sum(widths) + len(widths)
        # The name is cut before the state is: it is the same on most hosts.
        widths[_NAME] += max(0, min(names - widths[_NAME], width - used - _STATE))
        widths[-1] = max(1, width - sum(widths[:-1]) - len(widths))
        self.page = max(1, height - 1)
        furthest = max(0, len(devices) - self.page)
        self._first = min(max(self._first, at - self.page + 1), at, furthest)
        header = _line([column.title for column in OVERVIEW], widths, " ")
        shown = range(self._first, min(len(devices), self._first + self.page))
        return [
            [(header, "muted")],
            *(_device_line(devices[i], widths, selected=i == at) for i in shown),
        ]


def _device_line(device: "Device", widths: Sequence[int], *, selected: bool) -> Line:
    from roofmon.view import overview_cells
    from roofmon.view.device_now import limits

    texts, sample = overview_cells(device), device.sample
    # Of a device that is lost nothing is known: why takes the place of all that would be.
    lost = bool(sample and sample.lost)
    known = _NAME + 1 if lost else len(texts) - 1
    role = "error" if lost else "warning" if sample and limits(sample) else ""
    place = "@selection" if selected else ""
    rest = sum(widths[known:]) + len(widths[known:]) - 1
    lead = _line(texts[:known], widths, "▸" if selected else " ")
    return [(f"{lead} ", place), (fitted(texts[-1], rest), f"{role}{place}")]


def _line(texts: Sequence[str], widths: Sequence[int], lead: str) -> str:
    from roofmon.view import OVERVIEW

    pieces = []
    for text, column, width in zip(texts, OVERVIEW, widths, strict=False):
        cut = fitted(text, width)
        pieces.append(cut.rstrip().rjust(width) if column.align == "right" else cut)
    return lead + " ".join(pieces)
