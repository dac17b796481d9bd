"""Normal equations that remember earlier windows: what smooths amounts, each as far as it is known."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_COLUMNS = 512
"""Columns that are remembered, 2 MB of Gram matrix; those with the least launches are forgotten first."""

_FORGOTTEN = 0.02  # of its launches at their most: a column that faded this far is dropped
_LEAST_NOISE = 0.001  # of the counts of a sample; on recordings of an H200 it was 0.005 and more


class NormalEquations:
    """AᵀA and Aᵀy summed over windows, earlier ones weighted less and less.

    Summing them is recursive least squares with a forgetting factor (Haykin, "Adaptive Filter Theory",
    ch. 10): each window counts with the full covariance of what it knows. A window in which two kernels
    cannot be told apart adds what it says about their sum and leaves alone what another said about each.
    """

    def __init__(self, sides: int) -> None:
        self._sides = sides
        self.forget()

    def forget(self) -> None:
        """Forgets everything."""
        sides = self._sides
        self.ids: Integers = np.zeros(0, dtype=np.int64)  # ascending
        self.gram = np.zeros((0, 0))
        self.products = np.zeros((0, sides))  # Aᵀy
        self.slips = np.zeros((0, sides))  # Aᵀ(what an error of the clocks may have changed in y)
        self.squares = np.zeros((0, sides))  # Aᵀ(squared residual)
        self.amounts = np.zeros(0)  # column sums of A: launches
        self._most = np.zeros(0)

    def add(self, ids: Integers, table: Floats, values: Floats, keep: float) -> None:
        """Adds a window after weighting all that was known by `keep`.

        Args:
            ids: of the columns of `table`, ascending, shape (k,).
            table: shape (s, k). values: shape (s, c).
        """
        self._grow(np.union1d(self.ids, ids))
        self.gram *= keep
        self.products *= keep
        self.slips *= keep
        self.squares *= keep
        self.amounts *= keep
        at = np.searchsorted(self.ids, ids)
        self.gram[np.ix_(at, at)] += table.T @ table
        self.products[at] += table.T @ values
        self.amounts[at] += table.sum(axis=0)
        self._most = np.maximum(self._most, self.amounts)
        gone = self.amounts <= _FORGOTTEN * self._most
        if len(gone) > MOST_COLUMNS:
            gone[np.argsort(self.amounts, kind="stable")[: len(gone) - MOST_COLUMNS]] = True
        if gone.any():
            self._drop(gone)

    def add_residual(self, ids: Integers, table: Floats, residual: Floats) -> None:
        """Takes note of the residual, shape (s, c), of the samples that were just added."""
        here = np.isin(ids, self.ids)
        freedom = len(table) / max(len(table) - len(ids), 1)
        at = np.searchsorted(self.ids, ids[here])
        self.squares[at] += freedom * (table[:, here].T @ np.square(residual))

    def add_slip(self, ids: Integers, table: Floats, slip: Floats) -> None:
        """Takes note of what a standard error of the clocks changes in the counts, shape (s, c).

        The windows' errors add up as if they were the same one: they mostly are.
        """
        here = np.isin(ids, self.ids)
        self.slips[np.searchsorted(self.ids, ids[here])] += table[:, here].T @ slip

    def variance(self) -> Floats:
        """Mean squared residual of the samples in which each column has something, shape (k, c).

        One variance for all would give a kernel the errors of others that ran at other times, whose
        rates vary more within a launch. It is never taken for less than `_LEAST_NOISE` of the counts: a
        residual of zero would make the most uncertain amount look sure.
        """
        amounts = np.where(self.amounts > 0, self.amounts, 1.0)[:, np.newaxis]
        least = np.square(_LEAST_NOISE * self.products / amounts)
        found: Floats = np.maximum(self.squares / amounts, least)
        return found

    def _grow(self, ids: Integers) -> None:
        """Makes room for columns that are not known yet."""
        at = np.searchsorted(ids, self.ids)
        gram = np.zeros((len(ids), len(ids)))
        gram[np.ix_(at, at)] = self.gram
        self.gram, self.ids = gram, ids
        self.products, self.slips, self.squares, self.amounts, self._most = (
            _placed(known, at, len(ids))
            for known in (self.products, self.slips, self.squares, self.amounts, self._most)
        )

    def _drop(self, gone: NDArray[np.bool_]) -> None:
        """Takes columns out of the unknowns; what they explained does not fall to the others.

        That is the Schur complement: the normal equations of the others once these are fitted.
        """
        stay = ~gone
        block = self.gram[np.ix_(gone, gone)]
        diagonal = np.diag(block)
        block = block + np.diag(np.where(diagonal > 0, 1e-9 * diagonal, 1.0))
        across = np.linalg.solve(block, self.gram[np.ix_(gone, stay)]).T
        self.gram = self.gram[np.ix_(stay, stay)] - across @ self.gram[np.ix_(gone, stay)]
        self.products = self.products[stay] - across @ self.products[gone]
        self.slips = self.slips[stay] - across @ self.slips[gone]
        self.ids, self.squares = self.ids[stay], self.squares[stay]
        self.amounts, self._most = self.amounts[stay], self._most[stay]


def _placed(known: Floats, at: Integers, count: int) -> Floats:
    """Rows of `known` at their new places among `count`, zeros elsewhere."""
    found = np.zeros((count, *known.shape[1:]))
    found[at] = known
    return found
