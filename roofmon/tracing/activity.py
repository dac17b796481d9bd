"""What a device did over time, from intervals that arrive late and in no order.

Intervals are kept until everything up to a moment has surely arrived (`Arrivals`); then that stretch of
time is looked at once and forgotten. An interval that goes on after it is split: the rest belongs to the
next stretch.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofmon.model.activity import Activity

Times = NDArray[np.int64]

HOLD_NS, _LONGEST_HOLD_NS = 1_000_000_000, 10_000_000_000
"""How long a record is waited for, at least and at most."""
_HOLD_MARGIN = 1.25
_HALF_LIFE_NS = 10_000_000_000
TINY_NS = 10_000
APART_NS = 1_000_000
"""What launches wait for that are further apart than this is the host, not launching."""
_FUTURE_NS = 60_000_000_000
_MOST_WAITING = 2_000_000  # 48 MB; 200,000 launches/s are held for one second and one tick
_REST = -1  # in place of a row: the rest of an interval that began in an earlier stretch


class Arrivals:
    """How long after their kernels' end records arrive.

    CUPTI gives records out when a buffer of its own is full or the program has waited for the GPU: in a
    program that never waits that takes the longer the less it launches.
    """

    def __init__(self) -> None:
        self._longest_ns = 0.0
        self._seen_ns = 0

    def take(self, end_ns: Times, now_ns: int) -> None:
        """Records that arrived now, shape (n,), n ≥ 1."""
        self._longest_ns = max(self._remembered(now_ns), now_ns - float(end_ns.min()))
        self._seen_ns = now_ns

    def hold_ns(self, now_ns: int) -> int:
        """How long to wait for all records of a moment."""
        wanted = _HOLD_MARGIN * self._remembered(now_ns)
        return int(min(max(wanted, HOLD_NS), _LONGEST_HOLD_NS))

    def _remembered(self, now_ns: int) -> float:
        age = max(0, now_ns - self._seen_ns)
        return self._longest_ns * math.exp2(-age / _HALF_LIFE_NS)


@dataclass(frozen=True, eq=False)
class Gaps:
    """Idle time in ns before launches, NaN where it is not known, and their rows; shape (n,) each."""

    rows: Times
    gap_ns: NDArray[np.float64]


class Timeline:
    """Kernels and copies of one device. Times in ns since the epoch."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._kernels = Held()
        self._copies = Held()
        self._cut: int | None = None
        self._last_end: int | None = None
        self._streams: dict[int, int] = {}

    def add_kernels(
        self, start_ns: Times, end_ns: Times, rows: Times, streams: int, program: int
    ) -> None:
        """Takes kernels of one program, shape (n,); `streams` has a bit for each of their streams."""
        self._kernels.add(start_ns, end_ns, rows)
        self._streams[program] = self._streams.get(program, 0) | streams

    def add_copies(self, start_ns: Times, end_ns: Times) -> None:
        """Takes copies and fills of memory, shape (n,)."""
        self._copies.add(start_ns, end_ns, np.zeros(len(start_ns), dtype=np.int64))

    def advance(self, now_ns: int, hold_ns: int = HOLD_NS) -> tuple[Activity | None, Gaps]:
        """What ran since the last call up to `hold_ns` ago, and the gaps before those launches.

        The first call only finds out where to begin, and gives no activity.
        """
        cut, begin = now_ns - hold_ns, self._cut
        if begin is not None and cut <= begin:
            cut = begin  # the wall clock was set back, or records come later now
        self._cut = cut
        start, end, rows = self._kernels.take(cut)
        copies = self._copies.take(cut)
        streams = sum(mask.bit_count() for mask in self._streams.values())
        self._streams.clear()
        gaps = self._gaps(start, end, rows, begin)
        if begin is None or cut == begin:
            return None, gaps
        return describe(self.device, (start, end, rows), copies, begin, cut, streams), gaps

    def _gaps(self, start: Times, end: Times, rows: Times, begin: int | None) -> Gaps:
        """Idle time before each launch: since all earlier ones have ended. Unknown for those told late,
        of whose time others have been looked at already."""
        launches = rows != _REST
        start, end, rows = start[launches], end[launches], rows[launches]
        if not len(start):
            return Gaps(rows, np.empty(0))
        ends = np.maximum.accumulate(np.concatenate([[self._last_end or 0], end]))
        gaps = np.maximum(start - ends[:-1], 0).astype(np.float64)
        gaps[start < (begin or 0)] = np.nan
        if self._last_end is None:
            gaps[0] = np.nan
        self._last_end = int(ends[-1])
        return Gaps(rows, gaps)


