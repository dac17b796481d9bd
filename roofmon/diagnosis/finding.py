"""What a rule looks at, and what it says."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from roofmon.model.kernel import KernelDescription
from roofmon.model.position import KernelClass, Positions
from roofmon.model.roofline import NO_ROOFS, Ceiling, Roofline
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.table import Array, Column, KernelTable

Status = Literal["pass", "fail", "unknown"]
Severity = Literal["error", "warning", "info"]

WORTH_SHARE = 0.02
"""A kernel with less than this share of the time is not worth tuning, nor a gain of less worth telling: not
even a kernel of no time at all would be noticed."""

LATENCY_NS = 2000.0
"""What a launch on a GPU takes of it however little it does, with a margin: almost empty kernels took
0.8–0.9 µs on an H200. Work that takes less at its roof is not limited by that roof."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the checklist.

    `title` fits 30 columns; `evidence` is one line of numbers with units; `advice` what to do. Of what
    failed, an `error` means that numbers cannot be trusted, a `warning` that there is something to gain,
    `info` that it is good to know. `gain_ns` is the time that could be saved in all, 0 where that cannot
    be told.
    """

    rule: str
    status: Status
    title: str
    evidence: str
    advice: str = ""
    severity: Severity = "info"
    gain_ns: float = 0.0
    kernel: int | None = None
    device: str = ""


@dataclass(frozen=True)
class Case:
    """One kernel, `row` of `table`, on its device at one moment."""

    snapshot: Snapshot
    device: Device | None
    table: KernelTable
    positions: Positions
    row: int

    def stat(self, column: Column) -> float:
        """One statistic of the kernel; NaN where not known."""
        return float(self.table.column(column)[self.row])

    @property
    def description(self) -> KernelDescription:
        """What is known about the kernel before it runs."""
        return self.table.descriptions[self.row]

    @property
    def roofline(self) -> Roofline:
        """The roofs of its device."""
        return self.device.roofline if self.device else NO_ROOFS

    @property
    def roof(self) -> Ceiling | None:
        """The roof that binds."""
        return self.positions.roof_of(self.row)

    @property
    def kernel_class(self) -> KernelClass:
        """What limits it."""
        return self.positions.class_of(self.row)

    @property
    def fraction(self) -> float:
        """What is achieved of the roof that binds; NaN where not known."""
        return float(self.positions.fraction[self.row])

    @property
    def share(self) -> float:
        """Its share of all time in kernels; NaN where not known."""
        return float(self.table.time_share[self.row])

    @property
    def saving(self) -> float:
        """The part of its time that it would save at the roof, 0 … 1; 0 where not known."""
        return float(savings(self.table, self.positions)[self.row])

    @property
    def gain_ns(self) -> float:
        """Time in ns that all its launches together would save at the roof; 0 where not known."""
        return float(gains_ns(self.table, self.positions)[self.row])


def savings(table: KernelTable, positions: Positions) -> Array:
    """The part of its own time that each kernel would save at its roof, 0 … 1, shape (n,); 0 where unknown.

    No roof makes a launch on a GPU shorter than `LATENCY_NS`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        latency = np.where(table.regions, 0.0, LATENCY_NS / table.typical_ns)
    least = np.fmax(np.nan_to_num(positions.fraction, nan=1.0), latency)
    saved: Array = np.clip(1 - least, 0.0, 1.0)
    return saved


def gains_ns(table: KernelTable, positions: Positions) -> Array:
    """What each kernel would save in all at its roof, in ns; 0 where that is not known, shape (n,)."""
    return savings(table, positions) * np.nan_to_num(table.column(Column.TOTAL_NS))


def most_worth(table: KernelTable, positions: Positions) -> int | None:
    """The row that would save most at its roof; None where none would save `WORTH_SHARE` of all time."""
    shares = savings(table, positions) * np.nan_to_num(table.time_share)
    best = int(shares.argmax()) if len(shares) else 0
    return best if len(shares) and shares[best] >= WORTH_SHARE else None
