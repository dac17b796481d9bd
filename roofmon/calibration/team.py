"""A team of threads, one a core, that run the same function each on its own part."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue


class Team:
    """`size` threads. Where every CPU has its thread they are pinned, so that each stays beside the
    memory that it touched first; with fewer threads than CPUs (a quota) the system places them."""

    def __init__(self, cpus: Sequence[int], size: int) -> None:
        self.size = size
        self._inboxes: list[SimpleQueue[Callable[[int], object] | None]] = []
        self._outbox: SimpleQueue[Exception | None] = SimpleQueue()
        for thread in range(size):
            inbox: SimpleQueue[Callable[[int], object] | None] = SimpleQueue()
            self._inboxes.append(inbox)
            cpu = cpus[thread] if size == len(cpus) else None
            threading.Thread(target=self._serve, args=(thread, inbox, cpu), daemon=True).start()

    def run(self, function: Callable[[int], object]) -> float:
        """Call `function(thread)` on every thread; returns the seconds until the last has finished.

        An exception of a thread is raised here, after all have finished.
        """
        start = time.perf_counter()
        for inbox in self._inboxes:
            inbox.put(function)
        outcomes = [self._outbox.get() for _ in self._inboxes]
        elapsed = time.perf_counter() - start
        for error in outcomes:
            if error is not None:
                raise error
        return elapsed

    def close(self) -> None:
        """Let the threads end."""
        for inbox in self._inboxes:
            inbox.put(None)

    def _serve(
        self, thread: int, inbox: "SimpleQueue[Callable[[int], object] | None]", cpu: int | None
    ) -> None:
        if cpu is not None:
            with contextlib.suppress(OSError):  # the CPU may have gone offline
                os.sched_setaffinity(0, {cpu})
        while (function := inbox.get()) is not None:
            try:
                function(thread)
            except Exception as error:  # handed to the caller of run
                self._outbox.put(error)
            else:
                self._outbox.put(None)
            function = None
