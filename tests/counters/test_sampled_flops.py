"""FLOPs from counts: exact where all is known, else a range; and nothing from too little evidence."""

import pytest

from roofmon.counters.flops import FlopRange, sampled_flops
from roofmon.counters.precision import Computes
from roofmon.counters.weights import DMMA, FMA_HEAVY, FMA_LITE, FP64_PIPE, TENSOR
from roofmon.model.roofline import Pipe

BF16, FP16, TF32, FP8, INT8, FP64 = (
    Pipe("tensor", name) for name in ("bf16", "fp16", "tf32", "fp8", "int8", "fp64")
)
NOTHING = Computes()
BUSY = 1e6  # SM cycles in which a pipe that counts 4 a cycle may count 4e6


def only(
    amounts: dict[str, float], told: Computes = NOTHING, cycles: float | None = BUSY
) -> FlopRange:
    (found,) = sampled_flops("9.0", amounts, cycles, told)
    return found


@pytest.mark.parametrize(
    ("pipe", "weight"), [(BF16, 1024), (FP16, 1024), (TF32, 512), (FP8, 2048), (INT8, 2048)]
)
def test_wgmma_of_known_precision_is_exact(pipe, weight):
    found = only({TENSOR: 3e6}, Computes(pipe, "wgmma"))
    assert (found.pipe, found.low, found.high, found.reason) == (
        pipe,
        3e6 * weight,
        3e6 * weight,
        "",
    )


def test_mma_sync_counts_half_as_much_again():
    found = only({TENSOR: 3e6}, Computes(BF16, "mma.sync"))
    assert found.low == found.high == 2e6 * 1024


def test_an_unknown_instruction_leaves_a_factor_of_one_and_a_half():
    found = only({TENSOR: 3e6}, Computes(BF16))
    assert (found.low, found.high) == (2e6 * 1024, 3e6 * 1024)
    assert "wgmma" in found.reason


def test_an_unknown_precision_leaves_a_range_over_the_candidates():
    found = only({TENSOR: 3e6})
    assert found.pipe is None
    assert set(found.candidates) == {BF16, FP16, TF32, FP8, INT8}
    assert (found.low, found.high) == (2e6 * 512, 3e6 * 2048)
    assert "precision" in found.reason
    # A name that tells the instruction but not the type narrows it: 512 … 2048.
    found = only({TENSOR: 3e6}, Computes(None, "wgmma"))
    assert (found.low, found.high) == (3e6 * 512, 3e6 * 2048)


def test_precisions_that_count_alike_leave_one_number():
    found = only({TENSOR: 3e6}, Computes(None, "wgmma", (BF16, FP16)))
    assert (found.pipe, found.low, found.high) == (BF16, 3e6 * 1024, 3e6 * 1024)
    assert (found.candidates, found.reason) == ((BF16, FP16), "bf16 or fp16, which count alike")
    faint = only({TENSOR: 120_000.0}, Computes(None, "mma.sync", (BF16, FP16)))
    assert (faint.pipe, faint.low, faint.high) == (BF16, 0.0, 80e3 * 1024)
    assert faint.upper_bound


def test_a_counter_of_one_precision_needs_no_name():
    assert only({DMMA: 3e6}).pipe == FP64
    assert only({DMMA: 3e6}).low == only({DMMA: 3e6}).high == 3e6 * 64


def test_what_the_counter_of_fp64_counts_is_not_counted_twice():
    assert only({TENSOR: 3.01e6, DMMA: 3e6}) == only({DMMA: 3e6})
    both = sampled_flops("9.0", {TENSOR: 3e6, DMMA: 1e6}, BUSY, Computes(BF16, "wgmma"))
    assert {f.pipe: f.high for f in both} == {BF16: 2e6 * 1024, FP64: 1e6 * 64}


def test_int8_by_mma_sync():
    assert only({TENSOR: 1e6}, Computes(INT8, "mma.sync")).high == pytest.approx(
        1365.33e6, rel=1e-5
    )


def test_little_activity_is_no_evidence():
    # 5 % of 4 counts a cycle in 1e6 cycles is 200,000.
    assert sampled_flops("9.0", {TENSOR: 199_000.0}, BUSY, Computes(None, "wgmma")) == ()
    assert only({TENSOR: 201_000.0}, Computes(None, "wgmma")).low > 0


def test_little_activity_of_a_kernel_that_says_what_it_does_is_an_upper_bound():
    found = only({TENSOR: 120_000.0}, Computes(BF16, "wgmma"))
    assert (found.pipe, found.low, found.high) == (BF16, 0.0, 120e3 * 1024)
    assert found.upper_bound
    assert "3.0% busy" in found.reason
    assert sampled_flops("9.0", {TENSOR: 7_000.0}, BUSY, Computes(BF16, "wgmma")) == ()
    assert not only({TENSOR: 201_000.0}, Computes(BF16, "wgmma")).upper_bound


def test_vector_instructions_are_an_upper_bound():
    found = only({FMA_HEAVY: 100.0, FMA_LITE: 50.0})
    assert found.pipe == Pipe("vector", "fp32")
    assert (found.low, found.high, found.upper_bound) == (0.0, 150 * 64, True)
    assert only({FP64_PIPE: 10.0}).high == 320


def test_half_of_the_fma_pipes_is_no_bound():
    assert sampled_flops("9.0", {FMA_HEAVY: 100.0}, BUSY, Computes()) == ()


@pytest.mark.parametrize("capability", ["8.0", "8.9", "10.0", "12.0"])
def test_architectures_without_measured_weights_are_unknown(capability):
    assert (
        sampled_flops(capability, {TENSOR: 3e6, FMA_HEAVY: 1.0, FMA_LITE: 1.0}, BUSY, Computes())
        == ()
    )


def test_tensor_and_vector_work_stand_side_by_side():
    found = sampled_flops("9.0", {TENSOR: 3e6, FMA_HEAVY: 1.0, FMA_LITE: 1.0}, BUSY, Computes(BF16))
    assert [f.pipe.key for f in found] == ["tensor/bf16", "vector/fp32"]
