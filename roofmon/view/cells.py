"""The texts of the kernel table, a function a column, and the arrays that columns are sorted by."""

import numpy as np

from roofmon.compare import Comparison, ratio_text
from roofmon.model.position import CLASSES, KernelClass
from roofmon.model.roofline import level_label
from roofmon.model.table import Array, Column
from roofmon.units import NOT_AVAILABLE, duration, percent, si, significant
from roofmon.view.facts import flops_are_upper_bound, is_contended, is_nested, is_over_roof
from roofmon.view.state import View

AT_ROOF = 0.90
"""From here on a kernel is marked ✓: what is left is within reach of no ordinary change."""

_BOUND = {
    KernelClass.MEMORY: "memory",
    KernelClass.COMPUTE: "compute",
    KernelClass.LATENCY: "latency",
    KernelClass.UNKNOWN: "unknown",
}


def time_in(view: View, row: int, column: Column) -> str:
    """One of the times of a kernel."""
    return duration(float(view.table.column(column)[row]))


def mark(view: View, row: int) -> str:
    """The number of its point on the chart."""
    number = view.marks.get(view.table.descriptions[row].id)
    return "" if number is None else str(number)


def name(view: View, row: int) -> str:
    """Its name, with ↳ before it where its time is contained in another row's."""
    text = view.table.descriptions[row].name
    return f"↳ {text}" if is_nested(view.table, row) else text


def names(view: View) -> list[str]:
    """What the names are sorted by."""
    return [d.name.casefold() for d in view.table.descriptions]


def share(view: View, row: int) -> str:
    """Its share of all time in kernels, in percent."""
    value = float(view.table.time_share[row])
    if not np.isfinite(value):
        return NOT_AVAILABLE
    return "<0.1" if 0 < value < 0.0005 else f"{value * 100:.1f}"


def launches(view: View, row: int) -> str:
    """How often it was launched."""
    count = float(view.table.column(Column.LAUNCHES)[row])
    return f"{count:,.0f}" if np.isfinite(count) else NOT_AVAILABLE


def bandwidth(view: View, row: int) -> str:
    """GB/s at the level shown."""
    return significant(float(view.at_level.achieved[row]) / 1e9)


def flops(view: View, row: int) -> str:
    """FLOP/s with a prefix, after ≤ where the FLOPs are an upper bound."""
    return _at_most(view, row, si(float(view.positions.flops[row])))


def intensity(view: View, row: int) -> str:
    """FLOP/byte at the level shown."""
    return _at_most(view, row, significant(float(view.at_level.intensity[row])))


def _at_most(view: View, row: int, value: str) -> str:
    upper = value != NOT_AVAILABLE and flops_are_upper_bound(view.table, row)
    return f"≤{value}" if upper else value


def fraction(view: View, row: int) -> str:
    """What is achieved of the roof that binds."""
    return percent(float(view.positions.fraction[row]))


def roof(view: View, row: int) -> str:
    """The roof that binds."""
    found = view.positions.roof_of(row)
    return found.name if found else NOT_AVAILABLE


def bound(view: View, row: int) -> str:
    """Its class in a word."""
    return _BOUND[view.positions.class_of(row)]


def bounds(view: View) -> list[str]:
    """What the classes are sorted by."""
    words = [_BOUND[c] for c in CLASSES]
    return [words[code] for code in view.positions.code.tolist()]


def flag(view: View, row: int) -> str:
    """✓ at its roof, > over it by more than both intervals explain, ! contended."""
    if is_over_roof(view.positions, row):
        return ">"
    if is_contended(view.table, row):
        return "!"
    return "✓" if view.positions.fraction[row] >= AT_ROOF else ""


def level(view: View, row: int) -> str:
    """The memory level shown."""
    found = view.state.level or view.positions.main_level(row)
    return level_label(found) if found else NOT_AVAILABLE


def variation(view: View, row: int) -> str:
    """The coefficient of variation of its durations."""
    return percent(float(view.table.column(Column.CV)[row]))


def spread(view: View, row: int) -> str:
    """Its 5th and 95th percentile."""
    low, high = (float(view.table.column(c)[row]) for c in (Column.P05_NS, Column.P95_NS))
    return f"{duration(low)}–{duration(high)}" if np.isfinite(low + high) else NOT_AVAILABLE


def source(view: View, row: int) -> str:
    """Where its work is known from: FLOPs/bytes, one word where both are alike."""
    words = []
    for quantities in (view.table.flops, view.table.bytes):
        known = (c.columns[c.source[row]] for c in quantities.values() if c.source[row] >= 0)
        words.append("+".join(sorted({column.provenance.value for column in known})) or "unknown")
    return words[0] if words[0] == words[1] else "/".join(words)


def before(view: View, row: int) -> str:
    """Its median at the baseline."""
    return duration(float(_compared(view).before_ns[int(view.comparison_rows[row])]))


def ratio(view: View, row: int) -> str:
    """Median before ÷ after with its interval."""
    return ratio_text(_compared(view), int(view.comparison_rows[row])) or NOT_AVAILABLE


def ratios(view: View) -> Array:
    """What the ratios are sorted by; unknown without a baseline."""
    if view.comparison is None:
        return np.full(len(view.table), np.nan)
    found: Array = view.comparison.ratio[view.comparison_rows]
    return found


def verdict(view: View, row: int) -> str:
    """What became of it."""
    return _compared(view).verdict(int(view.comparison_rows[row])).value


def _compared(view: View) -> Comparison:
    assert view.comparison is not None, "these columns belong to difference mode"
    return view.comparison
