"""Numbers of a JSON document: null where they are not known."""

import math


def known(value: float | None) -> float | None:
    """A number, None where it is missing or not finite."""
    return float(value) if value is not None and math.isfinite(value) else None


def in_percent(fraction: float | None) -> float | None:
    """A share of 0 … 1 as 0 … 100."""
    share = known(fraction)
    return None if share is None else share * 100
