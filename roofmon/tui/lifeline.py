"""Leaving in time whatever happens: a clean end is awaited only so long, then forced.

The orderly way out paints through a queue. On a slow or dead connection it may never empty, a hung
child may keep its thread busy, and a terminal that is gone fails every write; `q` and signals end the
program within a second all the same.
"""

import contextlib
import os
import sys
import termios
import threading
import time
from types import TracebackType
from typing import Any

PATIENCE_S = 0.7
_STDERR = 2  # what textual draws on
_DRAIN_ROUNDS = 20
_DRAIN_PAUSE_S = 0.005

_RESTORE = (
    b"\x18"  # ends a half-written escape sequence
    b"\x1b[?2026l\x1b[?2004l\x1b[?1004l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h\x1b[0m"
)


class Lifeline:
    """While it is held, `pull` starts the countdown to a forced exit; leaving the context calls it off."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._safe = threading.Event()
        self._pulled = False
        self._deciding = threading.Lock()
        self._attributes: list[Any] | None = None

    def __enter__(self) -> "Lifeline":
        with contextlib.suppress(termios.error, ValueError, OSError):
            self._attributes = termios.tcgetattr(sys.stdin.fileno())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._deciding:  # once the forced exit has begun, it is what ends the process
            self._safe.set()

    def pull(self, exit_code: int) -> None:
        """Exit with `exit_code` if the context is not left in time. Only the first call counts."""
        if not self._pulled:
            self._pulled = True
            threading.Thread(
                target=self._wait, args=(exit_code,), name="lifeline", daemon=True
            ).start()

    def _wait(self, exit_code: int) -> None:
        self._safe.wait(self._patience_s)
        with self._deciding:
            if not self._safe.is_set():
                self._restore()
                os._exit(exit_code)

    def _restore(self) -> None:
        with contextlib.suppress(OSError, termios.error, ValueError):
            # A description of its own: making the shared one non-blocking would outlive this process
            # and break the user's shell.
            terminal = os.open("/dev/tty", os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
            # A write of the painting thread may hang in the full terminal. It gets no further one, and
            # what it still holds is thrown away as it comes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)
            for _ in range(_DRAIN_ROUNDS):
                termios.tcflush(terminal, termios.TCOFLUSH)
                if self._attributes is not None:
                    # Also what wakes the hanging write: flushing alone does not.
                    termios.tcsetattr(terminal, termios.TCSANOW, self._attributes)
                time.sleep(_DRAIN_PAUSE_S)
            os.write(terminal, _RESTORE)
            # What waits in the terminal's own queue is written while the process still lives.
            time.sleep(_DRAIN_PAUSE_S)
