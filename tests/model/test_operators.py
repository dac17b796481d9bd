"""The formulas against numbers worked out by hand."""

import subprocess
import sys

import pytest

from roofmon.model import operators

FP32 = ("vector", "fp32")


def test_vector_add() -> None:
    work = operators.vector_add(1000)
    assert dict(work.flops) == {FP32: 1000}
    assert work.bytes == 12_000  # two reads and a write of 4 kB
    assert operators.vector_add(1000, "fp64").bytes == 24_000


def test_triad_counts_an_fma_as_two() -> None:
    work = operators.triad(1000, "fp64")
    assert dict(work.flops) == {("vector", "fp64"): 2000}
    assert work.bytes == 24_000


def test_reduce_sum() -> None:
    work = operators.reduce_sum(1 << 26)
    assert work.total_flops == 67_108_864
    assert work.bytes == 268_435_460


def test_softmax() -> None:
    work = operators.softmax(16_384, 4096)
    assert work.total_flops == 335_544_320  # 5 × 2²⁶
    assert work.bytes == 536_870_912  # 2 × 4 × 2²⁶


def test_gemm() -> None:
    work = operators.gemm(2, 3, 4)
    assert dict(work.flops) == {FP32: 48}
    assert work.bytes == 4 * (8 + 12 + 6)
    large = operators.gemm(8192, 8192, 8192, "bf16", "tensor")
    assert dict(large.flops) == {("tensor", "bf16"): 1_099_511_627_776}
    assert large.bytes == 402_653_184


def test_gemv_reads_each_weight_once() -> None:
    one = operators.gemv(3, 5)
    assert (one.total_flops, one.bytes) == (30, 4 * (15 + 5 + 3))
    chain = operators.gemv(2048, 2048, layers=8)
    assert chain.total_flops == 67_108_864  # 8 × 2 × 2²²
    assert chain.bytes == 134_234_112  # 8 × 2²² weights and 2 × 2048 values, 4 bytes each
    with pytest.raises(ValueError, match="square"):
        operators.gemv(3, 5, layers=2)


def test_attention_written_out_moves_the_scores_four_times() -> None:
    fused = operators.attention(2, 8, 1024, 64, fused=True)
    unfused = operators.attention(2, 8, 1024, 64, fused=False)
    # 16 heads: 4 × 2²⁰ × 64 FLOP for the products, 5 × 2²⁰ for the softmax
    assert fused.total_flops == unfused.total_flops == 16 * (268_435_456 + 5_242_880)
    assert fused.bytes == 16 * 1_048_576  # four 1024 × 64 matrices of 4 bytes
    assert unfused.bytes == 16 * (1_048_576 + 16_777_216)


def test_unfused_attention_is_the_sum_of_its_three_operators() -> None:
    parts = [
        operators.gemm(512, 512, 64),
        operators.softmax(512, 512),
        operators.gemm(512, 64, 512),
    ]
    whole = operators.attention(1, 1, 512, 64, fused=False)
    assert whole.total_flops == sum(part.total_flops for part in parts)
    assert whole.bytes == sum(part.bytes for part in parts)


def test_attention_on_the_tensor_pipe_leaves_the_softmax_to_the_vector_pipe() -> None:
    work = operators.attention(1, 1, 16, 8, fused=True, precision="fp16", unit="tensor")
    assert dict(work.flops) == {("tensor", "fp16"): 4 * 256 * 8, FP32: 5 * 256}
    assert work.bytes == 4 * 16 * 8 * 2


def test_formula_is_for_people() -> None:
    assert "2·2·3·4 FLOP" in operators.gemm(2, 3, 4).formula
    assert "exp (as one)" in operators.softmax(2, 3).formula


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None, "8", float("nan")])
def test_sizes_that_make_no_sense(size: object) -> None:
    with pytest.raises(ValueError, match=r"^gemm: n must be a positive integer, not [^\n]+$"):
        operators.gemm(4, size, 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="softmax: cols"):
        operators.softmax(4, size)  # type: ignore[arg-type]


def test_names_that_are_not_known() -> None:
    with pytest.raises(ValueError, match="triad: unknown precision 'fp31', known: fp64, fp32"):
        operators.triad(8, "fp31")
    with pytest.raises(ValueError, match="gemm: unit must be 'vector' or 'tensor', not 'mma'"):
        operators.gemm(8, 8, 8, unit="mma")


def test_needs_only_the_standard_library() -> None:
    code = (
        "import sys, roofmon.model.operators;"
        "bad = {'numpy', 'msgspec', 'psutil'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=20).returncode == 0
