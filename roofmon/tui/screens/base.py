"""What all screens share: they show frames, act on actions, and may take typed keys for themselves."""

from typing import ClassVar

from textual.screen import Screen

from roofmon.tui.frame import Frame
from roofmon.tui.palette import Palette
from roofmon.tui.widgets.lines import Lines


class RoofScreen(Screen[None], inherit_bindings=False):
    """A screen without bindings of textual's own: every key comes from the registry of actions."""

    DEFAULT_CSS: ClassVar[str] = """
    RoofScreen { background: ansi_default; color: ansi_default; overflow: hidden; }
    """

    def __init__(self, palette: Palette, frame: Frame) -> None:
        super().__init__()
        self.palette = palette
        self.shown = frame

    def show(self, frame: Frame) -> None:
        """Show another frame."""
        self.shown = frame
        for widget in self.query(Lines):
            widget.show(frame)

    def recolour(self, palette: Palette) -> None:
        """Show the same with other colours."""
        self.palette = palette
        for widget in self.query(Lines):
            widget.recolour(palette)

    def act(self, action: str) -> bool:
        """Do an action by its id; False where this screen has none of that id."""
        return False

    def typed(self, key: str, character: str | None) -> bool:
        """Take a key before it is looked up as an action; False to leave it."""
        return False
