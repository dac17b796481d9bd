"""Bursts of foreign traffic against errors of the model, in residuals made by hand."""

import numpy as np

from roofmon.counters.bursts import foreign_samples

RANDOM = np.random.default_rng(8)
VALUES = np.full(400, 100.0)
NOISE = RANDOM.normal(0, 1, 400)


def found(residual, launch_samples=1.0):
    return np.flatnonzero(foreign_samples(residual, VALUES, launch_samples)).tolist()


def test_noise_is_no_burst():
    assert found(NOISE) == []


def test_a_burst_is_found_from_its_first_to_its_last_sample():
    residual = NOISE.copy()
    residual[100:120] += 40
    residual[300:306] += 40
    assert found(residual) == [*range(100, 120), *range(300, 306)]


def test_a_burst_smaller_than_a_twentieth_of_the_traffic_is_left_alone():
    residual = 0.1 * NOISE
    residual[100:150] += 4
    assert found(residual) == []


def test_traffic_that_varies_within_launches_is_no_burst():
    # Launches of ten samples that move twice as much in their first half.
    residual = NOISE + np.where(np.arange(400) % 10 < 5, 33, -33)
    assert found(residual, launch_samples=10) == []


def test_too_much_attributed_is_no_burst():
    residual = NOISE.copy()
    residual[100:150] -= 40
    assert found(residual) == []


def test_a_few_samples_tell_nothing():
    assert not foreign_samples(np.array([0, 0, 50.0]), np.full(3, 100.0), 1.0).any()
