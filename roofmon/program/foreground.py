"""A program's terminal joined to ours, as if it ran here: while no screen of roofmon is shown."""

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from types import FrameType

from roofmon.program.pty_program import PtyProgram

_STEP_S = 0.1
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run_in_foreground(program: PtyProgram, timeout_s: float | None = None) -> int | None:
    """Join the terminals until the program ends; its exit code, or None when time is up.

    What is typed goes to it where stdin is a terminal, key by key, so that Ctrl-C acts in there; signals
    that we get are passed on to it.
    """

    def pass_on(number: int, frame: FrameType | None) -> None:
        program.signal(number)

    def resized(number: int, frame: FrameType | None) -> None:
        program.resize(*terminal_size())

    handlers = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, resized)
    resized(signal.SIGWINCH, None)
    try:
        with _raw_terminal() as keys:
            code = _join(program, keys, timeout_s)
            if code is not None:
                program.finish()  # while the terminal is still raw: the program has ended its lines
            return code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def writer_to(output: int) -> Callable[[bytes], None]:
    """Writes what the program writes to a descriptor; that goes on when nobody reads it any more."""

    def write(data: bytes) -> None:
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(output, data) :]

    return write


def _join(program: PtyProgram, keys: int | None, timeout_s: float | None) -> int | None:
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while program.exit_code is None and (end is None or time.monotonic() < end):
        if keys is None:
            program.wait(_STEP_S)
        elif select.select([keys], [], [], _STEP_S)[0]:
            typed = b""
            with contextlib.suppress(OSError):  # the terminal is going away
                typed = os.read(keys, 1024)
            if not typed:
                keys = None
            program.type(typed)
    return program.exit_code


def terminal_size() -> tuple[int, int]:
    """Columns and rows of our terminal; 80×24 where there is none."""
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(descriptor)
            if size.columns and size.lines:
                return size.columns, size.lines
    return 80, 24


@contextlib.contextmanager
def _raw_terminal() -> Iterator[int | None]:
    """Our terminal's stdin, each key as it is typed; None where stdin is no terminal of ours."""
    descriptor = sys.stdin.fileno()
    # From the background a terminal cannot be read, and changing it would stop us.
    if not os.isatty(descriptor) or os.tcgetpgrp(descriptor) != os.getpgrp():
        yield None
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield descriptor
    finally:
        with contextlib.suppress(termios.error):  # a terminal that is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
