"""The terminal going away, which the kernel tells only the leader of the session.

Under `make` and `uv run` that is not roofmon, and they wait for it: nobody would end the screen. So it
looks at the terminal itself, and sends itself the SIGHUP that it was not sent.
"""

import contextlib
import os
import select
import signal
import sys
import threading

_GONE = select.POLLHUP | select.POLLERR


def watch_terminal() -> None:
    """From now on SIGHUP comes when the terminal goes away, whoever leads the session and started us.

    One that is ignored from before, as under `nohup`, is not any more: the screen has a handler of its own.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    terminal = (sys.stdin.fileno(), sys.stderr.fileno())
    watch = (*terminal, _kernel_tells_us(terminal[0]))
    threading.Thread(target=_watch, args=watch, name="terminal", daemon=True).start()


def _kernel_tells_us(terminal: int) -> bool:
    """Whether we lead the session of this terminal. A second SIGHUP could cut short the way out."""
    try:
        return os.getsid(0) == os.getpid() and os.tcgetpgrp(terminal) > 0
    except OSError:  # another session's, or gone already
        return False


def _watch(keys: int, drawn_on: int, told: bool) -> None:
    poll = select.poll()
    for descriptor in (keys, drawn_on):
        poll.register(descriptor, 0)  # keys do not wake it; the end is told unasked
    ended = [descriptor for descriptor, event in poll.poll() if event & _GONE]
    if drawn_on in ended:
        # What is still written fails no more: neither textual's thread nor a last word ends in a traceback.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), drawn_on)
    if ended and not told:
        os.kill(os.getpid(), signal.SIGHUP)
