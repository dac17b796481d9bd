"""Positions under a roofline, worked out by hand; the unknown stays unknown."""

import numpy as np
import pytest
from builders import H200, Kernel, Work, bandwidth, compute, roofline, table
from hypothesis import given
from hypothesis import strategies as st

from roofmon.model.position import KernelClass, Positions, aggregate, locate
from roofmon.model.roofline import NO_ROOFS, Roofline
from roofmon.model.work import Provenance


def place(*kernels: Kernel, roofs: Roofline = H200) -> Positions:
    return locate(table(*kernels), roofs)


def test_the_percentage_is_of_the_roof_that_binds() -> None:
    # In 1 ms: 417 GFLOP over 417/118 = 3.534 GB. The memory roof there is 118 × 4.39 = 518 TFLOP/s,
    # 417 / 518.02 = 80.5 %. Of the compute roof it would be 55 %.
    positions = place(Kernel(median=1e6, flops={"tensor/bf16": 417e9}, bytes={"dram": 417e9 / 118}))
    assert positions.fraction[0] == pytest.approx(0.80499, abs=1e-4)
    assert positions.class_of(0) is KernelClass.MEMORY
    roof = positions.roof_of(0)
    assert roof is not None
    assert roof.level == "dram"
    assert positions.headroom[0] == pytest.approx(1.24226, abs=1e-4)
    dram = positions.levels["dram"]
    assert dram.intensity[0] == pytest.approx(118)
    assert dram.attainable[0] == pytest.approx(518.02e12)
    assert dram.achieved[0] == pytest.approx(3.5339e12, rel=1e-4)
    assert dram.percent[0] == pytest.approx(0.80499, abs=1e-4)
    assert positions.flops[0] == pytest.approx(417e12)
    assert positions.floor_ns[0] == pytest.approx(804_990, rel=1e-4)


def test_right_of_the_ridge_the_pipe_binds() -> None:
    # 600 GFLOP in 1 ms over 1 GB: 600 FLOP/byte, ridge 171.5; 600 / 753 = 79.7 %.
    positions = place(Kernel(median=1e6, flops={"tensor/bf16": 600e9}, bytes={"dram": 1e9}))
    assert positions.class_of(0) is KernelClass.COMPUTE
    assert positions.fraction[0] == pytest.approx(600 / 753)
    assert positions.levels["dram"].percent[0] == pytest.approx(600 / 753)


def test_under_half_of_every_roof_nothing_that_is_known_limits_it() -> None:
    slow = Kernel(median=1e6, flops={"tensor/bf16": 300e9}, bytes={"dram": 1e9})
    positions = place(slow)
    assert positions.fraction[0] == pytest.approx(300 / 753)
    assert positions.class_of(0) is KernelClass.LATENCY
    # The same, but half of the L2 roof is reached: 4.8 GB in 1 ms of 9.6 TB/s.
    positions = place(Kernel(flops=slow.flops, bytes={"dram": 1e9, "l2": 4.8e9}))
    assert positions.class_of(0) is KernelClass.MEMORY
    assert positions.main_level(0) == "l2"


def test_mixed_pipes() -> None:
    # 376.5 GFLOP bf16 take 0.5 ms at least, 26 GFLOP fp32 0.4 ms: overlapped 0.5, one by one 0.9.
    positions = place(
        Kernel(median=1e6, flops={"tensor/bf16": 376.5e9, "vector/fp32": 26e9}, bytes={"dram": 1e8})
    )
    assert positions.floor_ns[0] == pytest.approx(0.5e6)
    assert positions.serial_floor_ns[0] == pytest.approx(0.9e6)
    assert positions.flops[0] == pytest.approx(402.5e12)
    roof = positions.roof_of(0)
    assert roof is not None
    assert roof.name == "bf16"
    # Overlapped, this mix can do 402.5 GFLOP in 0.5 ms.
    assert positions.levels["dram"].attainable[0] == pytest.approx(805e12)
    assert positions.levels["dram"].percent[0] == pytest.approx(0.5)


def test_a_pipe_that_another_kernel_uses_adds_nothing() -> None:
    positions = place(
        Kernel(median=1e6, flops={"vector/fp32": 26e9}),
        Kernel(median=1e6, flops={"tensor/bf16": 376.5e9}),
        Kernel(median=1e6),
    )
    assert positions.serial_floor_ns[:2] == pytest.approx([0.4e6, 0.5e6], rel=1e-9)
    assert np.isnan(positions.serial_floor_ns[2])


def test_a_launch_of_no_time_is_unknown_not_infinitely_fast() -> None:
    positions = place(Kernel(median=0.0, flops={"vector/fp32": 1e9}, bytes={"dram": 1e9}))
    for value in (positions.flops, positions.fraction, positions.levels["dram"].achieved):
        assert np.isnan(value[0])
    assert positions.class_of(0) is KernelClass.UNKNOWN


