"""What the rows of a snapshot say against what kernels must move and compute, and the table of both."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from roofmon.model.kernel import KernelDescription
from roofmon.model.snapshot import Snapshot

OFTEN = 0.9  # launches in an iteration from which on a kernel belongs to a workload


@dataclass(frozen=True)
class Sampled:
    """What counters tell of one row, a launch: NaN where they do not, and why in `note`.

    `error` is the half-width of the 95 % interval of `bytes`, relative. `contended` says why the bytes may
    be those of others, "" where they are not.
    """

    bytes: float = math.nan
    error: float = math.nan
    flops: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    contended: str = ""

    @property
    def mark(self) -> str:
        """What says that the bytes are not, or not only, the kernel's own; "" where nothing does."""
        inseparable = math.isnan(self.bytes) and "together" in self.note
        return self.note if inseparable else self.contended


@dataclass(frozen=True)
class Part:
    """A kernel of a workload."""

    description: KernelDescription
    per_iteration: float
    sampled: Sampled


def sampled_rows(snapshot: Snapshot) -> dict[int, Sampled]:
    """Id of each kernel → what counters tell of it."""
    table, found = snapshot.kernels, {}
    for row, description in enumerate(table.descriptions):
        if description.kind != "kernel":
            continue
        moved, error, flops = math.nan, math.nan, {}
        for column in table.work:
            value = float(column.values[row])
            if column.provenance != "sampled" or not math.isfinite(value):
                continue
            if column.kind == "flops":
                flops[column.key] = value
            elif column.key == "dram":
                moved, error = value, float(column.rel_error[row])
        reasons = description.reasons
        note, contended = reasons.get("bytes", ""), reasons.get("contended", "")
        found[description.id] = Sampled(moved, error, flops, note, contended)
    return found


def parts_of(snapshot: Snapshot, launches: Mapping[int, int], iterations: int) -> list[Part]:
    """The kernels that were launched about once an iteration or more often, most traffic first."""
    by_id = sampled_rows(snapshot)
    parts = [
        Part(description, launches[description.id] / iterations, by_id[description.id])
        for description in snapshot.kernels.descriptions
        if description.id in by_id and launches.get(description.id, 0) >= OFTEN * iterations
    ]
    return sorted(parts, key=lambda p: -_known(p.sampled.bytes) * p.per_iteration)


@dataclass(frozen=True)
class Total:
    """Of one iteration. `missing` kernels have no value of their own, the rest is without them."""

    value: float
    error: float
    missing: int
    kernels: int


def total_bytes(parts: list[Part]) -> Total:
    known = [p for p in parts if math.isfinite(p.sampled.bytes)]
    amounts = [p.sampled.bytes * p.per_iteration for p in known]
    whole = sum(amounts) if known else math.nan
    errors = [a * _known(p.sampled.error) for a, p in zip(amounts, known, strict=True)]
    error = sum(errors) / whole if known and whole > 0 else math.nan
    return Total(whole, error, len(parts) - len(known), len(parts))


def total_flops(parts: list[Part], pipe: str) -> Total:
    """FLOPs on one pipe."""
    known = [p for p in parts if pipe in p.sampled.flops]
    whole = sum(p.sampled.flops[pipe] * p.per_iteration for p in known) if known else math.nan
    return Total(whole, math.nan, 0, len(parts))


@dataclass(frozen=True)
class Line:
    """One comparison of the table, in millions; `goal` is the largest relative difference allowed."""

    label: str
    must: float
    found: float
    error: float = math.nan
    goal: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.found / self.must if self.must else math.nan

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        if not math.isfinite(self.ratio):
            return "MISSED (n/a)"
        return "ok" if abs(self.ratio - 1) <= self.goal else "MISSED"


def heading(title: str) -> str:
    return f"\n{title}\n  {'':34}{'must':>11}{'found':>11}{'ratio':>9}{'± stated':>10}{'goal':>7}"


def text_of(line: Line) -> str:
    def number(value: float, form: str) -> str:
        return format(value, form) if math.isfinite(value) else "n/a"

    goal = "" if line.goal is None else f"{100 * line.goal:.0f} %"
    error = f"{number(100 * line.error, '.1f')} %" if math.isfinite(line.error) else ""
    return (
        f"  {line.label:34}{number(line.must / 1e6, '.1f'):>11}{number(line.found / 1e6, '.1f'):>11}"
        f"{number(line.ratio, '.4f'):>9}{error:>10}{goal:>7}  {line.verdict:7} {line.note}"
    ).rstrip()


@dataclass(frozen=True)
class Mixed:
    """A kernel in a mix: what it moved by itself, and what is said of it in the mix."""

    name: str
    solo: float
    launches: int
    sampled: Sampled

    @property
    def ratio(self) -> float:
        return self.sampled.bytes / self.solo


def large(mixed: list[Mixed], share: float) -> list[Mixed]:
    """Those with at least this share of the traffic."""
    whole = sum(m.solo * m.launches for m in mixed if math.isfinite(m.solo))
    return [m for m in mixed if m.solo * m.launches >= share * whole]


def verdict_of_mix(mixed: list[Mixed], share: float, goal: float) -> tuple[str, bool]:
    """A line about the worst of the large ones, and whether all are within `goal` or marked."""
    counted = large(mixed, share)
    marked = [m for m in counted if m.sampled.mark]
    rest = [m for m in counted if m not in marked]
    silent = [m for m in rest if not math.isfinite(m.ratio)]
    known = [m for m in rest if m not in silent]
    worst = max(known, key=lambda m: abs(m.ratio - 1), default=None)
    good = bool(counted) and not silent and all(abs(m.ratio - 1) <= goal for m in known)
    words = [f"{len(counted)} kernels with ≥ {share:.0%} of the traffic"]
    if worst is not None:
        words.append(f"worst {worst.name} {worst.ratio:.4f}")
    words.append(f"{len(marked)} marked" + "".join(f", {m.name}" for m in marked))
    if silent:
        words.append("without a value or a mark: " + ", ".join(m.name for m in silent))
    return "; ".join([*words, "ok" if good else "MISSED"]), good


def _known(value: float) -> float:
    return value if math.isfinite(value) else 0.0
