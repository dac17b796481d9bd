"""What is remembered of earlier windows: the same as solving them all at once, bounded, and fading."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmon.counters.nnls import inverse, solve_nonnegative
from roofmon.counters.normal import MOST_COLUMNS, NormalEquations


def solve(known: NormalEquations) -> np.ndarray:
    return solve_nonnegative(known.gram, known.products).values


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_windows_with_different_kernels_are_one_weighted_problem(seed):
    random = np.random.default_rng(seed)
    truth = random.random((6, 2)) + 0.1
    known, rows, sides = NormalEquations(2), [], []
    for number in range(4):
        ids = np.sort(random.choice(6, size=4, replace=False))
        table = np.zeros((30, 6))
        table[:, ids] = random.random((30, 4))
        values = table @ truth + 0.01 * random.normal(size=(30, 2))
        known.add(ids, table[:, ids], values, keep=0.8)
        weight = np.sqrt(0.8 ** (3 - number))
        rows.append(weight * table)
        sides.append(weight * values)
    present = known.ids
    expected = np.linalg.lstsq(np.vstack(rows)[:, present], np.vstack(sides), rcond=None)[0]
    np.testing.assert_allclose(solve(known), np.maximum(expected, 0), atol=1e-6)


def test_a_window_that_tells_two_kernels_apart_settles_one_that_cannot():
    known = NormalEquations(1)
    together = np.ones((20, 2))  # every sample: one launch of each
    known.add(np.array([3, 7]), together, together @ [[5.0], [1.0]], keep=1.0)
    apart = np.eye(2)[np.arange(20) % 2]
    known.add(np.array([3, 7]), apart, apart @ [[5.0], [1.0]], keep=1.0)
    np.testing.assert_allclose(solve(known)[:, 0], [5, 1], rtol=1e-6)


def test_a_column_that_faded_is_dropped_and_leaves_its_share_to_nobody():
    random = np.random.default_rng(2)
    known = NormalEquations(1)
    first = random.random((50, 2))
    known.add(np.array([1, 2]), first, first @ [[3.0], [40.0]], keep=1.0)
    for _ in range(30):
        later = random.random((50, 1))
        known.add(np.array([1]), later, later * 3.0, keep=0.85)  # 0.85^24 = 2 %
    assert known.ids.tolist() == [1]
    # Kernel 2 was under kernel 1 in half of the first samples, which still count 0.8 %.
    np.testing.assert_allclose(solve(known), [[3.0]], rtol=1e-6)


def test_memory_is_bounded_by_the_kernels_with_most_launches():
    known = NormalEquations(1)
    for number in range(4):
        ids = np.arange(300) + 300 * number
        table = np.tile(np.where(ids % 3 == 0, 5.0, 1.0), (4, 1))
        known.add(ids, table, table.sum(axis=1, keepdims=True), keep=1.0)
    assert len(known.ids) == MOST_COLUMNS
    assert len(known.gram) == MOST_COLUMNS
    assert set(known.ids) >= set(range(0, 1200, 3))


def test_errors_are_those_of_the_samples_in_which_a_kernel_ran():
    random = np.random.default_rng(3)
    table = np.zeros((400, 2))
    table[:200, 0] = table[200:, 1] = 1.0
    noise = np.concatenate([random.normal(0, 1, 200), random.normal(0, 30, 200)])[:, np.newaxis]
    known, ids = NormalEquations(1), np.array([0, 1])
    known.add(ids, table, 100 + noise, keep=1.0)
    known.add_residual(ids, table, 100 + noise - table @ solve(known))
    errors = np.sqrt(np.diag(inverse(known.gram)) * known.variance()[:, 0])
    # The mean of 200 values with deviations 1 and 30.
    np.testing.assert_allclose(errors, [1 / 200**0.5, 30 / 200**0.5], rtol=0.15)


def test_forgetting_leaves_nothing():
    known = NormalEquations(2)
    known.add(np.array([4]), np.ones((5, 1)), np.ones((5, 2)), keep=1.0)
    known.forget()
    assert (len(known.ids), known.products.shape) == (0, (0, 2))


def test_columns_without_a_launch_do_not_harm():
    known = NormalEquations(1)
    table = np.column_stack([np.arange(10.0), np.zeros(10)])
    known.add(np.array([0, 1]), table, 2 * table[:, :1], keep=1.0)
    known.add(np.array([0]), table[:, :1], 2 * table[:, :1], keep=0.5)
    np.testing.assert_allclose(solve(known)[0], [2.0], rtol=1e-6)
    assert known.ids.tolist() == [0]
    assert np.isfinite(known.gram).all()
    # No residual, so a thousandth of the mean count: 2 Σa² / Σa with a = 0 … 9.
    assert known.variance() == pytest.approx((0.001 * 2 * 285 / 45) ** 2)