def test_without_flops_bandwidth_places_it() -> None:
    near, far = (Kernel(median=1e6, bytes={"dram": amount}) for amount in (4.2e9, 1e9))
    positions = place(near, far)
    assert positions.fraction == pytest.approx([4.2 / 4.39, 1 / 4.39])
    assert positions.class_of(0) is KernelClass.MEMORY
    assert positions.class_of(1) is KernelClass.UNKNOWN, "FLOPs could be what limits it"
    assert np.isnan(positions.flops).all()
    assert np.isnan(positions.levels["dram"].intensity).all()
    assert positions.levels["dram"].percent == pytest.approx([4.2 / 4.39, 1 / 4.39])


def test_without_bytes_the_pipe_places_it() -> None:
    positions = place(
        Kernel(median=1e6, flops={"vector/fp32": 60e9}),
        Kernel(median=1e6, flops={"vector/fp32": 6e9}),
    )
    assert positions.fraction == pytest.approx([60 / 65, 6 / 65])
    assert positions.class_of(0) is KernelClass.COMPUTE
    assert positions.class_of(1) is KernelClass.UNKNOWN
    assert positions.main_level(0) is None


def test_a_copy_has_no_flops_and_that_is_known() -> None:
    positions = place(Kernel(median=1e6, flops={"vector/fp32": 0.0}, bytes={"dram": 1e9}))
    assert positions.flops[0] == 0
    assert positions.levels["dram"].intensity[0] == 0
    assert positions.fraction[0] == pytest.approx(1 / 4.39)
    assert positions.levels["dram"].percent[0] == pytest.approx(1 / 4.39)
    assert positions.class_of(0) is KernelClass.LATENCY


def test_no_roofs_and_no_work_leave_everything_unknown() -> None:
    known = Kernel(flops={"vector/fp32": 1e9}, bytes={"dram": 1e9})
    for positions in (
        place(known, roofs=NO_ROOFS),
        place(Kernel()),
        place(Kernel(), roofs=NO_ROOFS),
    ):
        assert positions.roof_of(0) is None
        assert positions.class_of(0) is KernelClass.UNKNOWN
        for value in (positions.fraction, positions.headroom, positions.floor_ns, positions.low):
            assert np.isnan(value[0])
    # What was achieved needs no roof.
    positions = place(known, roofs=NO_ROOFS)
    assert positions.flops[0] == pytest.approx(1e12)
    assert positions.levels["dram"].achieved[0] == pytest.approx(1e12)


def test_no_kernels() -> None:
    positions = place()
    assert len(positions.fraction) == 0
    assert len(positions.code) == 0


def test_work_whose_pipe_has_no_roof_counts_as_achieved_only() -> None:
    positions = place(Kernel(median=1e6, flops={"vector/fp64": 1e9}, bytes={"dram": 1e9}))
    assert positions.flops[0] == pytest.approx(1e12)
    assert positions.class_of(0) is KernelClass.UNKNOWN, "the fp64 pipe could be what limits it"


def test_bytes_meet_only_the_roof_that_counts_the_same() -> None:
    roofs = roofline(bandwidth(10e12, "l2"), bandwidth(15e12, "l2", counts="lts__t_bytes"))
    sampled = Work(7.5e9, Provenance.SAMPLED, counts="lts__t_bytes")
    positions = place(
        Kernel(median=1e6, bytes={"l2": [sampled, Work(5e9)]}),
        Kernel(median=1e6, bytes={"l2": 5e9}),
        Kernel(median=1e6, bytes={"l2": Work(5e9, counts="something else")}),
        roofs=roofs,
    )
    assert positions.fraction[:2] == pytest.approx([0.5, 0.5])
    assert np.isnan(positions.fraction[2])
    assert positions.levels["l2"].achieved[2] == pytest.approx(5e12)
    assert positions.levels["l2"].percent[:2] == pytest.approx([0.5, 0.5])


def test_without_a_roof_that_counts_the_same_there_is_no_percentage_at_that_level() -> None:
    sampled = Work(7.5e9, Provenance.SAMPLED, counts="lts__t_bytes")
    work = {"dram": 1e9, "l2": [sampled, Work(5e9)]}
    kernel = Kernel(median=1e6, flops={"vector/fp32": 1e9}, bytes=work)
    roofs = roofline(bandwidth(4e12), bandwidth(10e12, "l2"), compute(60e12))
    positions = place(kernel, roofs=roofs)
    assert np.isnan(positions.levels["l2"].percent[0])
    assert positions.levels["dram"].percent[0] == pytest.approx(0.25)
    assert (positions.main_level(0), positions.fraction[0]) == ("dram", pytest.approx(0.25))


def test_interval_of_the_fraction_joins_roof_and_median() -> None:
    roofs = roofline(bandwidth(100e9, ci_low=90e9, ci_high=125e9))
    positions = place(Kernel(median=1e6, low=0.8e6, high=1.25e6, bytes={"dram": 50e6}), roofs=roofs)
    assert positions.fraction[0] == pytest.approx(0.5)
    assert positions.low[0] == pytest.approx(0.5 * 0.8 / 1.25)
    assert positions.high[0] == pytest.approx(0.5 / 0.9 / 0.8)


