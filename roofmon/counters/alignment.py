"""How well executions explain the samples of one window when they are moved by an offset."""

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from roofmon.counters.nnls import solve_nonnegative
from roofmon.counters.overlap import Cells, Clock, Launches, busy_spans, numbered
from roofmon.counters.samples import Samples
from roofmon.counters.sizes import kernel_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SEARCH_NS = 2_000_000
"""How far a step of the clocks is looked for, either way."""

_SAMPLES = 300  # the last of a window, which are enough and come after a step within the window
_LAUNCHES = 20_000
_LEADING, _IN_SEARCH = 64, 8
"""Kernels (and sizes) with columns of their own; the others share one. Far and wide the eight that lead are
enough, but a training step of 60 kernels came out 15 µs off by them, and 1 µs by all."""
_COARSE_NS, _STEP_NS, _LEAST_STEP_NS = 25_000, 5_000.0, 1_000.0
_FINE = 0.1  # of a typical launch
_UNEVEN = 0.02  # of a typical launch
_WALK = 12  # steps that a descent may take
_VALLEYS = 4  # minima of a search that are looked at closely
_VALLEY_NS = 75_000.0  # offsets nearer to each other than this are one minimum of the coarse search
_SAME_NS = 10_000.0  # descents that end nearer to each other than this found the same minimum
_ODDS = 12.0  # twice the log-likelihood by which the best offset must beat others; 3.5 standard deviations


@dataclass(frozen=True)
class Minimum:
    """An offset at which the executions explain the samples best, with its standard error."""

    offset_ns: float
    error_ns: float
    unexplained: float


class Alignment:
    """The last samples of a window, with the launches that may lie under them."""

    def __init__(
        self,
        samples: Samples,
        launches: Launches,
        offset_ns: float,
        clocks: dict[int, Clock],
    ) -> None:
        samples = samples.take(slice(-_SAMPLES, None))
        reach = SEARCH_NS + abs(round(offset_ns))
        near = launches.take(
            (launches.end_ns > samples.start_ns[0] - reach)
            & (launches.start_ns < samples.end_ns[-1] + reach)
        )
        if len(near) > _LAUNCHES:
            # Fewer samples rather than fewer launches in each, but enough to tell offsets apart.
            after = np.partition(near.start_ns, -_LAUNCHES)[-_LAUNCHES] + reach
            samples = samples.take(samples.start_ns >= min(after, samples.start_ns[-30:][0]))
        self._cells = Cells.of(samples)
        self._duration = (samples.end_ns - samples.start_ns).astype(np.float64)
        total = np.square(samples.values - samples.values.mean(axis=0)).sum(axis=0)
        moving = total > 1e-12 * np.square(samples.values).sum(axis=0)
        self.varies = bool(moving.any()) and len(near) > 0
        self._values, self._total = samples.values[:, moving], total[moving]
        if self.varies:
            duration = np.maximum(near.end_ns - near.start_ns, 1).astype(np.float64)
            self._typical_ns = float(duration @ duration / duration.sum())
            self._with_leading = partial(_columns, near, duration, clocks)
            self._columns = self._with_leading(_LEADING)

    @cached_property
    def _few(self) -> list["_Column"]:
        return self._with_leading(_IN_SEARCH)

    def unexplained(self, offset_ns: float, roughly: bool = False) -> float:
        """Part of the signal's variance that the launches, moved by the offset, do not explain.

        The geometric mean over the counters, each with errors of its own size: the logarithm, times
        the samples, is then −2 log likelihood. `roughly` lets most kernels share a column and amounts be
        negative, which tells short ones apart worse, in a tenth of the time.
        """
        edges = self._cells.edges + (self._cells.origin_ns - round(offset_ns))
        columns = self._few if roughly else self._columns
        before = np.stack([column.before(edges) for column in columns], axis=1)
        table = np.diff(before, axis=0)[self._cells.sample_cells]
        table[:, -1] = self._duration - table[:, -1]  # the time in which nothing ran
        table /= np.maximum(np.linalg.norm(table, axis=0), 1e-300)
        solve = _solve_free if roughly else _solve_bounded
        amounts = solve(table.T @ table, table.T @ self._values)
        rest = np.square(self._values - table @ amounts).sum(axis=0)
        return float(np.exp(np.log(np.maximum(rest / self._total, 1e-12)).mean()))

    def descend(self, offset_ns: float) -> Minimum:
        """The minimum that an offset leads down to: steps of 5 µs, then of a tenth of a launch.

        A parabola through the last five points gives the standard error. Kernels do not move the same
        amount in each part of their execution, which shifts the minimum by up to 2 % of their duration.
        """
        tried: dict[float, float] = {}

        def at(offset: float) -> float:
            if offset not in tried:
                tried[offset] = self.unexplained(offset)
            return tried[offset]

        best = offset_ns
        for _ in range(_WALK):
            lowest = min((best, best - _STEP_NS, best + _STEP_NS), key=at)
            if lowest == best:
                break
            best = lowest
        step = float(np.clip(_FINE * self._typical_ns, _LEAST_STEP_NS, _STEP_NS))
        best = min((best + n * step for n in range(-3, 4)), key=at)
        around = np.array([at(best + n * step) for n in range(-2, 3)])
        bend, slope, _ = np.polyfit(np.arange(-2, 3), np.log(around), 2)
        if bend <= 0:
            return Minimum(best, math.inf, at(best))
        offset = best + step * float(np.clip(-slope / (2 * bend), -2, 2))
        error = step / math.sqrt(len(self._values) * bend)
        return Minimum(offset, math.hypot(error, _UNEVEN * self._typical_ns), at(best))

    def search(self, around_ns: float) -> Minimum | None:
        """The best offset far and wide; None where another is nearly as good."""
        offsets = around_ns + np.arange(-SEARCH_NS, SEARCH_NS + 1, _COARSE_NS, dtype=np.float64)
        values = np.array([self.unexplained(offset, roughly=True) for offset in offsets])
        found: list[Minimum] = []
        for index in np.argsort(values, kind="stable"):
            if all(abs(offsets[index] - other.offset_ns) > _VALLEY_NS for other in found):
                found.append(self.descend(float(offsets[index])))
                if len(found) == _VALLEYS:
                    break
        found.sort(key=lambda fit: fit.unexplained)
        best = found[0]
        odds = [
            len(self._values) * math.log(rival.unexplained / best.unexplained)
            for rival in found[1:] + self._neighbours(best)
            if abs(rival.offset_ns - best.offset_ns) > _SAME_NS
        ]
        return best if min(odds, default=math.inf) >= _ODDS else None

    def _neighbours(self, best: Minimum) -> list[Minimum]:
        """Other minima close by: a loop of short kernels looks the same one round later."""
        offsets = best.offset_ns + np.arange(-15, 16) * _STEP_NS
        values = np.array([self.unexplained(offset) for offset in offsets])
        lows = (values[1:-1] < values[:-2]) & (values[1:-1] < values[2:])
        lows &= np.abs(offsets[1:-1] - best.offset_ns) > _SAME_NS
        return [self.descend(float(offset)) for offset in offsets[1:-1][lows]]


