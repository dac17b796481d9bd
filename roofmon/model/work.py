"""Work of a kernel: FLOPs by pipe and bytes by level, each with where the number comes from."""

import math
from enum import StrEnum
from typing import Literal

import msgspec

from roofmon.model.roofline import REQUESTED


class Provenance(StrEnum):
    """Where a number comes from, and so how far it can be trusted."""

    COUNTED = "counted"  # hardware counters of that very launch (reserved)
    IMPORTED = "imported"  # a profiler's report
    SAMPLED = "sampled"  # attributed from device counters
    DECLARED = "declared"  # by the user's code
    MODELLED = "modelled"  # an operator's formula
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


# The order differs because algorithmic bytes are not the traffic of a memory level, while declared FLOPs
# are exact and sampled ones may be an upper bound.
_FLOPS_ORDER = ("counted", "imported", "declared", "modelled", "sampled", "estimated", "unknown")
_BYTES_ORDER = ("counted", "imported", "sampled", "declared", "modelled", "estimated", "unknown")

WorkKind = Literal["flops", "bytes"]

DISAGREEMENT = 0.10
"""Two sources of one quantity that differ by more than this are a finding."""


def rank(kind: WorkKind, provenance: str) -> int:
    """Position of a provenance in the order of preference for `kind`; 0 is the best."""
    order = _FLOPS_ORDER if kind == "flops" else _BYTES_ORDER
    return order.index(provenance)


class Quantity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A number with its provenance; `value` None means unknown and `reason` says why.

    `rel_error` is the half-width of its 95 % interval relative to the value, None if not known;
    `upper_bound` marks an instruction count that can only overstate the work; `counts` says what bytes
    count (see `roofline.REQUESTED`).
    """

    value: float | None
    provenance: Provenance
    rel_error: float | None = None
    upper_bound: bool = False
    counts: str = REQUESTED
    reason: str = ""


def best(kind: WorkKind, quantities: list[Quantity]) -> Quantity | None:
    """The quantity to use when several sources give the same one; None for an empty list."""
    known = [q for q in quantities if q.value is not None]
    return min(known or quantities, key=lambda q: rank(kind, q.provenance), default=None)


def disagreement(kind: WorkKind, quantities: list[Quantity]) -> float | None:
    """The largest relative difference of a source from the best one; None with fewer than two.

    Bytes are compared only with bytes that count the same. An upper bound agrees with everything below
    it. Something against zero differs infinitely.
    """
    chosen = best(kind, quantities)
    if chosen is None or chosen.value is None:
        return None
    others = [
        _difference(chosen, q)
        for q in quantities
        if q is not chosen and q.value is not None and q.counts == chosen.counts
    ]
    return max(others, default=None)


def _difference(chosen: Quantity, other: Quantity) -> float:
    assert chosen.value is not None
    assert other.value is not None
    gap = other.value - chosen.value
    if gap == 0 or (other.upper_bound and gap > 0) or (chosen.upper_bound and gap < 0):
        return 0.0
    return abs(gap) / chosen.value if chosen.value else math.inf