amounts = st.floats(1.0, 1e15)
maybe = st.none() | amounts


@given(flops=maybe, moved=maybe, median=st.floats(1e2, 1e10), memory=maybe, peak=maybe)
def test_unknown_never_becomes_zero(
    flops: float | None,
    moved: float | None,
    median: float,
    memory: float | None,
    peak: float | None,
) -> None:
    roofs = roofline(*([bandwidth(memory)] if memory else []), *([compute(peak)] if peak else []))
    kernel = Kernel(
        median=median,
        flops={} if flops is None else {"vector/fp32": flops},
        bytes={} if moved is None else {"dram": moved},
    )
    # A second kernel with all work known makes the columns exist for the first one too.
    full = Kernel(flops={"vector/fp32": 1.0}, bytes={"dram": 1.0})
    positions = place(kernel, full, roofs=roofs)
    assert np.isnan(positions.flops[0]) == (flops is None)
    dram = positions.levels["dram"]
    assert np.isnan(dram.achieved[0]) == (moved is None)
    assert np.isnan(dram.intensity[0]) == (flops is None or moved is None)
    placed = bool((flops and peak) or (moved and memory))
    assert np.isnan(positions.fraction[0]) == (not placed)
    assert (positions.roof_of(0) is not None) == placed
    for value in (positions.fraction, positions.headroom, positions.floor_ns, positions.flops):
        assert not value[0] <= 0
    if positions.class_of(0) in (KernelClass.MEMORY, KernelClass.COMPUTE):
        assert positions.fraction[0] >= 0.5


@given(flops=amounts, moved=amounts, median=st.floats(1e2, 1e10), memory=amounts, peak=amounts)
def test_class_is_the_side_of_the_ridge(
    flops: float, moved: float, median: float, memory: float, peak: float
) -> None:
    roofs = roofline(bandwidth(memory), compute(peak))
    positions = place(
        Kernel(median=median, flops={"vector/fp32": flops}, bytes={"dram": moved}), roofs=roofs
    )
    ridge = peak / memory
    roof = positions.roof_of(0)
    assert roof is not None
    if flops / moved < ridge * (1 - 1e-9):
        assert roof.kind == "bandwidth"
    if flops / moved > ridge * (1 + 1e-9):
        assert roof.kind == "compute"
    assert positions.levels["dram"].percent[0] == pytest.approx(positions.fraction[0])


def test_aggregate_is_the_ratio_of_sums() -> None:
    # 10 launches of 100 FLOP, 10 byte and 1 launch of 100 FLOP, 1000 byte:
    # (1000 + 100) / (100 + 1000) = 1 FLOP/byte; the mean of 10 and 0.1 would be 5.05.
    intensity, rate, traffic = aggregate(
        np.array([100.0, 100.0]),
        np.array([10.0, 1000.0]),
        np.array([10.0, 1.0]),
        np.array([1e9, 1e9]),
    )
    assert intensity == pytest.approx(1.0)
    assert rate == pytest.approx(550)
    assert traffic == pytest.approx(550)


def test_aggregate_with_an_unknown_part_is_unknown() -> None:
    one, unknown = np.array([1.0, 1.0]), np.array([1.0, np.nan])
    assert aggregate(unknown, one, one, one * 1e9) == (None, None, 1.0)
    assert aggregate(one, unknown, one, one * 1e9) == (None, 1.0, None)
    assert aggregate(one, one, one, unknown) == (1.0, None, None)
    nothing = np.empty(0)
    assert aggregate(nothing, nothing, nothing, nothing) == (None, None, None)


def test_all_kernels_against_one_level_or_each_against_its_own() -> None:
    # L2: 4.8 of 9.6 TB/s. DRAM: 1 of 4.39 TB/s.
    positions = place(
        Kernel(median=1e6, flops={"vector/fp32": 1e9}, bytes={"dram": 1e9, "l2": 4.8e9}),
        Kernel(median=1e6, flops={"vector/fp32": 1e9}, bytes={"dram": 2e9}),
        Kernel(median=1e6),
    )
    assert [positions.main_level(row) for row in range(3)] == ["l2", "dram", None]
    own = positions.at(None)
    assert own.intensity[:2] == pytest.approx([1 / 4.8, 1 / 2])
    assert own.achieved[:2] == pytest.approx([4.8e12, 2e12])
    assert own.percent[:2] == pytest.approx([0.5, 2 / 4.39])
    assert np.isnan([own.intensity[2], own.achieved[2], own.attainable[2], own.percent[2]]).all()
    assert positions.at("dram") is positions.levels["dram"]
    assert np.isnan(positions.at("l1").achieved).all()
    assert np.isnan(place(Kernel()).at(None).achieved).all()
    assert len(place().at(None).achieved) == 0
