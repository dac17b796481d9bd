"""Timing launches by device events, with the device kept busy from one sample to the next."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Event(Protocol):
    """A point in the device's work."""

    @property
    def done(self) -> bool:
        """Whether the device has passed it."""

    def synchronize(self) -> None:
        """Wait until it has."""


E = TypeVar("E", bound=Event)


@dataclass(frozen=True)
class _Batch(Generic[E]):
    start: E
    end: E
    launches: int


class EventTimer(Generic[E]):
    """Measures batches of launches, each queued while the one before it still runs.

    An event that the device meets idle is stamped before the launch behind it has arrived: 5 µs, a quarter
    percent of 2 ms. So a batch is timed from the end of the one before, and a batch that the device might
    have waited for is run but not timed.

    Args:
        launch: queues one launch.
        record: queues an event.
        seconds_between: device time between two events that have happened.
    """

    def __init__(
        self,
        launch: Callable[[], None],
        record: Callable[[], E],
        seconds_between: Callable[[E, E], float],
    ) -> None:
        self._launch = launch
        self._record = record
        self._seconds_between = seconds_between
        self._queued: _Batch[E] | None = None

    def measure(self, launches: int) -> float:
        """Seconds that so many launches take: for `time_launches`."""
        batch = self._queued
        if batch is None or batch.launches != launches:
            self._launch()
            batch = self._batch(self._record(), launches)
        # Where it is over already, the next one would start after a pause.
        self._queued = None if batch.end.done else self._batch(batch.end, launches)
        batch.end.synchronize()
        return self._seconds_between(batch.start, batch.end)

    def alone(self, launches: int = 1) -> float:
        """Seconds of so many launches by themselves, waited for. Not between calls of `measure`."""
        batch = self._batch(self._record(), launches)
        batch.end.synchronize()
        return self._seconds_between(batch.start, batch.end)

    def _batch(self, start: E, launches: int) -> _Batch[E]:
        for _ in range(launches):
            self._launch()
        return _Batch(start, self._record(), launches)
