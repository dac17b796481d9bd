"""Where the screen's data comes from: a consumer that is never waited for, announced once per change."""

import threading
from collections.abc import Callable
from importlib import import_module

from textual.message import Message

from roofmon.stream.consumer import Consumer
from roofmon.stream.messages import Command

_HEAVY = ("roofmon.view", "roofmon.diagnosis", "roofmon.tui.moves", "plotext")


class SnapshotReady(Message, bubble=False):
    """The consumer has something new; sent from its thread, at most one at a time."""


class Warm(Message, bubble=False):
    """What is slow to import has been imported, or could not be."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error


def import_heavy(post: Callable[[Warm], object]) -> None:
    """Import what is slow to import, and post that it is there; for a thread of its own."""
    try:
        for module in _HEAVY:
            import_module(module)
    except Exception as error:
        post(Warm(error))
    else:
        post(Warm())


ConsumerFactory = Callable[[Callable[[], None]], Consumer]
"""Makes a consumer; its argument is what the consumer calls after each change."""


class Feed:
    """Holds the consumer. `announce` is called from its thread, and not again until `taken`."""

    def __init__(self, make: ConsumerFactory, announce: Callable[[], None]) -> None:
        self._make = make
        self._announce = announce
        self._announced = False
        self._lock = threading.Lock()
        self.consumer: Consumer | None = None

    def start(self) -> None:
        """Make the consumer and start it."""
        self.consumer = self._make(self._changed)
        self.consumer.start()

    def _changed(self) -> None:
        if not self._announced:
            self._announced = True
            self._announce()

    def taken(self) -> None:
        """The announcement has arrived: the next change is to be announced again."""
        self._announced = False

    def send(self, command: str, device: str, pid: int = 0, kernel: int | None = None) -> bool:
        """Ask something of the collector; False when it cannot be reached."""
        consumer = self.consumer
        asked = Command(command=command, device=device, pid=pid, kernel=kernel)
        return bool(consumer and consumer.send(asked))

    def close(self) -> None:
        """End the consumer; a second call waits for the first."""
        with self._lock:
            consumer, self.consumer = self.consumer, None
            if consumer is not None:
                consumer.close()
