"""Work of a kernel: FLOPs by pipe and bytes by level, each with where the number comes from."""

from enum import StrEnum
from typing import Literal

import msgspec


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
    `upper_bound` marks an instruction count that can only overstate the work.
    """

    value: float | None
    provenance: Provenance
    rel_error: float | None = None
    upper_bound: bool = False
    reason: str = ""


def best(kind: WorkKind, quantities: list[Quantity]) -> Quantity | None:
    """The quantity to use when several sources give the same one; None for an empty list."""
    known = [q for q in quantities if q.value is not None]
    return min(known or quantities, key=lambda q: rank(kind, q.provenance), default=None)


def disagreement(kind: WorkKind, quantities: list[Quantity]) -> float | None:
    """The largest relative difference of a source from the best one; None with fewer than two."""
    chosen = best(kind, quantities)
    if chosen is None or not chosen.value:
        return None
    others = [
        abs(q.value - chosen.value) / chosen.value
        for q in quantities
        if q is not chosen and q.value is not None
    ]
    return max(others, default=None)
