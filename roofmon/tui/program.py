"""What the screen shows of the program that `roofmon run` started."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roofmon.program.pty_program import PtyProgram

LINES = 500
"""Lines of its output that the screen holds."""
_TWICE_S = 2.0


@dataclass(frozen=True)
class ProgramView:
    """The program at one moment; `exit_code` is None while it runs."""

    name: str
    lines: tuple[str, ...]
    exit_code: int | None
    path: str


class ProgramWatch:
    """Looks at the program, and passes on what is meant for it."""

    def __init__(self, program: "PtyProgram") -> None:
        self._program = program
        self._seen: tuple[int, int | None] | None = None
        self._interrupted = -_TWICE_S

    def start(self) -> None:
        """Let it run, now that its kernels will be seen; later calls do nothing."""
        self._program.start()

    def view(self) -> ProgramView | None:
        """The program now; None where nothing has changed since the last call."""
        program = self._program
        seen = program.output.version, program.exit_code
        if seen == self._seen:
            return None
        self._seen = seen
        lines = tuple(program.output.tail(LINES))
        return ProgramView(program.name, lines, program.exit_code, str(program.path))

    def interrupt(self) -> bool:
        """Pass Ctrl-C on to the program; False where that is no use: it has ended, or was just told."""
        now = time.monotonic()
        if self._program.exit_code is not None or now - self._interrupted < _TWICE_S:
            return False
        self._interrupted = now
        self._program.interrupt()
        return True

    def resize(self, columns: int, rows: int) -> None:
        """The window has another size, and so has the program's terminal."""
        self._program.resize(columns, rows)
