"""How quantities are written for people: three significant digits, SI prefixes, `n/a` for the unknown.

Decimal prefixes throughout (1 GB/s = 1e9 byte/s), as in the roofline literature; memory sizes that
hardware counts in powers of two use the binary ones (MiB).
"""

import math
import unicodedata

NOT_AVAILABLE = "n/a"
_PREFIXES = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def significant(value: float | None, digits: int = 3) -> str:
    """A plain number with `digits` significant digits, thousands separated: 4390 → `4,390`."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    # Rounding may carry into the next decade (9.996 → 10.0): count the digits again afterwards.
    rounded = round(value, decimals)
    if rounded:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{min(decimals, 6)}f}"


def si(value: float | None, unit: str = "", digits: int = 3) -> str:
    """`value` with an SI prefix: 4.393e12, "B/s" → `4.39 TB/s`; without a unit `4.39T`."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale * (1 - 0.5 * 10**-digits) or scale == 1.0:
            text = significant(value / scale, digits)
            return f"{text} {prefix}{unit}" if unit else f"{text}{prefix}"
    raise AssertionError("unreachable: the last prefix takes every value")


def duration(ns: float | None) -> str:
    """A duration in ns, µs, ms or s: 164800 → `164.8µs`. Four digits, as tuning needs them."""
    if ns is None or not math.isfinite(ns):
        return NOT_AVAILABLE
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= scale * 0.99995:
            return f"{significant(ns / scale, 4)}{unit}"
    return f"{significant(ns, 4)}ns"


def percent(fraction: float | None) -> str:
    """A fraction as whole percent, with one decimal under ten: 0.423 → `42 %`, 0.031 → `3.1 %`."""
    if fraction is None or not math.isfinite(fraction):
        return NOT_AVAILABLE
    value = fraction * 100
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %"


def mebibytes(size: float | None) -> str:
    """A memory size in bytes as MiB or GiB."""
    if size is None or not math.isfinite(size):
        return NOT_AVAILABLE
    mib = size / 2**20
    return f"{significant(mib / 1024)} GiB" if mib >= 1024 else f"{significant(mib)} MiB"


def age(seconds: float) -> str:
    """How long ago, coarsely: `12 s`, `5 min`, `3 h`, `2 d`."""
    for scale, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= scale:
            return f"{seconds / scale:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def clean(text: str, limit: int = 512) -> str:
    """`text` from outside, safe to show: control, format and surrogate characters become spaces.

    Kernel and process names are chosen by others; an escape sequence in one must not reach the
    terminal. Longer than `limit` characters ends in `…`.
    """
    if text.isprintable() and len(text) <= limit:  # nearly always, and a hundred times faster
        return text
    out = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn") else c for c in text
    )
    return out if len(out) <= limit else out[: limit - 1] + "…"