def _solve_bounded(gram: Floats, products: Floats) -> Floats:
    return solve_nonnegative(gram, products).values


def _solve_free(gram: Floats, products: Floats) -> Floats:
    found = np.linalg.solve(gram + 1e-9 * np.eye(len(gram)), products)
    return found.astype(np.float64, copy=False)


def _columns(
    launches: Launches, duration: Floats, clocks: dict[int, Clock], leading: int
) -> list["_Column"]:
    """The leading kernels (and sizes), the others together, and the time in which any ran."""
    ids, which = numbered(launches.kernel)
    order = np.argsort(-np.bincount(which, weights=duration), kind="stable")
    found = []
    for number in order[:leading].tolist():
        mine = which == number
        clock = clocks.get(int(kernel_of(ids[number : number + 1])[0]))
        found.append(
            _Column(launches.start_ns[mine], launches.end_ns[mine], clock, per_launch=True)
        )
    others = np.isin(which, order[leading:])
    if others.any():
        found.append(_Column(launches.start_ns[others], launches.end_ns[others], per_launch=True))
    return [*found, _Column(*busy_spans(launches.start_ns, launches.end_ns))]


class _Column:
    """How much of some spans lay before any time: launches, or ns.

    Σ over spans of weight × min(max(t − start, 0), duration), as two sums over what started before t and
    what ended before t: an offset costs two searches an edge, however many launches there are.
    """

    def __init__(
        self,
        start_ns: Integers,
        end_ns: Integers,
        clock: Clock | None = None,
        per_launch: bool = False,
    ) -> None:
        origin = int(start_ns.min())
        self._clock = clock or (lambda times: (times - origin).astype(np.float64))
        start, end = self._clock(start_ns), self._clock(end_ns)
        weight = 1.0 / np.maximum(end - start, 1.0) if per_launch else np.ones(len(start))
        self._started, self._ended = _sums(start, weight), _sums(end, weight)

    def before(self, times_ns: Integers) -> Floats:
        """What lay before each time, shape (times,)."""
        time = self._clock(times_ns)
        total = np.zeros(len(time))
        for sign, (edges, weights, moments) in ((1.0, self._started), (-1.0, self._ended)):
            index = np.searchsorted(edges, time)
            total += sign * (weights[index] * time - moments[index])
        return total


def _sums(edges: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Edges in order, and weights and weighted edges summed up to each, with a leading 0."""
    order = np.argsort(edges, kind="stable")
    edges, weight = edges[order], weight[order]
    weights = np.concatenate([[0.0], np.cumsum(weight)])
    return edges, weights, np.concatenate([[0.0], np.cumsum(weight * edges)])
