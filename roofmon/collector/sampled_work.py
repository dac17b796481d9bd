"""From what the counters worker attributed to the work of rows: bytes by level and FLOPs by pipe."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from roofmon.counters.flops import FlopRange, sampled_flops
from roofmon.counters.groups import LEAST_KNOWN
from roofmon.counters.metric_sets import L2, MEMORY_METRICS
from roofmon.counters.precision import Computes, computes
from roofmon.counters.weights import CYCLES, HMMA, WEIGHTS
from roofmon.counters.worker_messages import Result
from roofmon.model.kernel import KernelDescription
from roofmon.model.roofline import REQUESTED
from roofmon.stream.messages import WorkValues

Key = tuple[str, str, str, bool]
"""Kind, pipe or level, what bytes count, whether it is an upper bound."""

_Z95 = 1.959963984540054
# DRAM traffic of streaming kernels is what they ask for, within 0.3 %; that of L2 is not.
_COUNTS = {"dram": REQUESTED, "l2": L2.removesuffix(".sum")}


@dataclass(frozen=True)
class Amount:
    """Of one launch; `rel_error` is the half-width of the 95 % interval over the value."""

    value: float
    rel_error: float


class SampledWork:
    """The sampled work of rows, as it was last told.

    `notes` says by row and quantity ("bytes", "flops") why a value is missing or not a point;
    `take_notes` gives those that changed.
    """

    def __init__(self) -> None:
        self.notes: dict[int, dict[str, str]] = {}
        self._noted: set[int] = set()
        self._values: dict[Key, dict[int, Amount]] = {}
        self._changed: dict[Key, set[int]] = {}
        self._computes: dict[str, Computes] = {}

    def take(
        self,
        result: Result,
        describe: Callable[[int], KernelDescription | None],
        compute_capability: str,
        sms: int | None,
    ) -> None:
        """Takes one result in. Rows that it does not name keep what was known of them.

        Args:
            describe: the row of an id; None where it does not stand.
            compute_capability: of the device, "9.0".
            sms: its streaming multiprocessors; None where not known.
        """
        table = _Table(result)
        for index, row in enumerate(table.kernels):
            description = describe(row)
            if description is None or description.kind != "kernel":
                continue
            notes: dict[str, str] = {}
            found = dict(_bytes(table, index, notes))
            found.update(self._flops(table, index, description, compute_capability, sms, notes))
            if table.contended[index]:
                notes.setdefault(
                    "bytes",
                    "another process used the GPU beside it: some of this may be its traffic",
                )
            if notes != self.notes.get(row, {}):
                self._noted.add(row)
            self.notes[row] = notes
            for key in {*found, *self._values}:
                self._set(key, row, found.get(key))

    def columns(self, *, everything: bool, standing: Callable[[int], bool]) -> list[WorkValues]:
        """What changed since the last call, or all, of rows that stand."""
        changed, self._changed = self._changed, {}
        columns = []
        for key, values in self._values.items():
            rows = sorted(filter(standing, values if everything else changed.get(key, ())))
            if not rows:
                continue
            amounts = [values.get(row, Amount(math.nan, math.nan)) for row in rows]
            kind, name, counts, upper_bound = key
            columns.append(
                WorkValues(
                    kind=kind,
                    key=name,
                    provenance="sampled",
                    ids=np.array(rows, "<u4").tobytes(),
                    values=np.array([a.value for a in amounts], "<f8").tobytes(),
                    rel_error=np.array([a.rel_error for a in amounts], "<f4").tobytes(),
                    upper_bound=upper_bound,
                    counts=counts,
                )
            )
        return columns

    def take_notes(self) -> dict[int, dict[str, str]]:
        """The notes of rows where they changed since the last call; empty where all is well."""
        noted, self._noted = self._noted, set()
        return {row: self.notes.get(row, {}) for row in noted}

    def reset(self) -> None:
        """Forget all: statistics begin anew."""
        self._noted.update(row for row, notes in self.notes.items() if notes)
        self.notes.clear()
        self._values.clear()
        self._changed.clear()

    def forget(self, rows: Iterable[int]) -> None:
        """Forget rows that went."""
        for row in rows:
            self.notes.pop(row, None)
            for values in self._values.values():
                values.pop(row, None)

    def _set(self, key: Key, row: int, amount: Amount | None) -> None:
        values = self._values.setdefault(key, {})
        if values.get(row) == amount:
            return
        if amount is None:
            del values[row]
        else:
            values[row] = amount
        self._changed.setdefault(key, set()).add(row)

    def _flops(
        self,
        table: "_Table",
        index: int,
        description: KernelDescription,
        compute_capability: str,
        sms: int | None,
        notes: dict[str, str],
    ) -> Iterator[tuple[Key, Amount]]:
        weights = WEIGHTS.get(compute_capability)
        if weights is None:
            notes["flops"] = (
                f"what counters count is not known for sm_{compute_capability.replace('.', '')}"
            )
            return
        name = description.full_name or description.name
        told = self._computes.setdefault(name, computes(name))
        separable = {m: a.value for m in table.metrics if (a := table.amount((m,), index))}
        cycles = separable.get(CYCLES)
        sm_cycles = cycles * sms if cycles is not None and sms else None
        if HMMA in table.metrics and HMMA not in separable:
            notes["flops"] = (
                "its tensor work cannot be told from that of kernels that run beside it"
            )
        for found in sampled_flops(compute_capability, separable, sm_cycles, told):
            if found.pipe is None:
                notes["flops"] = _range_words(found)
                continue
            by_unit = weights.tensor if found.pipe.unit == "tensor" else weights.vector
            counters = tuple(
                m for m, pipes in by_unit.items() if found.pipe in pipes and m in separable
            )
            amount = table.amount(counters, index)
            error = amount.rel_error if amount else math.nan
            at_most = found.upper_bound or found.low < found.high
            if found.reason and found.pipe.unit == "tensor":
                notes["flops"] = found.reason
            yield ("flops", found.pipe.key, REQUESTED, at_most), Amount(found.high, error)


class _Table:
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
        value = mixed = apart = error = 0.0
        for at in map(self.metrics.__getitem__, metrics):
            value += self._amounts[index][at]
            # The counters' errors come from the same clocks and launches: they add up.
            error += _Z95 * self._errors[index][at]
            if self._groups[index][at] >= 0:
                mixed += self._together[index][at]
            else:
                apart += self._amounts[index][at]
        if mixed > LEAST_KNOWN * apart:
            return None
        return Amount(value, error / value if value > 0 else math.nan)

    def together(self, metrics: tuple[str, ...], index: int) -> tuple[float, int]:
        """What the whole group counted per launch, and how many kernels are in it."""
        at = [self.metrics[metric] for metric in metrics]
        groups = self._groups[index]
        mixed = [m for m in at if groups[m] >= 0]
        size = sum(any(other[m] == groups[m] for m in mixed) for other in self._groups)
        return sum(self._together[index][m] for m in at), size


def _bytes(table: _Table, index: int, notes: dict[str, str]) -> Iterator[tuple[Key, Amount]]:
    for level, metrics in MEMORY_METRICS.items():
        if not table.metrics.keys() >= set(metrics):
            continue
        amount = table.amount(metrics, index)
        if amount is not None:
            yield ("bytes", level, _COUNTS[level], False), amount
        else:
            moved, size = table.together(metrics, index)
            many = "s" if size > 2 else ""
            notes.setdefault(
                "bytes",
                f"known only together with {size - 1} other kernel{many}: {moved / 1e6:.3g} MB "
                f"at {level} per launch of this one",
            )


def _range_words(found: FlopRange) -> str:
    names = ", ".join(pipe.precision for pipe in found.candidates)
    return f"{found.low / 1e9:.3g} to {found.high / 1e9:.3g} GFLOP ({names}): {found.reason}"
