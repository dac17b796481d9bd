"""A panel: content with a title, in a frame where the window is large enough for frames."""

from collections.abc import Sequence
from typing import ClassVar

from roofmon.tui.arrangement import PanelName
from roofmon.tui.frame import Frame
from roofmon.tui.strips import Line, Piece, cells, fitted
from roofmon.tui.widgets.lines import Lines


class Panel(Lines):
    """The frame around `content`. Without frames there is no title either: it informs least."""

    panel: ClassVar[PanelName]
    framed = False

    def content(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """The lines inside the frame."""
        raise NotImplementedError

    def title(self, frame: Frame) -> str:
        """What the panel shows."""
        raise NotImplementedError

    def note(self, frame: Frame) -> str:
        """What stands at the right end of the title; left out where it does not fit."""
        return ""

    def lines(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """Content, framed or bare."""
        if not self.framed or width < 12 or height < 3:
            return self.content(frame, width, height)
        inside = list(self.content(frame, width - 2, height - 2)[: height - 2])
        inside += [()] * (height - 2 - len(inside))
        return [
            self._top(frame, width),
            *([("│", "border"), *_padded(line, width - 2), ("│", "border")] for line in inside),
            [("└" + "─" * (width - 2) + "┘", "border")],
        ]

    def _top(self, frame: Frame, width: int) -> Line:
        title = f" {self.title(frame)} "
        title = fitted(title, min(cells(title), width - 4))
        note = f" {self.note(frame)} "
        left = width - 3 - cells(title)
        if note == "  " or cells(note) + 2 > left:
            note = ""
        fill = left - cells(note) - (1 if note else 0)
        role = "focus" if frame.choices.focus == self.panel else "title"
        pieces: list[Piece] = [("┌", "border"), (title, role), ("─" * (fill + 1), "border")]
        if note:
            pieces += [(note, "muted"), ("─", "border")]
        return [*pieces, ("┐", "border")]


def _padded(line: Line, width: int) -> list[Piece]:
    pieces: list[Piece] = []
    left = width
    for text, role in line:
        size = cells(text)
        if size >= left:
            return [*pieces, (fitted(text, left), role)]
        pieces.append((text, role))
        left -= size
    return [*pieces, (" " * left, "")]
