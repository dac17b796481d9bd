"""When a child process has to end: its stdin closes, a signal asks for it, or its parent is gone.

The main thread of a worker waits here while the work runs in another one, so that it ends within
milliseconds even while a library call keeps that other thread busy.
"""

import contextlib
import ctypes
import os
import select
import signal
import time

_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def die_with_parent() -> bool:
    """Ask the kernel for SIGTERM when the parent dies, however it dies; False if it is gone already.

    To the kernel the parent is the thread that started us: start children from threads that stay.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return os.getppid() == parent


class Lifetime:
    """The life of a worker. To be made in the main thread, before anything slow.

    `finish` may be called from any thread: the work is done, and `wait` returns.
    """

    def __init__(self) -> None:
        self._ended: str | None = None
        self._wake_read, self._wake_write = os.pipe()
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)  # its number arrives through the pipe
        if not die_with_parent():
            self._ended = "parent gone"

    @property
    def ended(self) -> str | None:
        """Why the worker has to end; None while it lives."""
        return self._ended

    def finish(self) -> None:
        """The work is done."""
        os.write(self._wake_write, b"\0")

    def wait(self, timeout_s: float | None = None) -> str | None:
        """Wait for the end, at most `timeout_s`; says why (`ended`), or None when time is up."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._ended is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = select.select([0, self._wake_read], [], [], left)[0]
            if not ready:
                return None
            if self._wake_read in ready:
                numbers = os.read(self._wake_read, 64)
                self._ended = "finished" if numbers[0] == 0 else "signal"
            elif not os.read(0, 4096):
                self._ended = "stdin closed"
        return self._ended
