"""Screens that are one page of lines to scroll: the drill-down and the help."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.events import Resize

from roofmon.tui.frame import Frame
from roofmon.tui.palette import Palette
from roofmon.tui.screens.base import RoofScreen
from roofmon.tui.strips import Line, Piece
from roofmon.tui.widgets.lines import Lines


class PageScreen(RoofScreen):
    """A page of lines; `up`, `down` and the like scroll it."""

    def page(self, frame: Frame, width: int) -> Sequence[Line]:
        """All lines of the page."""
        raise NotImplementedError

    def hints(self, frame: Frame) -> Sequence[Piece]:
        """Keys beside `Esc back` in the last line."""
        return ()

    def compose(self) -> ComposeResult:
        """One widget that fills the window."""
        yield _Page(self.palette, self.shown, self)

    def on_resize(self, event: Resize) -> None:
        """Fill the window."""
        styles = self.query_one(_Page).styles
        styles.width, styles.height = event.size.width, event.size.height

    def act(self, action: str) -> bool:
        """Scroll, or leave."""
        page = self.query_one(_Page)
        step = max(1, page.size.height - 2)
        match action:
            case "down" | "up":
                page.scroll_page(1 if action == "down" else -1)
            case "page-down" | "page-up":
                page.scroll_page(step if action == "page-down" else -step)
            case "first" | "last":
                page.scroll_page(-(10**9) if action == "first" else 10**9)
            case "back" | "drill":
                self.dismiss()
            case _:
                return False
        return True


class _Page(Lines):
    """The part of the page that is in sight, and below it how to leave."""

    def __init__(self, palette: Palette, frame: Frame, owner: PageScreen) -> None:
        super().__init__(palette, frame)
        self._owner = owner
        self._top = 0

    def scroll_page(self, by: int) -> None:
        self._top += by
        self.show(self.shown)

    def lines(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        page = list(self._owner.page(frame, width))
        room = height - 1
        self._top = max(0, min(self._top, len(page) - room))
        shown = page[self._top : self._top + room]
        shown += [()] * (room - len(shown))
        below = len(page) - self._top - room
        more = f"   {below} lines below, j scrolls" if below > 0 else ""
        state = f"   STALE: {frame.state}" if frame.view is not None and frame.state else ""
        paused = "   PAUSED" if frame.choices.paused else ""
        if frame.choices.said:
            more = f"   {frame.choices.said}"
        return [
            *shown,
            [
                (" Esc", "key"),
                (" back", "muted"),
                *self._owner.hints(frame),
                (more, "muted"),
                (paused + state, "warning"),
            ],
        ]
