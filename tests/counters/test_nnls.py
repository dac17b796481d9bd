"""Non-negative least squares against scipy, the optimality conditions, and cases worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmon.counters.nnls import Solution, solve_nonnegative


def solve(matrix: np.ndarray, sides: np.ndarray) -> Solution:
    return solve_nonnegative(matrix.T @ matrix, matrix.T @ sides)


def problem(seed: int, rows: int, columns: int, sides: int) -> tuple[np.ndarray, np.ndarray]:
    """A random problem about half of whose true values are zero or would be negative."""
    random = np.random.default_rng(seed)
    matrix = random.random((rows, columns)) * 10 ** random.uniform(-3, 3, columns)
    truth = random.normal(size=(columns, sides)) / np.linalg.norm(matrix, axis=0)[:, np.newaxis]
    return matrix, matrix @ truth + 0.1 * random.normal(size=(rows, sides))


def test_two_columns_by_hand():
    # Columns (1, 0) and (1, 1). (1, −1) = 2·first − second needs a negative part: the second stays out
    # and the first takes its own projection, 1. (3, 1) = 2·first + second is feasible as it is.
    matrix = np.array([[1.0, 1.0], [0.0, 1.0]])
    found = solve(matrix, np.array([[1.0, 3.0], [-1.0, 1.0]]))
    np.testing.assert_allclose(found.values, [[1.0, 2.0], [0.0, 1.0]], atol=1e-9)
    assert found.converged.all()
    assert not found.inseparable.any()


@pytest.mark.parametrize(("rows", "columns"), [(30, 4), (60, 20), (300, 80)])
def test_every_side_is_what_scipy_finds(rows, columns):
    optimize = pytest.importorskip("scipy.optimize")
    matrix, sides = problem(columns, rows, columns, 7)
    found = solve(matrix, sides)
    for side in range(7):
        expected, distance = optimize.nnls(matrix, sides[:, side])
        mine = found.values[:, side]
        assert np.linalg.norm(matrix @ mine - sides[:, side]) <= distance * (1 + 1e-9)
        np.testing.assert_allclose(
            mine * np.linalg.norm(matrix, axis=0),
            expected * np.linalg.norm(matrix, axis=0),
            atol=1e-6,
        )


@given(st.integers(0, 2**32 - 1), st.integers(1, 25), st.integers(1, 5))
@settings(max_examples=60)
def test_the_solution_is_feasible_and_no_step_improves_it(seed, columns, sides):
    matrix, right = problem(seed, 3 * columns + 2, columns, sides)
    found = solve(matrix, right)
    assert found.converged.all()
    assert (found.values >= 0).all()
    # Karush, Kuhn and Tucker: the gradient is zero where x > 0 and not negative elsewhere.
    gradient = matrix.T @ (matrix @ found.values - right)
    gradient /= np.linalg.norm(matrix, axis=0)[:, np.newaxis] * np.linalg.norm(right, axis=0)
    assert (gradient > -1e-6).all()
    assert (np.abs(gradient[found.values > 0]) < 1e-6).all()


def test_a_column_that_two_others_make_up_is_inseparable_but_the_fit_is_right():
    random = np.random.default_rng(5)
    first, second, alone = random.random((3, 50))
    matrix = np.stack([first, second, first + second, alone], axis=1)
    sides = (matrix @ [[1.0], [2.0], [0.0], [4.0]]).reshape(-1, 1)
    found = solve(matrix, sides)
    assert found.inseparable.tolist() == [True, True, True, False]
    assert found.values[3, 0] == pytest.approx(4, rel=1e-6)
    np.testing.assert_allclose(matrix @ found.values, sides, rtol=1e-6)


def test_two_equal_columns_share_evenly_instead_of_by_chance():
    column = np.random.default_rng(6).random(40)
    found = solve(np.stack([column, column], axis=1), 6 * column[:, np.newaxis])
    np.testing.assert_allclose(found.values[:, 0], [3, 3], rtol=1e-3)
    assert found.inseparable.all()


def test_a_column_of_zeros_gets_zero_and_harms_nothing():
    matrix = np.zeros((10, 2))
    matrix[:, 0] = np.arange(10)
    found = solve(matrix, 2 * matrix[:, :1])
    np.testing.assert_allclose(found.values[:, 0], [2, 0], atol=1e-9)
    assert not found.inseparable.any()


def test_nothing_to_solve_is_no_error():
    found = solve_nonnegative(np.zeros((0, 0)), np.zeros((0, 3)))
    assert found.values.shape == (0, 3)
    assert found.converged.all()
    assert solve_nonnegative(np.eye(2), np.zeros((2, 0))).values.shape == (2, 0)


def test_columns_of_very_different_scale_do_not_disturb_each_other():
    random = np.random.default_rng(7)
    matrix = random.random((60, 3)) * [1e-6, 1.0, 1e9]
    truth = np.array([[3e6], [5.0], [7e-9]])
    np.testing.assert_allclose(solve(matrix, matrix @ truth).values, truth, rtol=1e-6)
