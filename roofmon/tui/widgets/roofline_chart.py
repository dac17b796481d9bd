"""The roofline chart. It is drawn anew only when what it shows moved by a cell."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import structs

from roofmon.tui.arrangement import PanelName
from roofmon.tui.frame import Frame
from roofmon.tui.names import device_label, level_shown
from roofmon.tui.strips import Line, cells, fitted
from roofmon.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from roofmon.chart.scene import Window


class RooflineChart(Panel):
    """Roofs and kernels of the device shown."""

    panel: ClassVar[PanelName] = "chart"
    _key: Hashable = None
    _canvas: Sequence[Line] = ()
    _placeless = 0
    _window: "Window | None" = None
    _window_of = ""

    def title(self, frame: Frame) -> str:
        """The level that intensities are of."""
        if frame.view is None:
            return "roofline"
        stale = "STALE · " if frame.state else ""
        return f"roofline ─ {stale}{level_shown(frame.view)}"

    def note(self, frame: Frame) -> str:
        """The device's own point, and kernels that cannot be placed: they are in the table only."""
        placeless = f"{self._placeless} not placed: work unknown" if self._placeless else ""
        device = frame.view.device if frame.view else None
        if device is None:
            return placeless
        from roofmon.view.device_point import MARK, device_point, point_text

        point = device_point(device)
        if point is None:
            return placeless
        mark = MARK if self.palette.unicode else "@"
        own = (
            f"{mark if point.place else ''} {device_label(device.description)} {point_text(point)}"
        )
        both = f"{own} · {placeless}" if placeless else own
        room = self.size.width - cells(self.title(frame)) - len("┌    ──┐")
        return (both if cells(both) <= room else fitted(own, min(room, cells(own)))).strip()

    def content(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """The chart in cells, from the last time where it would be the same."""
        view = frame.view
        if view is None:
            text = "starting collector…" if frame.state == "starting" else frame.state
            return [*[()] * (height // 2), [(text.center(width), "message")]]
        from roofmon.chart import cell_key, render
        from roofmon.chart.window import auto_window, steady
        from roofmon.view import scene

        picture = scene(view, self.palette.unicode)
        if picture.window is None:
            device = view.device.description.uuid if view.device else ""
            before = self._window if self._window_of == device else None
            self._window = steady(before, auto_window(picture.roofs, picture.points))
            self._window_of = device
            picture = structs.replace(picture, window=self._window)
        self._placeless = sum(p.intensity is None or p.flops is None for p in picture.points)
        key = cell_key(picture, width, height)
        if key != self._key:
            canvas = render(picture, width, height)
            self._canvas = [
                [(text[start:stop], role) for start, stop, role in runs]
                for text, runs in zip(canvas.characters, canvas.roles, strict=True)
            ]
            self._key = key
        return self._canvas