class Held:
    """Intervals that wait until all that began before them has come: start, end and row of each."""

    def __init__(self) -> None:
        self._batches: list[tuple[Times, Times, Times]] = []
        self._count = 0

    def add(self, start: Times, end: Times, rows: Times) -> None:
        """Takes intervals in any order, shape (n,)."""
        # What does not fit has impossible times, since it would have been taken otherwise.
        if self._count + len(start) <= _MOST_WAITING:
            self._batches.append((start, end, rows))
            self._count += len(start)

    def take(self, cut: int) -> tuple[Times, Times, Times]:
        """What began before `cut`, by its start; what goes on after it comes again as a rest, row −1."""
        if not self._batches:
            return _NOTHING, _NOTHING, _NOTHING
        start, end, rows = (np.concatenate(column) for column in zip(*self._batches, strict=True))
        order = np.argsort(start, kind="stable")  # which is quick on what is nearly sorted
        start, end, rows = start[order], end[order], rows[order]
        at, beyond = np.searchsorted(start, (cut, cut + _FUTURE_NS))
        longer = np.flatnonzero(end[:at] > cut)
        self._batches = [
            (np.full(len(longer), cut), end[longer], np.full(len(longer), _REST)),
            (start[at:beyond], end[at:beyond], rows[at:beyond]),
        ]
        self._count = len(longer) + int(beyond - at)
        return start[:at], end[:at], rows[:at]


_NOTHING: Times = np.empty(0, dtype=np.int64)


def describe(
    device: str,
    kernels: tuple[Times, Times, Times],
    copies: tuple[Times, Times, Times],
    begin: int,
    cut: int,
    streams: int,
) -> Activity:
    """The activity between `begin` and `cut`.

    Args:
        device: UUID.
        kernels, copies: start, end and row of each, shape (n,), by their start; row −1 for the rest of
            one that began in an earlier stretch.
        begin, cut: the stretch, in ns since the epoch.
        streams: how many streams were used.
    """
    start, end, rows = kernels
    launches = rows != _REST
    duration = (end - start)[launches]
    tiny = duration < TINY_NS
    first, last = _clipped(start, end, begin, cut)
    gap, busy, ends = _steps(first, last)
    copy_first, copy_last = _clipped(*copies[:2], begin, cut)
    _, copying, copy_ends = _steps(copy_first, copy_last)
    kernels_ns, busy_ns = int((last - first).sum()), int(busy.sum())
    return Activity(
        device=device,
        start_unix_ns=begin,
        end_unix_ns=cut,
        busy_ns=busy_ns,
        kernels_ns=kernels_ns,
        overlap_ns=_overlap(first, last) if kernels_ns > busy_ns else 0,
        launches=len(duration),
        launch_bound_ns=_launch_bound(gap, busy),
        tiny=int(tiny.sum()),
        tiny_ns=int(duration[tiny].sum()),
        copies=int((copies[2] != _REST).sum()),
        copies_ns=int(copying.sum()),
        hidden_ns=_under(ends, busy, copy_ends, copying),
        streams=streams,
        late=int((start[launches] < begin).sum()),
    )


def _clipped(start: Times, end: Times, begin: int, cut: int) -> tuple[Times, Times]:
    """Start and end within the stretch, counted from its beginning."""
    length = cut - begin
    return np.clip(start - begin, 0, length), np.clip(end - begin, 0, length)


def _steps(first: Times, last: Times) -> tuple[Times, Times, Times]:
    """For intervals by their start: the idle time before each, what it adds to the busy time, and until
    when it and all earlier ones reach; shape (n,) each."""
    ends = np.maximum.accumulate(np.concatenate([[0], last]))
    before = ends[:-1]
    return np.maximum(first - before, 0), np.maximum(last - np.maximum(first, before), 0), ends[1:]


def _overlap(first: Times, last: Times) -> int:
    """The time with at least two intervals."""
    times = np.concatenate([first, last])
    change = np.ones(len(times), dtype=np.int64)
    change[len(first) :] = -1
    order = np.argsort(times)
    depth = np.cumsum(change[order])
    return int(np.diff(times[order])[depth[:-1] >= 2].sum())


def _launch_bound(gap: Times, busy: Times) -> int:
    """The length of stretches of close launches whose gaps take longer than their kernels."""
    if not len(gap):
        return 0
    apart = gap > APART_NS
    apart[0] = True  # the gap before it belongs to no two launches of this stretch
    heads = np.flatnonzero(apart)
    idle = np.add.reduceat(np.where(apart, 0, gap), heads)
    ran = np.add.reduceat(busy, heads)
    return int((idle + ran)[idle > ran].sum())


def _under(ends: Times, busy: Times, copy_ends: Times, copying: Times) -> int:
    """The time with a copy and a kernel, from the reaches and busy times of both."""
    if not len(ends) or not len(copy_ends):
        return 0
    # Busy time up to a moment: it grows while intervals run and stands still between them.
    total = np.cumsum(busy)
    edges = np.stack([ends - busy, ends], axis=1).reshape(-1)
    grown = np.stack([total - busy, total], axis=1).reshape(-1)
    until = np.interp(copy_ends, edges, grown)
    since = np.interp(copy_ends - copying, edges, grown)
    return round(float((until - since).sum()))
