"""Attribution on a recorded training step: sixty kernels, always in the same order, most of them short.

`data/h200_training.npz` is 1.6 s of `tests/gpu/train.py` on an H200, made by `tests/gpu/record_program.py`.
What its tensor kernels compute follows from the shapes: 16 × 512 tokens of width 1024, 16 heads, hidden
layers of 4096, two layers. Kernels of other kinds count a little of the tensor pipe, as they do alone.
"""

from pathlib import Path

import numpy as np
import pytest
from recording import unpacked

from roofmon.counters.attribution import Attributor
from roofmon.counters.weights import TENSOR, WEIGHTS
from roofmon.model import pipes

TOKENS, WIDTH, HEADS_BATCH, LENGTH = 8192, 1024, 16 * 16, 512
SQUARE = 2.0 * TOKENS * WIDTH * WIDTH
QKV, OUT, HIDDEN = 3 * SQUARE, SQUARE, 4 * SQUARE
ATTENTION = 4.0 * HEADS_BATCH * LENGTH * LENGTH * (WIDTH // 16)

# A part of the mangled name → FLOPs of the mean launch, over the shapes that the kernel runs.
COMPUTES = {
    "coopA_TNT": QKV,  # forward, no bias
    "coopA_bias_TNT": (OUT + 2 * HIDDEN) / 3,
    "coopA_NNT": (4 * HIDDEN + 2 * OUT + QKV) / 7,  # gradients of inputs; the first needs none
    "128x256_64x4_2x1_v_bz_coopA_NTN": HIDDEN,  # of weights, and so on
    "coopB_NTN": QKV,
    "flash_fprop": ATTENTION,
    "flash_bprop": 2.5 * ATTENTION,
}
WEIGHT = WEIGHTS["9.0"].tensor[TENSOR][pipes.TENSOR_BF16]
WINDOW_NS = 800_000_000


@pytest.fixture(scope="module")
def recorded():
    with np.load(Path(__file__).with_name("data") / "h200_training.npz") as file:
        samples, launches, _, names = unpacked(file)
    return samples, launches, names


@pytest.fixture(scope="module")
def found(recorded):
    samples, launches, _ = recorded
    attributor, known = Attributor(samples.metrics), []
    for start in samples.start_ns[0] + WINDOW_NS * np.arange(2):
        inside = (samples.start_ns >= start) & (samples.end_ns <= start + WINDOW_NS)
        known.append(attributor.window(samples.take(inside), launches))
    return known


def test_clocks_that_agree_are_found_to_agree(found):
    for known in found:
        assert known.clock.certain
        assert abs(known.clock.offset_ns) < 3_000


@pytest.mark.parametrize("name", COMPUTES)
def test_flops_of_the_kernels_that_multiply(recorded, found, name):
    known, names = found[-1], recorded[2]
    (row,) = [row for row, k in enumerate(known.kernels.tolist()) if name in names[k]]
    flops = WEIGHT * known.amounts[row, known.metrics.index(TENSOR)]
    assert flops == pytest.approx(COMPUTES[name], rel=0.04)


def test_the_others_have_next_to_none(recorded, found):
    _, launches, names = recorded
    known = found[-1]
    for row, kernel in enumerate(known.kernels.tolist()):
        if "nvjet" in names[kernel] or "sdpa" in names[kernel]:
            continue
        mine = launches.kernel == kernel
        seconds = float((launches.end_ns - launches.start_ns)[mine].mean()) / 1e9
        rate = WEIGHT * known.amounts[row, known.metrics.index(TENSOR)] / seconds
        error = WEIGHT * known.errors[row, known.metrics.index(TENSOR)] / seconds
        assert rate - 4 * error < 0.05 * 1.07e15, names[kernel]  # what counts as evidence


def test_all_traffic_is_explained(found):
    assert found[-1].foreign_share == 0
    assert not found[-1].contended.any()
    assert found[-1].traffic.explained[0] == pytest.approx(1, abs=0.01)
