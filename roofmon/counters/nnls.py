"""Non-negative least squares for several right-hand sides that share one Gram matrix.

Block principal pivoting: J. Kim, H. Park, "Fast Nonnegative Matrix Factorization: An Active-Set-Like Method
and Comparisons", SIAM J. Sci. Comput. 33(6), 2011, algorithms 1 and 2, after L. F. Portugal, J. J. Júdice,
L. N. Vicente, "A comparison of block pivoting and interior-point algorithms for linear least squares
problems with nonnegative variables", Math. Comp. 63, 1994.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

RANK_TOLERANCE = 1e-9
"""Eigenvalues of the Gram matrix, scaled to a unit diagonal, under this are zero but for rounding."""

_RIDGE = (
    1e-11  # makes every block of a rank-deficient Gram matrix solvable; far below the data's errors
)
_FEASIBLE = 1e-9  # of the largest scaled value: less below zero than this is rounding
_FULL_EXCHANGES = 3  # Kim & Park's α: full exchanges tried without progress before the backup rule


@dataclass(frozen=True, eq=False)
class Solution:
    """The minimiser of ‖A x − y‖ subject to x ≥ 0 of each right-hand side.

    `converged` is False for a right-hand side that pivoted past the limit, whose values are only nearly
    optimal.
    """

    values: Floats  # (k, m)
    converged: Mask  # (m,)
    scaled: Floats  # the Gram matrix with a unit diagonal, (k, k)

    @cached_property
    def inseparable(self) -> Mask:
        """Columns of A that other columns can replace exactly, shape (k,).

        Their sum is right, but the split among them means nothing: it is as even as their scales allow.
        """
        return _dependent(self.scaled)


def solve_nonnegative(gram: Floats, products: Floats) -> Solution:
    """Solves min ‖A x − y‖², x ≥ 0 for every column of `products`.

    Args:
        gram: AᵀA, shape (k, k), symmetric; columns of A that are all zero are allowed and get 0.
        products: Aᵀy, shape (k, m).
    """
    count = len(gram)
    scale = np.sqrt(np.diag(gram))
    scale = np.where(scale > 0, scale, 1.0)
    scaled = gram / np.outer(scale, scale)
    values, converged = _block_pivoting(
        scaled + _RIDGE * np.eye(count), products / scale[:, np.newaxis]
    )
    return Solution(values / scale[:, np.newaxis], converged, scaled)


def inverse(gram: Floats) -> Floats:
    """(AᵀA)⁻¹: times the variance of the residual, the covariance of x. Shape (k, k).

    Columns that cannot be separated get variances that are beyond any value (as if their Gram matrix
    had the smallest eigenvalue that counts), with covariances that cancel in their sum.
    """
    scale = np.sqrt(np.diag(gram))
    scale = np.where(scale > 0, scale, 1.0)
    scaled = gram / np.outer(scale, scale)
    found: Floats = np.linalg.inv(scaled + _RIDGE * np.eye(len(gram))) / np.outer(scale, scale)
    return found


def _dependent(scaled: Floats) -> Mask:
    """Columns with a part in the null space of a Gram matrix with unit diagonal, (k,)."""
    if not len(scaled):
        return np.zeros(0, dtype=np.bool_)
    eigenvalues, vectors = np.linalg.eigh(scaled)
    null = vectors[:, eigenvalues < RANK_TOLERANCE * max(eigenvalues[-1], 1.0)]
    # A column of zeros is a null vector of its own, and is not replaced by any other.
    found: Mask = (np.abs(null) > np.sqrt(RANK_TOLERANCE)).any(axis=1) & (np.diag(scaled) > 0)
    return found


def _block_pivoting(gram: Floats, products: Floats) -> tuple[Floats, Mask]:
    """x (k, m) with gradient gram·x − products ≥ 0, complementary; `gram` is positive definite."""
    count, sides = products.shape
    size = np.abs(products).max(axis=0, initial=0.0)
    products = products / np.where(size > 0, size, 1.0)
    # Most kernels move something: starting from what the unconstrained solution keeps saves pivots.
    values = np.linalg.solve(gram, products) if count else np.zeros((0, sides))
    passive = values > 0
    values, gradient = _solve_blocks(gram, products, passive)
    least = np.full(sides, count + 1)
    exchanges = np.full(sides, _FULL_EXCHANGES)
    for _ in range(3 * count + 100):
        wrong = np.where(passive, values < -_FEASIBLE, gradient < -_FEASIBLE)
        number = wrong.sum(axis=0)
        open_sides = np.flatnonzero(number)
        if not len(open_sides):
            break
        better = number < least
        least = np.where(better, number, least)
        exchanges = np.where(better, _FULL_EXCHANGES, exchanges - 1)
        for side in open_sides[exchanges[open_sides] < 0]:
            # Backup rule (Murty 1974): only the last wrong variable moves, which cannot cycle.
            only = np.flatnonzero(wrong[:, side])[-1]
            wrong[:, side] = False
            wrong[only, side] = True
        passive[:, open_sides] ^= wrong[:, open_sides]
        values[:, open_sides], gradient[:, open_sides] = _solve_blocks(
            gram, products[:, open_sides], passive[:, open_sides]
        )
    wrong = np.where(passive, values < -_FEASIBLE, gradient < -_FEASIBLE)
    return np.maximum(values, 0.0) * size, np.logical_not(wrong.any(axis=0))


def _solve_blocks(gram: Floats, products: Floats, passive: Mask) -> tuple[Floats, Floats]:
    """Unconstrained solutions on the passive sets, and gradients; equal sets are solved at once."""
    values = np.zeros_like(products)
    sides_of: dict[bytes, list[int]] = {}
    for side in range(products.shape[1]):
        sides_of.setdefault(passive[:, side].tobytes(), []).append(side)
    for same in sides_of.values():
        rows, sides = np.flatnonzero(passive[:, same[0]]), np.array(same)
        if len(rows):
            values[np.ix_(rows, sides)] = np.linalg.solve(
                gram[np.ix_(rows, rows)], products[np.ix_(rows, sides)]
            )
    return values, gram @ values - products
