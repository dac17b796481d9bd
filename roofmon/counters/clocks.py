"""The distance between the clock of the trace and the clock of the samples, followed from window to window.

Both are converted to the same scale, but by different processes at different times; 50 µs of error costs
kernels of 200 µs about 10 %, 3 µs costs kernels of 10 µs as much. The right offset is the one at which the
executions explain the samples best (see `alignment`).
"""

import math
from dataclasses import dataclass

from roofmon.counters.alignment import Alignment, Minimum
from roofmon.counters.overlap import Clock, Launches
from roofmon.counters.samples import Samples

_WORSE = 1.5  # times the usual unexplained part: something stepped
_CERTAIN_NS = 25_000.0  # standard error above which a fit says nothing
_DRIFT_NS = 5_000.0  # standard deviation of what the offset may move from one window to the next
_STEPPED_NS = 50_000.0  # a move that is no drift
_PATIENCE = 2  # searches in vain (100 ms each) before only every tenth window searches again
_LEAST_SAMPLES = 10


@dataclass(frozen=True)
class ClockFit:
    """What one window says. Add `offset_ns` to times of the trace to get times of the samples.

    `certain` is False where the signal cannot tell (nothing starts or stops, or it repeats itself):
    `offset_ns` is then the last one known. `stepped` means that it moved by more than drift.
    """

    offset_ns: float
    error_ns: float  # standard error; NaN while it was never known
    certain: bool
    stepped: bool = False
    unexplained: float = (
        math.nan
    )  # part of the signal's variance that the executions do not explain


class ClockOffset:
    """The offset, known better with each window that can tell."""

    def __init__(self) -> None:
        self.offset_ns = 0.0
        self.usual = math.nan  # the unexplained part when the clocks fit
        self._variance = math.inf
        self._in_vain = 0

    def update(self, samples: Samples, launches: Launches, progress: dict[int, Clock]) -> ClockFit:
        """Fits the offset in one window.

        Args:
            samples: usable ones.
            launches: of kernels and sizes (`sizes.Sizes`), on the trace's clock.
            progress: see `progress.progress_clocks`.
        """
        if len(samples) < _LEAST_SAMPLES or not len(launches):
            return self._last(math.nan)
        alignment = Alignment(samples, launches, self.offset_ns, progress)
        if not alignment.varies:
            return self._last(math.nan)
        fit = alignment.descend(self.offset_ns)
        known = math.isfinite(self._variance)
        if not known or not fit.unexplained < _WORSE * self.usual or self._far(fit):
            found = self._search(alignment)
            if found is None:
                return self._last(fit.unexplained)
            fit = found
        if fit.error_ns > _CERTAIN_NS:
            return self._last(fit.unexplained)
        stepped = self._far(fit)
        self._accept(fit, forget=stepped or not known)
        return ClockFit(self.offset_ns, self._error_ns, True, stepped, fit.unexplained)

    def _far(self, fit: Minimum) -> bool:
        return abs(fit.offset_ns - self.offset_ns) > _STEPPED_NS

    def _search(self, alignment: Alignment) -> Minimum | None:
        self._in_vain += 1
        if self._in_vain > _PATIENCE and self._in_vain % 10:
            return None
        return alignment.search(self.offset_ns)

    def _accept(self, fit: Minimum, forget: bool) -> None:
        """Weighs the new value with the old one, which drift has made less certain (a Kalman filter)."""
        self._in_vain = 0
        if forget:
            self.offset_ns, self._variance = fit.offset_ns, fit.error_ns**2
            self.usual = fit.unexplained
            return
        prior = self._variance + _DRIFT_NS**2
        gain = prior / (prior + fit.error_ns**2)
        self.offset_ns += gain * (fit.offset_ns - self.offset_ns)
        self._variance = (1 - gain) * prior
        self.usual += 0.3 * (fit.unexplained - self.usual)

    def _last(self, unexplained: float) -> ClockFit:
        return ClockFit(self.offset_ns, self._error_ns, False, False, unexplained)

    @property
    def _error_ns(self) -> float:
        return math.sqrt(self._variance) if math.isfinite(self._variance) else math.nan
