"""Attribution on a recording of an H200, against what each workload must move and compute, and against ncu.

What a workload must move is worked out from its shapes (`truth`); what it moves more than that (re-reads of
a GEMM's operands) is told by Nsight Compute, which replays each kernel alone with its caches flushed.
"""

import numpy as np
import pytest
from recording import (
    KERNELS,
    attribute,
    in_order,
    kernel_bytes,
    load_excerpt,
    load_whole,
    moved,
    ncu_bytes,
    needs_recording,
    row_of,
    truth,
    window,
)

from roofmon.counters.attribution import Attributor
from roofmon.counters.flops import sampled_flops
from roofmon.counters.precision import computes

SMS = 132

whole = [
    pytest.mark.slow,
    needs_recording("pm_200us.npz", "trace.csv.gz", "names.tsv", "truth.jsonl"),
]
FACTORS = pytest.mark.parametrize("factor", [1, 5], ids=["0.2 ms", "1 ms"])
PARTS = pytest.mark.parametrize(
    "load",
    [pytest.param(load_excerpt, id="excerpt"), pytest.param(load_whole, marks=whole, id="whole")],
)
MOVES_KNOWN_BYTES = {
    "vector_add_fp32": 0.03,
    "reduce_sum_fp32": 0.03,
    "softmax_fp32": 0.03,
    "attention_standard_bf16": 0.03,
    "attention_flash_bf16": 0.08,
    "decode_eager_bf16": 0.03,
    "decode_graph_bf16": 0.03,
    "transpose_copy_fp32": 0.03,
}
GEMV_BYTES = 2 * 4096 * 4096  # the weights; the vectors are 16 kB


@pytest.fixture(scope="module")
def known():
    """What a session knew after each workload, by loader and factor; each is worked out once."""
    found = {}

    def get(load, factor):
        if (load, factor) not in found:
            found[load, factor] = in_order(load(), factor)
        return found[load, factor]

    return get


@PARTS
@FACTORS
def test_workloads_move_what_they_must(known, load, factor):
    recording = load()
    for phase, bound in MOVES_KNOWN_BYTES.items():
        bytes_moved = moved(known(load, factor)[phase], recording, phase)
        assert bytes_moved == pytest.approx(truth(recording, phase)["bytes"], rel=bound), phase


@PARTS
@FACTORS
def test_a_10_us_kernel_is_told_from_its_neighbours(known, load, factor):
    recording = load()
    for phase in ("decode_eager_bf16", "decode_graph_bf16"):
        found = known(load, factor)[phase]
        bound = 0.04 if factor == 1 else 0.06
        assert kernel_bytes(found, recording, "splitK_NNT") == pytest.approx(GEMV_BYTES, rel=bound)
        # Its neighbours move next to nothing, and their own errors say that no more is known.
        for part in ("splitKreduce", "silu_kernel"):
            row = row_of(found, recording, part)
            assert found.amounts[row, 0] <= 0.06 * GEMV_BYTES + 2 * found.errors[row, 0]


@PARTS
@FACTORS
def test_flops_of_gemms(known, load, factor):
    recording = load()
    for phase in ("gemm_bf16", "gemm_fp16", "gemm_tf32", "gemm_fp8", "gemm_fp32"):
        found, (part,) = known(load, factor)[phase], KERNELS[phase]
        amounts = found.amounts[row_of(found, recording, part)]
        counts = dict(zip(found.metrics, amounts.tolist(), strict=True))
        name = next(name for name, _, _ in recording[3] if part in name)
        cycles = SMS * counts["sm__cycles_elapsed.avg"]
        by_pipe = {f.pipe.key: f for f in sampled_flops("9.0", counts, cycles, computes(name))}
        pipe = "vector/fp32" if phase == "gemm_fp32" else f"tensor/{phase.removeprefix('gemm_')}"
        expected = truth(recording, phase)["flops"]
        assert by_pipe[pipe].high == pytest.approx(expected, rel=0.01), phase
        assert by_pipe[pipe].upper_bound == (phase == "gemm_fp32")
        if phase != "gemm_fp32":
            assert by_pipe[pipe].low == by_pipe[pipe].high


