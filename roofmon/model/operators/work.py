"""What an operator formula returns, and the checks and tables that all formulas share."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from types import MappingProxyType

ITEM_BYTES: Mapping[str, int] = MappingProxyType(
    {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
)
"""Bytes of one stored element by precision. TF32 is a way to multiply: it is stored as FP32."""


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """The least work of one launch of an operator.

    Attributes:
        name: the operator, as called in its formula.
        flops: FLOP by (unit, precision), unit being "vector" or "tensor". One FMA is two FLOPs.
        bytes: the least bytes that the algorithm must move: each input read once, each output
            written once. They are DRAM bytes only where the set does not stay in a cache.
        formula: both formulas with the numbers put in, and where they come from.
    """

    name: str
    flops: Mapping[tuple[str, str], float]
    bytes: float
    formula: str

    @property
    def total_flops(self) -> float:
        """FLOP over all pipes."""
        return sum(self.flops.values())


def item_bytes(operator: str, precision: str) -> int:
    """Bytes of one element. Raises ValueError for a precision that is not in the table."""
    try:
        return ITEM_BYTES[precision]
    except KeyError:
        known = ", ".join(ITEM_BYTES)
        raise ValueError(f"{operator}: unknown precision {precision!r}, known: {known}") from None


def pipe(operator: str, unit: str, precision: str) -> tuple[str, str]:
    """The key of `OperatorWork.flops`. Raises ValueError for a unit that does not exist."""
    if unit not in ("vector", "tensor"):
        raise ValueError(f"{operator}: unit must be 'vector' or 'tensor', not {unit!r}")
    item_bytes(operator, precision)
    return unit, precision


def check_sizes(operator: str, **sizes: int) -> None:
    """Raises ValueError, naming the size, unless every size is an integer of at least 1."""
    for name, size in sizes.items():
        try:
            valid = not isinstance(size, bool) and index(size) >= 1
        except TypeError:
            valid = False
        if not valid:
            raise ValueError(f"{operator}: {name} must be a positive integer, not {size!r}")
