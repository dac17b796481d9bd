"""The base of all widgets: shows lines of a frame, and repaints only the cells that changed."""

from collections.abc import Sequence
from typing import ClassVar

from textual.filter import LineFilter
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from roofmon.tui.frame import Frame
from roofmon.tui.palette import Palette
from roofmon.tui.strips import Line, changed_regions, strip_of


class Lines(Widget):
    """A widget of finished lines. A subclass says in `lines` what they are for a frame and a size."""

    DEFAULT_CSS: ClassVar[str] = """
    Lines { position: absolute; background: ansi_default; color: ansi_default; }
    """

    def __init__(self, palette: Palette, frame: Frame, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.palette = palette
        self.shown = frame
        self._lines: list[Line] = []
        self._strips: list[Strip] = []
        self._drawn_for: tuple[Palette, Size] | None = None

    def lines(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """What to show; lines over `height` are cut, missing ones are blank."""
        raise NotImplementedError

    def show(self, frame: Frame) -> None:
        """Show another frame."""
        self.shown = frame
        if self.display and self.size:
            old = self._strips
            self._draw()
            if regions := changed_regions(old, self._strips, self.size.width):
                self.refresh(*regions)

    def redraw(self) -> None:
        """Draw everything anew at the next paint."""
        self._drawn_for = None
        self.refresh()

    def recolour(self, palette: Palette) -> None:
        """Show the same with other colours."""
        self.palette = palette
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """One line, for the compositor. After a resize this comes before anything else: draw then."""
        if self._drawn_for != (self.palette, self.size):
            self._draw()
        return self._strips[y]

    def get_line_filters(self) -> Sequence[LineFilter]:
        """None: the palette leaves colour out under NO_COLOR, textual's filter would send resets."""
        return ()

    def _draw(self) -> None:
        width, height = self.size
        new = list(self.lines(self.shown, width, height)[:height])
        new += [()] * (height - len(new))
        known = self._drawn_for == (self.palette, self.size)
        old_lines, old_strips = self._lines, self._strips
        self._strips = [
            old_strips[y] if known and line == old_lines[y] else strip_of(line, width, self.palette)
            for y, line in enumerate(new)
        ]
        self._lines = new
        self._drawn_for = (self.palette, self.size)
