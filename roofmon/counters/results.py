"""What attribution tells of the kernels of a GPU, and where the counts of a window went."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofmon.counters.clocks import ClockFit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Traffic:
    """Where the counts of one window's usable samples went, arrays of shape (c,).

    What is neither attributed nor untraced the fit left over (below zero: attributed too much).
    """

    seconds: float  # of usable samples
    device: Floats
    attributed: Floats  # to traced kernels, pooled ones too
    pooled: Floats  # of it, to kernels too short to list
    untraced: Floats  # counted where no traced kernel ran, or in bursts beyond what those explain

    @property
    def explained(self) -> Floats:
        """Attributed over counted, NaN where nothing was counted."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.device > 0, self.attributed / self.device, np.nan)


@dataclass(frozen=True, eq=False)
class Attribution:
    """Amounts per launch of the kernels that are remembered, arrays of shape (k, c) unless said otherwise.

    `errors` are standard errors, from the residual and from the error of the clocks. Kernels with one
    number ≥ 0 in a column of `groups` cannot be told apart by that counter: their `amounts` mean nothing
    one by one, `together` is what all of the group moved per launch of this kernel. Elsewhere `together`
    is the kernel's own amount.
    """

    metrics: tuple[str, ...]
    kernels: Integers  # (k,) ids of the caller
    launches: Floats  # (k,) over the remembered windows, weighted
    amounts: Floats
    errors: Floats
    groups: Integers
    together: Floats
    together_errors: Floats
    contended: Mask  # (k,): others moved data beside it that cannot be told from its own
    pooled: Integers  # ids of the kernels of this window that were too short to list
    traffic: Traffic
    clock: ClockFit
    foreign_share: float  # of the samples with kernels: those with bursts of untraced traffic
