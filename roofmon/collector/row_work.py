"""What one window of samples says of a kernel: bytes by level, FLOPs by pipe, and why some are missing."""

import math
from dataclasses import dataclass, field

import numpy as np

from roofmon.counters.flops import LEAST_ACTIVITY, FlopRange, sampled_flops, tensor_activity
from roofmon.counters.groups import LEAST_KNOWN
from roofmon.counters.metric_sets import L2, MEMORY_METRICS
from roofmon.counters.precision import Computes, computes_in
from roofmon.counters.weights import CYCLES, TENSOR, WEIGHTS
from roofmon.counters.worker_messages import Result
from roofmon.model.roofline import REQUESTED, Pipe
from roofmon.model.stats import Z95

Key = tuple[str, str, str, bool]
"""Kind, pipe or level, what bytes count, whether it is an upper bound."""

# DRAM traffic of streaming kernels is what they ask for, within 0.3 %; that of L2 is not.
_COUNTS = {"dram": REQUESTED, "l2": L2.removesuffix(".sum")}


@dataclass(frozen=True)
class Amount:
    """Of one launch; `rel_error` is the half-width of the 95 % interval over the value."""

    value: float
    rel_error: float

    @property
    def known(self) -> bool:
        """Whether it is told from nothing at all."""
        return self.rel_error <= 1.0


@dataclass(frozen=True)
class Chip:
    """What counts are looked at by: compute capability, "9.0", and multiprocessors, None if not known."""

    compute_capability: str
    sms: int | None


@dataclass
class RowWork:
    """Of one kernel: `amounts`, and by "bytes" or "flops" why one is missing or not a point in `notes`.

    `candidates` are the pipes that its tensor work may be of, where its name does not tell.
    """

    amounts: dict[Key, Amount] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    candidates: tuple[Pipe, ...] = ()


class ResultTable:
    """A result's columns as lists: a few numbers of each row are looked at, which arrays are slow for."""

    def __init__(self, result: Result) -> None:
        self.metrics = {name: index for index, name in enumerate(result.metrics)}
        self.kernels: list[int] = result.array("kernels").astype(np.int64).tolist()
        self.contended = result.array("contended").tolist()
        self._amounts, self._errors, self._groups, self._together = (
            result.array(name).tolist() for name in ("amounts", "errors", "groups", "together")
        )

    def amount(self, metrics: tuple[str, ...], index: int) -> Amount | None:
        """What some counters counted together in a launch; None where it cannot be told from others'.

        Counters in which the kernel is inseparable from others do no harm where all of the group moved
        little by them.
        """
        value = mixed = apart = 0.0
        for at in map(self.metrics.__getitem__, metrics):
            value += self._amounts[index][at]
            if self._groups[index][at] >= 0:
                mixed += self._together[index][at]
            else:
                apart += self._amounts[index][at]
        if mixed > LEAST_KNOWN * apart:
            return None
        return Amount(value, self._half_width(metrics, index) / value if value > 0 else math.nan)

    def most(self, metrics: tuple[str, ...], index: int) -> float:
        """The upper end of the 95 % interval of what `amount` tells."""
        value: float = sum(self._amounts[index][self.metrics[metric]] for metric in metrics)
        return value + self._half_width(metrics, index)

    def _half_width(self, metrics: tuple[str, ...], index: int) -> float:
        # The counters' errors come from the same clocks and launches: they add up.
        return Z95 * float(sum(self._errors[index][self.metrics[metric]] for metric in metrics))

    def together(self, metrics: tuple[str, ...], index: int) -> tuple[float, int]:
        """What the whole group counted per launch, and how many kernels are in it."""
        at = [self.metrics[metric] for metric in metrics]
        groups = self._groups[index]
        mixed = [m for m in at if groups[m] >= 0]
        size = sum(any(other[m] == groups[m] for m in mixed) for other in self._groups)
        return sum(self._together[index][m] for m in at), size


def row_work(
    table: ResultTable, index: int, chip: Chip, name: str, named: Computes, told: Pipe | None
) -> RowWork:
    """The work of the kernel at an index of the table.

    Args:
        name: of the kernel. named: what that tells.
        told: the pipe of its tensor work by the user's word, which counts where the name tells none.
    """
    row = RowWork()
    _add_bytes(row, table, index)
    _add_flops(row, table, index, chip, name, named, told)
    return row


def _add_bytes(row: RowWork, table: ResultTable, index: int) -> None:
    for level, metrics in MEMORY_METRICS.items():
        if not table.metrics.keys() >= set(metrics):
            continue
        amount = table.amount(metrics, index)
        if amount is not None and amount.known:
            row.amounts["bytes", level, _COUNTS[level], False] = amount
        elif amount is not None:
            most = table.most(metrics, index) / 1e6
            row.notes.setdefault(
                "bytes",
                f"at most {most:.3g} MB at {level} per launch, too little to tell from others'",
            )
        else:
            moved, size = table.together(metrics, index)
            many = "s" if size > 2 else ""
            row.notes.setdefault(
                "bytes",
                f"known only together with {size - 1} other kernel{many}: {moved / 1e6:.3g} MB "
                f"at {level} per launch of this one",
            )


def _add_flops(
    row: RowWork,
    table: ResultTable,
    index: int,
    chip: Chip,
    name: str,
    named: Computes,
    told: Pipe | None,
) -> None:
    """Where a part of the FLOPs is not known, none are: those of other pipes are not all that it did."""
    weights = WEIGHTS.get(chip.compute_capability)
    if weights is None:
        arch = chip.compute_capability.replace(".", "")
        row.notes["flops"] = f"what counters count is not known for sm_{arch}"
        return
    counts = {m: a.value for m in table.metrics if (a := table.amount((m,), index))}
    cycles = counts.get(CYCLES)
    sm_cycles = cycles * chip.sms if cycles is not None and chip.sms else None
    if TENSOR in table.metrics and TENSOR not in counts:
        together, _ = table.together((TENSOR,), index)
        if tensor_activity(weights, TENSOR, together, sm_cycles) >= LEAST_ACTIVITY:
            what = "its tensor work cannot be told from that of kernels that run beside it"
            row.notes["flops"] = what
            return
    found = sampled_flops(chip.compute_capability, counts, sm_cycles, named)
    row.candidates = next((f.candidates for f in found if f.candidates), ())
    if told in row.candidates:
        found = sampled_flops(chip.compute_capability, counts, sm_cycles, computes_in(name, told))
    unknown = next((f for f in found if f.pipe is None), None)
    if unknown is not None:
        row.notes["flops"] = _range_words(unknown)
        return
    for one in found:
        assert one.pipe is not None
        by_unit = weights.tensor if one.pipe.unit == "tensor" else weights.vector
        counters = tuple(m for m, pipes in by_unit.items() if one.pipe in pipes and m in counts)
        amount = table.amount(counters, index)
        if amount is None or not amount.known:
            continue
        at_most = one.upper_bound or one.low < one.high
        if one.reason and one.pipe.unit == "tensor":
            row.notes["flops"] = one.reason
        row.amounts["flops", one.pipe.key, REQUESTED, at_most] = Amount(one.high, amount.rel_error)
    if found and not any(kind == "flops" for kind, *_ in row.amounts):
        row.notes["flops"] = "too few to tell from those of the kernels beside it"


def _range_words(found: FlopRange) -> str:
    names = ", ".join(pipe.precision for pipe in found.candidates)
    return f"{found.low / 1e9:.3g} to {found.high / 1e9:.3g} GFLOP ({names}): {found.reason}"
