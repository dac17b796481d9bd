"""The roofline formula: where roofs meet, which roof is chosen, floors of mixed pipes, clocks."""

import pytest
from builders import H200, bandwidth, compute, roofline
from hypothesis import given
from hypothesis import strategies as st

from roofmon.model.roofline import (
    NO_ROOFS,
    Pipe,
    concurrency_limited_bandwidth,
    launch_limited_flops,
    pipe_label,
    time_floor_s,
)

BF16 = Pipe("tensor", "bf16")
FP32 = Pipe("vector", "fp32")

rates = st.floats(1e6, 1e18)
intensities = st.floats(1e-6, 1e6)


@given(memory=rates, peak=rates, first=intensities, second=intensities)
def test_attainable_never_falls_as_intensity_rises(
    memory: float, peak: float, first: float, second: float
) -> None:
    roofs = roofline(bandwidth(memory), compute(peak))
    low, high = sorted((first, second))
    at_low, at_high = (roofs.attainable(x, "dram", FP32) for x in (low, high))
    assert at_low is not None
    assert at_high is not None
    assert 0 < at_low <= at_high <= peak


@given(memory=rates, peak=rates)
def test_both_roofs_meet_at_the_ridge(memory: float, peak: float) -> None:
    roofs = roofline(bandwidth(memory), compute(peak))
    ridge = roofs.ridge("dram", FP32)
    assert ridge is not None
    assert ridge * memory == pytest.approx(peak)
    assert roofs.attainable(ridge * 0.5, "dram", FP32) == pytest.approx(peak * 0.5)
    assert roofs.attainable(ridge * 2, "dram", FP32) == peak


def test_attainable_by_hand() -> None:
    # 118 FLOP/byte × 4.39 TB/s = 518.02 TFLOP/s, under the 753 of the pipe.
    assert H200.attainable(118, "dram", BF16) == pytest.approx(518.02e12)
    assert H200.attainable(1000, "dram", BF16) == 753e12
    assert H200.ridge("dram", BF16) == pytest.approx(171.526, abs=1e-3)


def test_one_roof_alone_is_the_limit_and_no_roof_is_unknown() -> None:
    assert roofline(bandwidth(1e9)).attainable(3.0, "dram", FP32) == 3e9
    assert roofline(compute(7e9)).attainable(3.0, "dram", FP32) == 7e9
    assert NO_ROOFS.attainable(3.0, "dram", FP32) is None
    assert roofline(bandwidth(1e9)).ridge("dram", FP32) is None
    assert NO_ROOFS.bandwidth("dram") is None
    assert NO_ROOFS.compute(FP32) is None


def test_the_roof_is_the_best_of_the_probes_and_measured_before_bound() -> None:
    copy, triad = bandwidth(3.985e12), bandwidth(4.393e12)
    physical = bandwidth(4.814e12, regime="bound")
    assert roofline(copy, physical, triad).bandwidth("dram") == triad
    assert roofline(physical).bandwidth("dram") == physical


def test_bytes_counted_differently_have_their_own_roof() -> None:
    requested = bandwidth(9.6e12, "l2")
    counted = bandwidth(14.4e12, "l2", counts="lts__t_bytes")
    roofs = roofline(requested, counted)
    assert roofs.bandwidth("l2") == requested
    assert roofs.bandwidth("l2", "lts__t_bytes") == counted
    assert roofs.bandwidth("l2", "l1tex__t_bytes") is None
    assert (requested.name, counted.name) == ("L2", "L2 sampled")
    peaked = roofline(requested, counted, compute(72e12))
    assert peaked.ridge("l2", FP32) == pytest.approx(7.5)
    assert peaked.ridge("l2", FP32, "lts__t_bytes") == pytest.approx(5.0)
    assert peaked.attainable(1.0, "l2", FP32, "lts__t_bytes") == pytest.approx(14.4e12)


def test_a_tensor_roof_is_the_gemm_and_a_vector_roof_the_issue_rate() -> None:
    gemm, issue = compute(51.9e12), compute(66e12, regime="issue")
    assert roofline(gemm, issue).compute(FP32) == issue
    assert roofline(gemm).compute(FP32) == gemm
    assert H200.compute(BF16) == compute(753e12, "tensor/bf16", clock_hz=1.755e9)
    assert H200.compute(BF16, "issue") == compute(
        866e12, "tensor/bf16", regime="issue", clock_hz=1.755e9
    )
    assert H200.compute(BF16, "bound") is None


def test_floor_of_a_kernel_on_two_pipes_and_two_levels() -> None:
    # 753 GFLOP bf16: 1 ms. 32.5 GFLOP fp32: 0.5 ms. 2.195 GB DRAM: 0.5 ms. 19.2 GB L2: 2 ms.
    flops = {BF16: 753e9, FP32: 32.5e9}
    floor, serial = time_floor_s(H200, flops, {"dram": 2.195e9, "l2": 19.2e9})
    assert floor == pytest.approx(2e-3)
    assert serial == pytest.approx(1.5e-3)
    floor, serial = time_floor_s(H200, flops, {"dram": 2.195e9})
    assert floor == pytest.approx(1e-3), "with overlap the longest part is the floor, not the sum"
    assert serial == pytest.approx(1.5e-3)


def test_floor_leaves_out_what_has_no_roof() -> None:
    assert time_floor_s(NO_ROOFS, {FP32: 1.0}, {"dram": 1.0}) == (None, None)
    floor, serial = time_floor_s(H200, {Pipe("vector", "fp64"): 1e15}, {"dram": 4.39e9})
    assert (floor, serial) == (pytest.approx(1e-3), None)


def test_rates_per_clock() -> None:
    # 132 SM × 256 FLOP = 33,792 FLOP per clock: 66.9 TFLOP/s at 1.98 GHz.
    roof = compute(66.90816e12, regime="issue", clock_hz=1.98e9)
    roofs = roofline(roof)
    assert roof.per_clock == pytest.approx(33_792)
    assert roofs.at_clock(roof, 1.5e9) == pytest.approx(50.688e12)
    assert roofs.at_clock(roof, 2.1e9, bound=66.9e12) == 66.9e12
    assert roofs.at_clock(compute(1e12), 1.5e9) is None, "its own clock is not known"


@pytest.mark.parametrize(("level", "expected"), [("dram", 4e12), ("l2", 4e12), ("l1", 2e12)])
def test_only_l1_bandwidth_follows_the_sm_clock(level: str, expected: float) -> None:
    roof = bandwidth(4e12, level, clock_hz=2e9)
    assert roofline(roof).at_clock(roof, 1e9) == expected


def test_latency_region() -> None:
    # 2 MFLOP every 4 µs can be no more than 500 GFLOP/s.
    assert launch_limited_flops(2e6, 4e-6) == pytest.approx(500e9)
    # 64 KiB in flight over 0.5 µs.
    assert concurrency_limited_bandwidth(65_536, 0.5e-6) == pytest.approx(131.072e9)


def test_pipe_names() -> None:
    assert Pipe.parse("tensor/bf16") == BF16
    assert Pipe.parse(FP32.key) == FP32
    for wrong in ("bf16", "tensor/", "cuda/fp32", "tensor/fp99", ""):
        with pytest.raises(ValueError, match="no such pipe"):
            Pipe.parse(wrong)
    assert pipe_label(FP32) == "fp32"
    assert pipe_label(BF16) == "bf16"
    assert pipe_label(Pipe("vector", "fp16")) == "fp16 vector"
    assert pipe_label(Pipe("tensor", "fp64")) == "fp64 tensor"