@PARTS
@FACTORS
def test_flash_attention_shows_the_cycles_of_mma_sync(known, load, factor):
    recording = load()
    found = known(load, factor)["attention_flash_bf16"]
    amounts = found.amounts[row_of(found, recording, "flash_fwd_kernel")]
    counts = dict(zip(found.metrics, amounts.tolist(), strict=True))
    name = next(name for name, _, _ in recording[3] if "flash_fwd_kernel" in name)
    cycles = SMS * counts["sm__cycles_elapsed.avg"]
    tensor = sampled_flops("9.0", counts, cycles, computes(name))[0]
    assert tensor.pipe.key == "tensor/bf16"
    assert tensor.low == pytest.approx(truth(recording, "attention_flash_bf16")["flops"], rel=0.01)


@PARTS
@FACTORS
def test_kernels_without_tensor_instructions_have_no_tensor_flops(known, load, factor):
    recording = load()
    for phase in ("softmax_fp32", "transpose_copy_fp32", "reduce_sum_fp32"):
        found, (part,) = known(load, factor)[phase], KERNELS[phase]
        amounts = found.amounts[row_of(found, recording, part)]
        counts = dict(zip(found.metrics, amounts.tolist(), strict=True))
        name = next(name for name, _, _ in recording[3] if part in name)
        cycles = SMS * counts["sm__cycles_elapsed.avg"]
        pipes = [f.pipe.unit for f in sampled_flops("9.0", counts, cycles, computes(name))]
        assert "tensor" not in pipes, phase


@PARTS
@FACTORS
def test_nearly_all_traffic_is_explained_and_nothing_is_called_foreign(known, load, factor):
    for phase, found in known(load, factor).items():
        assert found.traffic.explained[0] == pytest.approx(1, abs=0.01), phase
        assert found.foreign_share < 0.02, phase
        assert not found.contended.any(), phase


@pytest.mark.slow
@needs_recording("pm_200us.npz", "trace.csv.gz", "names.tsv", "truth.jsonl", "seedwl_raw.csv.gz")
@FACTORS
def test_gemms_move_what_ncu_counts(factor):
    # ncu flushes the caches before each kernel and stops counting at its end: what the kernel left dirty
    # in L2 is missing (12 MB of the 67 MB that the FP32 and TF32 GEMMs write, 3 % of their traffic).
    # Running one after the other, each kernel writes all of it back, its predecessor's in place of its own.
    recording = load_whole()
    written = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4, "fp64": 8, "fp8": 2}
    for precision, size in written.items():
        phase = f"gemm_{precision}"
        found, (part,) = attribute(recording, phase, factor), KERNELS[phase]
        total, read = ncu_bytes(part)
        mine = found.amounts[row_of(found, recording, part), :2]
        bound = 0.04 if size == 4 else 0.03
        assert mine.sum() == pytest.approx(total, rel=bound), phase
        assert mine[1] == pytest.approx(size * 4096**2, rel=0.02), phase
        if precision != "fp8":  # whose 34 MB of operands stay in L2 when it is not flushed
            assert mine[0] == pytest.approx(read, rel=0.01), phase


@pytest.mark.slow
@needs_recording("pm_200us.npz", "trace.csv.gz", "names.tsv", "truth.jsonl")
@FACTORS
def test_each_workload_by_itself(factor):
    recording = load_whole()
    for phase, bound in MOVES_KNOWN_BYTES.items():
        found = attribute(recording, phase, factor)
        expected = truth(recording, phase)["bytes"]
        assert moved(found, recording, phase) == pytest.approx(expected, rel=bound), phase
        assert abs(found.clock.offset_ns) < 15_000, phase
        assert (found.groups == -1)[:, 0].any(), phase
        assert np.isfinite(found.errors).all(), phase


def test_idle_time_shows_that_another_process_moves_nothing():
    # 35 % of this workload's time is between kernels, in which DRAM is quiet.
    samples, launches = window(load_excerpt(), "decode_eager_bf16")
    found = Attributor(samples.metrics).window(samples, launches, foreign=True)
    assert not found.contended.any()
    assert found.traffic.untraced[0] < 0.01 * found.traffic.device[0]
    # Under 2 % of idle time, in gaps of 3 µs, show nothing of the kind.
    samples, launches = window(load_excerpt(), "vector_add_fp32")
    assert Attributor(samples.metrics).window(samples, launches, foreign=True).contended.all()
