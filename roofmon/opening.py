"""The first frame, painted while textual is still being imported, which takes most of the way to its own.

It is what the screen shows before the first data: the panels where they will be, and that the collector is
starting. Nothing but the standard library is needed for it.
"""

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, NoReturn

from roofmon.tui.arrangement import Place, arrange

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J", "\x1b[?1049l\x1b[?25h"
_TITLES = {"chart": "roofline"}
_STARTING = "starting collector…"
_LOCAL_FLAGS = 3  # its place in the list of tcgetattr


class Opening:
    """While it is held, and until `hand_over`, the first frame is on the screen and signals restore it.

    Args:
        title: what is shown, as in the frame to come.
        unicode: whether more than ASCII may be drawn.
    """

    def __init__(self, title: str, *, unicode: bool) -> None:
        self._title = title
        self._unicode = unicode
        self._handlers: dict[int, Any] = {}
        self._attributes: list[Any] | None = None

    def __enter__(self) -> "Opening":
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, _exit)
        try:
            self._paint()
        except BaseException as error:  # a signal in the middle of it, say
            self.__exit__(type(error), error, None)
            raise
        return self

    def _paint(self) -> None:
        with contextlib.suppress(termios.error, OSError, ValueError):
            self._attributes = termios.tcgetattr(sys.stdin.fileno())
            quiet = list(self._attributes)
            # Keys wait for the screen; they do not write on it.
            quiet[_LOCAL_FLAGS] &= ~termios.ECHO
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, quiet)
        with contextlib.suppress(OSError, ValueError):
            width, height = os.get_terminal_size(sys.stderr.fileno())
            text = _ENTER + "".join(_frame(f"roofmon {self._title}".strip(), width, height))
            _write(text if self._unicode else text.translate(_TO_ASCII))

    def hand_over(self) -> None:
        """From here on terminal and signals are somebody else's; the frame stays until it is painted on."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()
        if self._attributes is not None:
            with contextlib.suppress(termios.error, OSError, ValueError):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._attributes)
            self._attributes = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hand_over()
        if error is not None:  # done twice, it does no harm
            with contextlib.suppress(OSError, ValueError):
                _write(_LEAVE)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _write(text: str) -> None:
    os.write(sys.stderr.fileno(), text.encode())


def _frame(name: str, width: int, height: int) -> Iterator[str]:
    """The parts of the screen, each with the sequences that place it."""
    arranged = arrange(width, height, "kernels")
    for panel, place in arranged.places.items():
        if panel == "status":
            yield _at(place.x, place.y, f" \x1b[1m{name}\x1b[0m  {_STARTING}")
        elif arranged.framed and panel not in ("keys", "check", "notice"):
            yield from _box(_TITLES.get(panel, panel), place)
        if panel == "chart":
            middle = place.x + (place.width - len(_STARTING)) // 2
            yield _at(middle, place.y + place.height // 2, _STARTING)


def _box(title: str, place: Place) -> Iterator[str]:
    x, y, width, height = place
    top = f"┌\x1b[0m {title} \x1b[2m" + "─" * (width - 4 - len(title)) + "┐"
    yield _at(x, y, f"\x1b[2m{top}")
    for line in range(y + 1, y + height - 1):
        yield _at(x, line, "│") + _at(x + width - 1, line, "│")
    yield _at(x, y + height - 1, "└" + "─" * (width - 2) + "┘\x1b[0m")


def _at(x: int, y: int, text: str) -> str:
    return f"\x1b[{y + 1};{x + 1}H{text}"


_TO_ASCII = str.maketrans({**dict.fromkeys("┌┐└┘", "+"), "─": "-", "│": "|", "…": "."})
