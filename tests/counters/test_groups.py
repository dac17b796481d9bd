"""Which kernels are called inseparable: covariances worked out by hand."""

import numpy as np

from roofmon.counters.groups import inseparable_groups


def groups(totals, errors, correlation=()):
    """Labels for totals with standard errors, and correlations {(i, j): ρ}."""
    matrix = np.eye(len(totals))
    for (i, j), value in dict(correlation).items():
        matrix[i, j] = matrix[j, i] = value
    scale = np.array(errors, dtype=float)
    return inseparable_groups(
        np.array(totals, dtype=float), matrix * np.outer(scale, scale)
    ).tolist()


def test_kernels_that_are_known_stand_alone():
    assert groups([100, 50], [5, 3]) == [-1, -1]  # 10 % and 12 % at 95 %


def test_two_kernels_whose_errors_cancel_are_one_group():
    # 50 ± 40 each, correlation −0.999: the sum has variance 2·40²·0.001, ±1.8.
    assert groups([50, 50, 100], [40, 40, 2], {(0, 1): -0.999}) == [0, 0, -1]


def test_three_kernels_in_fixed_proportions_are_one_group():
    # Errors with correlation −½ each: no pair cancels, all three do (3·900 − 6·½·900 = 0).
    pairs = dict.fromkeys([(0, 1), (0, 2), (1, 2)], -0.4999)
    assert groups([30, 30, 40], [30, 30, 30], pairs) == [0, 0, 0]


def test_a_bystander_does_not_stay_in_a_group():
    # The third is unknown too, and its error cancels a little of the first's, but is not needed.
    pairs = {(0, 1): -0.999, (0, 2): -0.1, (1, 2): 0.05}
    assert groups([50, 50, 10], [40, 40, 20], pairs) == [0, 0, -1]


def test_two_groups_have_two_numbers():
    labels = groups([50, 50, 70, 70], [40, 40, 60, 60], {(0, 1): -0.999, (2, 3): -0.999})
    assert labels[0] == labels[1] != labels[2] == labels[3]
    assert set(labels) == {0, 1}


def test_a_kernel_that_nobody_helps_stands_alone_with_its_error():
    assert groups([10, 100], [50, 2]) == [-1, -1]


def test_a_known_kernel_is_not_dragged_into_a_group():
    # The small one is known only to ±8, correlated with a large one that is known well.
    assert groups([1, 200], [4, 4], {(0, 1): -0.999}) == [-1, -1]


def test_errors_under_a_hundredth_of_all_traffic_do_not_matter():
    assert groups([0, 0, 1000], [3, 3, 4], {(0, 1): -0.999}) == [-1, -1, -1]


def test_nothing_to_group():
    assert inseparable_groups(np.zeros(0), np.zeros((0, 0))).tolist() == []
    assert inseparable_groups(np.zeros(2), np.zeros((2, 2))).tolist() == [-1, -1]
