"""The window of the plane that is shown, and the ticks along its edges, all in log10.

Logarithms are taken here and nowhere in plotext: on its own log axes a zero or a NaN in a line
ends the whole process.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofmon.chart.glyphs import short_number
from roofmon.chart.scene import Place, Point, Roof, Window

LOG_LIMIT = 300.0
LEAST_SPAN = 0.5
MOST_SPAN = 12.0
AUTO_X_SPAN = 8.0
AUTO_Y_SPAN = 7.0


class Bounds(NamedTuple):
    """A window in log10 of FLOP/byte and of FLOP/s; each low is less than its high."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float


DEFAULT_BOUNDS = Bounds(-2.0, 3.0, 9.0, 13.0)


def log10_or_none(value: float | None) -> float | None:
    """log10 of a finite positive number, else None."""
    try:
        return math.log10(value) if value is not None and 0 < value < math.inf else None
    except (TypeError, ValueError, OverflowError):
        return None


def known_logs(values: Iterable[float | None]) -> list[float]:
    """The logarithms of those values that have one."""
    return [log for value in values if (log := log10_or_none(value)) is not None]


def bounds_of(window: Window | None) -> Bounds | None:
    """The window in log10, or None where it is missing, empty, reversed or not finite."""
    if window is None:
        return None
    logs = known_logs((window.x_min, window.x_max, window.y_min, window.y_max))
    if len(logs) < 4:
        return None
    bounds = Bounds(*(min(LOG_LIMIT, max(-LOG_LIMIT, log)) for log in logs))
    # A span near the spacing of doubles would turn one rounding error into many cells.
    if bounds.x_high - bounds.x_low < 1e-6 or bounds.y_high - bounds.y_low < 1e-6:
        return None
    return bounds


def auto_window(roofs: Sequence[Roof], points: Sequence[Point]) -> Window:
    """A window with every ridge point, room for the labels right of it, and the points.

    Its edges are rounded (to half decades of FLOP/byte and quarters of FLOP/s), so that what moves
    a little does not move it. It spans at most 8 and 7 decades; what lies further out is not shown.
    """
    bandwidths = known_logs(roof.value for roof in roofs if roof.kind == "bandwidth")
    computes = known_logs(roof.value for roof in roofs if roof.kind == "compute")
    ridges = [compute - bandwidth for compute in computes for bandwidth in bandwidths]
    xs = known_logs(point.intensity for point in points if log10_or_none(point.flops) is not None)
    ys = known_logs(point.flops for point in points if log10_or_none(point.intensity) is not None)
    lefts = [ridge - 1.0 for ridge in ridges] + [x - 0.2 for x in xs]
    rights = [ridge + 0.75 for ridge in ridges] + [x + 0.3 for x in xs]
    x_low, x_high = _round_down(min(lefts, default=-2.0), 2), _round_up(max(rights, default=3.0), 2)
    if x_high - x_low > AUTO_X_SPAN:
        x_high = min(x_high, max(ridges, default=x_high) + 1.0)
        x_low = max(x_low, x_high - AUTO_X_SPAN)
    # While roofs are being measured there may be those of one kind only.
    tops = [compute + 0.05 for compute in computes] + [y + 0.1 for y in ys]
    top = max(tops, default=max(bandwidths, default=12.0) + 1.5)
    lows = [bandwidth + x_low for bandwidth in bandwidths] + [y - 0.1 for y in ys]
    y_high = _round_up(top, 4)
    y_low = max(_round_down(min(lows, default=top - 4.0), 4), y_high - AUTO_Y_SPAN)
    return _window(x_low, x_high, y_low, y_high)


def steady(before: Window | None, wanted: Window) -> Window:
    """`before` for as long as it holds `wanted` with at most a decade to spare on any side, else `wanted`.

    So that a point which wanders about a step of `auto_window` does not move the whole picture, and with
    it 4 kB of terminal output, at every tick.
    """
    if before is None:
        return wanted
    spare = (
        wanted.x_min / before.x_min,
        before.x_max / wanted.x_max,
        wanted.y_min / before.y_min,
        before.y_max / wanted.y_max,
    )
    return before if all(1 <= ratio <= 10 for ratio in spare) else wanted


def zoom(window: Window, factor: float, centre: Place | None = None) -> Window:
    """The window with both spans divided by `factor` (over 1 looks closer).

    `centre` keeps its place on the screen; where it is None, unknown or outside, the middle does.
    Spans stay between half a decade and 12 decades. An unusable factor changes nothing.
    """
    bounds = bounds_of(window)
    log_factor = log10_or_none(factor)
    if bounds is None or log_factor is None:
        return window
    x, y = (log10_or_none(value) for value in centre or (None, None))
    x_low, x_high = _zoom_axis(bounds.x_low, bounds.x_high, log_factor, x)
    y_low, y_high = _zoom_axis(bounds.y_low, bounds.y_high, log_factor, y)
    return _window(x_low, x_high, y_low, y_high)


def ticks(low: float, high: float, cells: int, gap: int) -> list[tuple[float, str]]:
    """The round numbers between two logarithms over `cells` cells: each as log10 and as text.

    Decades, every few decades where neighbours would be closer than `gap` cells, and 1-2-5 where
    less than two decades are shown.
    """
    decade_cells = cells / (high - low)
    step = max(1, math.ceil(gap / decade_cells))
    mantissas = (1, 2, 5) if high - low < 2 and decade_cells * math.log10(2) >= gap else (1,)
    return [
        (log, short_number(mantissa * 10.0**decade))
        for decade in range(math.floor(low), math.floor(high) + 1)
        if decade % step == 0
        for mantissa in mantissas
        if low <= (log := decade + math.log10(mantissa)) <= high
    ]


def _zoom_axis(
    low: float, high: float, log_factor: float, fixed: float | None
) -> tuple[float, float]:
    if fixed is None or not low <= fixed <= high:
        fixed = (low + high) / 2
    # Kept in logarithms: a factor of 1e300 or 1e-300 must not overflow.
    log_span = math.log10(high - low) - log_factor
    span = 10 ** min(math.log10(MOST_SPAN), max(math.log10(LEAST_SPAN), log_span))
    start = fixed - span * (fixed - low) / (high - low)
    start = min(LOG_LIMIT - span, max(-LOG_LIMIT, start))
    return start, start + span


def _window(x_low: float, x_high: float, y_low: float, y_high: float) -> Window:
    logs = (x_low, x_high, y_low, y_high)
    return Window(*(10.0 ** min(LOG_LIMIT, max(-LOG_LIMIT, log)) for log in logs))


def _round_down(log: float, steps_per_decade: int) -> float:
    return math.floor(log * steps_per_decade) / steps_per_decade


def _round_up(log: float, steps_per_decade: int) -> float:
    return math.ceil(log * steps_per_decade) / steps_per_decade
