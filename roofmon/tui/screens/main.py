"""The main screen: status, chart, device, checklist, kernels, sources and keys."""

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.events import Resize
from textual.geometry import Offset

from roofmon.tui.arrangement import LEAST_HEIGHT, LEAST_WIDTH, Arrangement, arrange
from roofmon.tui.frame import Frame
from roofmon.tui.palette import Palette
from roofmon.tui.screens.base import RoofScreen
from roofmon.tui.strips import Line
from roofmon.tui.widgets.checklist_panel import CheckLine, ChecklistPanel
from roofmon.tui.widgets.device_panel import DevicePanel
from roofmon.tui.widgets.devices_panel import DevicesPanel
from roofmon.tui.widgets.kernel_table import KernelTable
from roofmon.tui.widgets.lines import Lines
from roofmon.tui.widgets.output_panel import OutputPanel
from roofmon.tui.widgets.panel import Panel
from roofmon.tui.widgets.roofline_chart import RooflineChart
from roofmon.tui.widgets.sources import BottomLine, NoticeLine
from roofmon.tui.widgets.status_line import StatusLine


class MainScreen(RoofScreen):
    """Places its widgets by `arrange` and hands every frame to those in sight."""

    DEFAULT_CSS: ClassVar[str] = ""

    def __init__(
        self, palette: Palette, frame: Frame, keymap: Mapping[str, tuple[str, ...]]
    ) -> None:
        super().__init__(palette, frame)
        self._keymap = keymap
        self._arranged: Arrangement | None = None

    def compose(self) -> ComposeResult:
        """The widgets, named as in `Arrangement`."""
        palette, frame = self.palette, self.shown
        self._widgets: tuple[Lines, ...] = (
            StatusLine(palette, frame, id="status"),
            RooflineChart(palette, frame, id="chart"),
            DevicePanel(palette, frame, id="device"),
            DevicesPanel(palette, frame, id="devices"),
            ChecklistPanel(palette, frame, id="checklist"),
            KernelTable(palette, frame, id="kernels"),
            OutputPanel(palette, frame, id="output"),
            CheckLine(palette, frame, id="check"),
            NoticeLine(palette, frame, id="notice"),
            BottomLine(palette, frame, self._keymap, id="keys"),
            TooSmall(palette, frame, id="message"),
        )
        # Before the first paint, so that it is not of unplaced widgets.
        self._place(*self.app.size)
        yield from self._widgets

    @property
    def table(self) -> KernelTable:
        """The kernel table."""
        return self.query_one(KernelTable)

    @property
    def devices(self) -> DevicesPanel:
        """The overview of all devices."""
        return self.query_one(DevicesPanel)

    def act(self, action: str) -> bool:
        """Scroll the device's panel where it has the whole window."""
        choices = self.shown.choices
        return (
            choices.full
            and choices.focus == "device"
            and self.query_one(DevicePanel).scroll_by(action)
        )

    def on_resize(self, event: Resize) -> None:
        """Place everything anew."""
        self._place(event.size.width, event.size.height)

    def show(self, frame: Frame) -> None:
        """Show another frame, placing the widgets anew where its choices ask for it."""
        self.shown = frame
        if self.size:
            self._place(self.size.width, self.size.height)
        super().show(frame)

    def _place(self, width: int, height: int) -> None:
        choices, notice = self.shown.choices, self.shown.notice is not None
        output = self.shown.program is not None
        arranged = arrange(
            width, height, choices.focus, full=choices.full, notice=notice, output=output
        )
        if arranged == self._arranged:
            return
        self._arranged = arranged
        for widget in self._widgets:
            place = arranged.places.get(widget.id or "")
            if place is None:
                widget.display = False
                continue
            if not widget.display:
                # What it drew before it was hidden may be old, though of the right size.
                widget.display, widget.shown = True, self.shown
                widget.redraw()
            widget.styles.offset = Offset(place.x, place.y)
            widget.styles.width, widget.styles.height = place.width, place.height
            if isinstance(widget, Panel) and widget.framed != arranged.framed:
                widget.framed = arranged.framed
                widget.redraw()
            if isinstance(widget, BottomLine):
                widget.own_notice_line = "notice" in arranged.places


class TooSmall(Lines):
    """What is shown instead of a screen that would be unreadable."""

    def lines(self, frame: Frame, width: int, height: int) -> list[Line]:
        """The message, in the middle."""
        need = f"{LEAST_WIDTH}×{LEAST_HEIGHT}"
        texts = (f"window too small: needs {need}", f"needs {need}", need)
        text = next((t for t in texts if len(t) <= width), "")
        return [*[()] * (height // 2), [(text.center(width), "warning")]]
