"""How long the workload runs: until its time is up, a signal comes, or the parent closes its stdin."""

import os
import signal
import threading
import time


class Lifetime:
    """The end of the process as a question, asked between launches so that none is cut short.

    A flag and not a `threading.Event`: the handler of a signal runs in the thread that would be waiting
    on the event, and setting it there can deadlock.
    """

    def __init__(self, *, until_stdin_closes: bool) -> None:
        self._ended = False
        self._deadline = float("inf")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._end())
        if until_stdin_closes:
            threading.Thread(target=self._watch_stdin, name="stdin", daemon=True).start()

    def limit(self, seconds: float) -> None:
        """Ends this many seconds from now."""
        self._deadline = time.monotonic() + seconds

    def over(self) -> bool:
        """Whether to end."""
        return self._ended or time.monotonic() >= self._deadline

    def _end(self) -> None:
        self._ended = True

    def _watch_stdin(self) -> None:
        """Ends with the parent, however it dies: its end of the pipe closes with it."""
        try:
            while os.read(0, 4096):
                pass
        except OSError:  # no stdin at all
            pass
        self._end()
