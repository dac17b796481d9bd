"""The programs that can be traced: how each is doing, and attaching to it or detaching from it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from roofmon.tui.frame import Frame
from roofmon.tui.palette import Palette
from roofmon.tui.screens.pages import PageScreen
from roofmon.tui.strips import Line, Piece, wrapped

if TYPE_CHECKING:
    from roofmon.model.activity import TracedProgram

_ROLES = {"attached": "pass", "starting": "accent", "yielded": "warning", "failed": "fail"}
_HOW = (
    "A program can be traced when it was started with roofmon run -- COMMAND, or from a shell in which",
    'eval "$(roofmon env)" was done before. A program that runs without the library cannot be given it.',
)


class ProgramsScreen(PageScreen):
    """A list to choose from; Enter attaches, once y has answered what that means, or detaches.

    Args:
        send: sends a command about a process to the collector; False when it cannot be reached.
    """

    def __init__(self, palette: Palette, frame: Frame, send: Callable[[str, int], bool]) -> None:
        super().__init__(palette, frame)
        self._send = send
        self._pid = 0
        self._asking = False
        self._said = ""

    def act(self, action: str) -> bool:
        """Choose, attach, detach, or leave."""
        self._said = ""
        programs = _programs(self.shown)
        at = self._at(programs)
        match action:
            case "down" | "up":
                if programs:
                    step = 1 if action == "down" else -1
                    self._pid = programs[max(0, min(len(programs) - 1, at + step))].pid
            case "drill" if programs:
                self._toggle(programs[at])
            case "programs":
                self.dismiss()
            case _:
                return super().act(action)
        self.show(self.shown)
        return True

    def typed(self, key: str, character: str | None) -> bool:
        """While it asks, y attaches and any other key does not."""
        if not self._asking:
            return False
        self._asking = False
        if character in ("y", "Y"):
            reached = self._send("attach", self._pid)
            self._said = "attaching" if reached else "the collector cannot be reached now"
        else:
            self._said = "left as it is"
        self.show(self.shown)
        return True

    def _toggle(self, program: "TracedProgram") -> None:
        self._pid = program.pid
        if program.state in ("attached", "starting"):
            reached = self._send("detach", program.pid)
            self._said = "detached" if reached else "the collector cannot be reached now"
        else:
            self._asking = True

    def _at(self, programs: "Sequence[TracedProgram]") -> int:
        return next((i for i, p in enumerate(programs) if p.pid == self._pid), 0)

    def page(self, frame: Frame, width: int) -> Sequence[Line]:
        """The list, and below it what attaching means."""
        from roofmon.model.activity import BEFOREHAND
        from roofmon.view import program_facts

        programs = _programs(frame)
        at = self._at(programs)
        lines: list[Line] = [[(" PROGRAMS", "title"), ("  that can be traced", "muted")], ()]
        for index, program in enumerate(programs):
            place = "@selection" if index == at else ""
            facts = [fact for fact in program_facts(program) if fact != program.reason]
            role = f"{_ROLES.get(program.state, '')}{place}"
            rest: list[Piece] = [(f"{' · '.join(facts)} ", role)]
            lead = f" {'▸' if index == at else ' '} {program.pid:>8}  {program.name:<20} "
            lines.append([(lead, place), *rest])
            if program.reason:
                lines += wrapped(program.reason, width - 2, _ROLES.get(program.state, ""), " " * 14)
            if index == at and program.cupti:
                lines += wrapped(f"CUPTI {program.cupti}", width - 2, "muted", " " * 14)
        if not programs:
            lines.append([("   none yet", "muted")])
            lines += [line for text in _HOW for line in wrapped(text, width - 2, "", "   ")]
        lines.append(())
        if self._asking:
            program = programs[at]
            lines += [[(f" Attach to {program.name} {program.pid}? y / n", "warning")]]
        else:
            enter = "Enter attaches or detaches" if programs else ""
            lines += [[(f" {self._said or enter}", "accent")]]
        for text in BEFOREHAND:
            lines += wrapped(text, width - 2, "muted", " ")
        return lines


def _programs(frame: Frame) -> "Sequence[TracedProgram]":
    return frame.snapshot.traced if frame.snapshot else ()
