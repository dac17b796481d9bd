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
    def gain_ns(self) -> float:
        """Time in ns that all its launches together would save at the roof; 0 where not known."""
        return float(gains_ns(self.table, self.positions)[self.row])


def gains_ns(table: KernelTable, positions: Positions) -> Array:
    """What each kernel would save in all at its roof, in ns; 0 where that is not known, shape (n,)."""
    left = np.clip(1 - np.nan_to_num(positions.fraction, nan=1.0), 0.0, 1.0)
    return left * np.nan_to_num(table.column(Column.TOTAL_NS))
