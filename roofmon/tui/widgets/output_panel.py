"""The last lines that the program under `roofmon run` wrote."""

from collections.abc import Sequence
from typing import ClassVar

from roofmon.tui.arrangement import PanelName
from roofmon.tui.frame import Frame
from roofmon.tui.strips import Line
from roofmon.tui.widgets.panel import Panel


class OutputPanel(Panel):
    """The newest line last, also where there is little room."""

    panel: ClassVar[PanelName] = "output"

    def title(self, frame: Frame) -> str:
        """The program, and how it is doing."""
        program = frame.program
        if program is None:
            return "output"
        state = "running" if program.exit_code is None else f"ended with {program.exit_code}"
        return f"output ─ {program.name} · {state}"

    def note(self, frame: Frame) -> str:
        """Where all of it is; the file's name alone where there is no room for the path."""
        if frame.program is None:
            return ""
        path = frame.program.path
        room = self.size.width - len(self.title(frame)) - len("┌    ──┐")
        return path if len(path) <= room else path.rpartition("/")[2]

    def content(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """The last lines; without a frame the first one says how the program is doing."""
        program = frame.program
        if program is None:
            return [[(" roofmon run -- COMMAND shows what COMMAND writes here", "muted")]]
        head: list[Line] = [] if self.framed else [[(f" {self.title(frame)}", "title")]]
        if not program.lines:
            return [*head, [(" nothing written yet", "muted")]]
        lines = program.lines[-max(1, height - len(head)) :]
        return [*head, *([(f" {line}", "")] for line in lines)]
