"""The sampled work of the rows of the table: what is known, what changed, what is to be said of it."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from roofmon.collector.device_traffic import NO_CONTENTION, Contention
from roofmon.collector.row_work import Amount, Chip, Key, ResultTable, row_work
from roofmon.counters.precision import Computes, computes
from roofmon.counters.worker_messages import Result
from roofmon.model.kernel import KernelDescription
from roofmon.model.roofline import Pipe
from roofmon.stream.messages import WorkValues


@dataclass(frozen=True)
class Said:
    """What the description of a row says of its sampled work (see `model.kernel.KernelDescription`)."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    candidates: tuple[Pipe, ...] = ()
    told: Pipe | None = None


class SampledWork:
    """The sampled work of rows, as it was last told. `said` is by row."""

    def __init__(self) -> None:
        self.said: dict[int, Said] = {}
        self._told: dict[str, Pipe] = {}  # by kernel name
        self._noted: set[int] = set()
        self._values: dict[Key, dict[int, Amount]] = {}
        self._changed: dict[Key, set[int]] = {}
        self._named: dict[str, Computes] = {}

    def take(
        self,
        result: Result,
        describe: Callable[[int], KernelDescription | None],
        chip: Chip,
        contention: Contention = NO_CONTENTION,
    ) -> None:
        """Takes one result in. Rows that it does not name keep what was known of them.

        Args:
            describe: the row of an id; None where it does not stand.
            contention: why the bytes of rows that are contended, or of all, may be of others.
        """
        table = ResultTable(result)
        for index, row in enumerate(table.kernels):
            description = describe(row)
            if description is None or description.kind != "kernel":
                continue
            name = _name(description)
            if name not in self._named:
                self._named[name] = computes(name)
            told = self._told.get(name)
            found = row_work(table, index, chip, name, self._named[name], told)
            if table.contended[index] or contention.everywhere:
                found.notes["contended"] = contention.why or "others used the GPU beside it"
            self._say(row, Said(found.notes, found.candidates, told if found.candidates else None))
            for key in {*found.amounts, *self._values}:
                self._set(key, row, found.amounts.get(key))

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

    def next_precision(self, kernel: KernelDescription) -> bool:
        """The user tells the precision of all kernels of a name: the next of the candidates, and after the
        last one none. False where there is nothing to tell. It counts from the next `take` on."""
        candidates = self.said.get(kernel.id, Said()).candidates
        if not candidates:
            return False
        name = _name(kernel)
        known = self._told.pop(name, None)
        following = candidates.index(known) + 1 if known in candidates else 0
        if following < len(candidates):
            self._told[name] = candidates[following]
        return True

    def take_noted(self) -> set[int]:
        """The rows of which something else is said than at the last call."""
        noted, self._noted = self._noted, set()
        return noted

    def described(self, known: KernelDescription, reasons: Mapping[str, str]) -> KernelDescription:
        """A row with what is said of it here, beside the reasons that it had before it was sampled."""
        said = self.said.get(known.id, Said())
        return msgspec.structs.replace(
            known,
            reasons={**reasons, **said.reasons},
            candidates=tuple(pipe.key for pipe in said.candidates),
            told=said.told.key if said.told is not None else "",
        )

    def reset(self) -> None:
        """Forget all but what the user told: statistics begin anew."""
        for row in self.said:
            self._say(row, Said())
        self.said.clear()
        self._values.clear()
        self._changed.clear()

    def forget(self, rows: Iterable[int]) -> None:
        """Forget rows that went."""
        for row in rows:
            self.said.pop(row, None)
            for values in self._values.values():
                values.pop(row, None)

    def _say(self, row: int, said: Said) -> None:
        if said != self.said.get(row, Said()):
            self._noted.add(row)
        self.said[row] = said

    def _set(self, key: Key, row: int, amount: Amount | None) -> None:
        values = self._values.setdefault(key, {})
        if values.get(row) == amount:
            return
        if amount is None:
            del values[row]
        else:
            values[row] = amount
        self._changed.setdefault(key, set()).add(row)


def _name(kernel: KernelDescription) -> str:
    return kernel.full_name or kernel.name
