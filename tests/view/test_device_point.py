"""The device's own point: Σ FLOP/s over pipes ÷ DRAM byte/s, why it is missing, and where it was."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from builders import BOUNDS, NOW_NS, bandwidth, device, gpu, roofline, snapshot

from roofmon.chart import render
from roofmon.chart.scene import Trail
from roofmon.model.device import DeviceSample
from roofmon.model.roofline import Pipe
from roofmon.model.snapshot import Snapshot
from roofmon.view import History, ViewState, build_view, device_point, point_text, scene
from roofmon.view.device_point import MARK, extended

GEMM = {"dram": 2.5e12, "vector/fp32": 20e12, "tensor/bf16": 480e12, "vector/fp64": 0.0}


def test_intensity_is_the_sum_over_pipes_by_dram_bytes() -> None:
    point = device_point(gpu(rates=GEMM))
    assert point is not None
    assert (point.flops, point.bytes_per_s, point.intensity) == (500e12, 2.5e12, 200.0)
    assert point.place == (200.0, 500e12)
    assert point.main_pipe == Pipe("tensor", "bf16")
    assert not point.upper_bound  # 4 % in vector pipes
    assert point_text(point) == "500 TFLOP/s bf16 at 200 FLOP/byte"
    vector = device_point(gpu(rates={"dram": 1e12, "vector/fp32": 51e12}))
    assert vector is not None
    assert vector.upper_bound
    assert point_text(vector) == "≤51.0 TFLOP/s at 51.0 FLOP/byte"
    integer = device_point(gpu(rates={"dram": 1e12, "tensor/int8": 500e12, "tensor/bf16": 0.0}))
    assert integer is not None
    assert point_text(integer) == "500 TOP/s int8 at 500 OP/byte"


def test_a_limited_clock_reads_high_unless_it_was_counted() -> None:
    capped = {"rates": GEMM, "event_reasons": ("power cap",), "clock_hz": 1.525e9}
    told, counted = device_point(gpu(**capped)), device_point(gpu(mean_clock_hz=1.377e9, **capped))
    assert told is not None
    assert counted is not None
    assert (told.upper_bound, counted.upper_bound) == (True, False)


@pytest.mark.parametrize(
    ("rates", "why"),
    [
        (None, "no GPM before Hopper"),
        ({"dram": 0.0, "vector/fp32": 0.0}, "idle"),
        ({"dram": 2e12, "vector/fp32": 0.0}, "no FLOPs now"),
        ({"dram": 0.0, "vector/fp32": 1e12}, "no DRAM traffic now"),
        ({"vector/fp32": 1e12}, "no counter of its DRAM"),
        ({"dram": 1e12}, "no counter of its pipes"),
        ({"dram": 1e12, "vector/fp1": 1e12, "x": 1.0}, "no counter of its pipes"),
    ],
)
def test_a_point_that_is_missing_says_why(rates: Mapping[str, float] | None, why: str) -> None:
    found = gpu(rates=rates, missing={"rates": "no GPM before Hopper"})
    point = device_point(found)
    assert point is not None
    assert (point.place, point.why) == (None, why)
    assert point_text(point) == f"no point: {why}"
    assert scene(build_view(snapshot(devices=[found]), ViewState())).points == ()


def test_lost_and_other_devices() -> None:
    lost = device_point(gpu(rates=GEMM, lost="fell off the bus"))
    assert lost is not None
    assert (lost.place, lost.why) == (None, "fell off the bus")
    assert device_point(device()) is None, "a CPU has no such counters"
    assert device_point(replace(gpu(), sample=None)) is None


def moment(seconds: float, flops: float = 1e14, started: int = 1) -> Snapshot:
    at = NOW_NS + round(seconds * 1e9)
    made = gpu(rates={"dram": 1e12, "tensor/bf16": flops}, time_unix_ns=at)
    return snapshot(devices=[made], started_unix_ns=started)


def trail(history: History) -> list[tuple[float, float]]:
    return list(history.trail("GPU-00000000-test"))


def test_history_holds_a_place_a_second_for_a_minute() -> None:
    history = History()
    for tick in range(400):  # 200 s at 2 Hz
        history = extended(history, moment(tick / 2, 1e12 * (tick + 1)))
    kept = trail(history)
    assert len(kept) == 60
    # The last at 199 s, tick 398; one a second before it.
    assert kept[-1] == (399.0, 399e12)
    assert kept[0] == (399.0 - 2 * 59, (399 - 2 * 59) * 1e12)


def test_history_is_pure_and_idempotent() -> None:
    first = extended(History(), moment(0))
    again = extended(first, moment(0))
    assert trail(first) == trail(again) == [(100.0, 1e14)]
    assert trail(extended(first, moment(2, 2e14))) == [(100.0, 1e14), (200.0, 2e14)]
    assert len(trail(first)) == 1


def test_history_forgets_the_old_and_begins_anew_when_time_runs_back() -> None:
    history = extended(extended(History(), moment(0)), moment(30, 2e14))
    assert trail(extended(history, moment(75, 3e14))) == [(200.0, 2e14), (300.0, 3e14)]
    assert trail(extended(history, moment(10, 3e14))) == [(300.0, 3e14)]
    idle = replace(moment(40), devices=(gpu(time_unix_ns=NOW_NS + 40 * 10**9),))
    assert trail(extended(history, idle)) == trail(history), "a gap leaves the trail"


def test_point_and_trail_are_drawn() -> None:
    state = ViewState()
    for seconds, flops in ((0, 1e14), (2, 2e14), (4, 4e14)):
        view = build_view(moment(seconds, flops), state)
        state = replace(state, history=view.history)
    found = scene(view)
    (point,) = found.points
    assert (point.intensity, point.flops, point.label) == (400.0, 4e14, MARK)
    assert found.trails == (Trail(((100.0, 1e14), (200.0, 2e14), (400.0, 4e14))),)
    for unicode, mark in ((True, "◉"), (False, "@")):
        canvas = render(scene(view, unicode), 90, 20)
        row, column = canvas.point_cells[MARK]
        assert canvas.characters[row][column] == mark
        assert any(role == "trail" for runs in canvas.roles for *_, role in runs)


def test_only_the_trail_of_the_device_shown() -> None:
    other = gpu(uuid="GPU-b", index=1, rates={"dram": 1e12, "tensor/bf16": 1e12})
    both = replace(moment(0), devices=(*moment(0).devices, other))
    history = extended(History(), both)
    assert history.trail("GPU-b") == ((1.0, 1e12),)
    assert history.trail("GPU-none") == ()


def test_ridge_and_lines_are_those_of_the_pipe_at_work() -> None:
    view = build_view(snapshot(devices=[gpu(rates=GEMM)]), ViewState())
    assert {r.name for r in scene(view).roofs if r.emphasised} == {"DRAM", "bf16"}


def test_sample_without_a_roofline_still_has_its_point() -> None:
    made = gpu(roofline(bandwidth(4.39e12)), rates=GEMM)
    assert len(scene(build_view(snapshot(devices=[made]), ViewState())).points) == 1
    assert isinstance(made.sample, DeviceSample)
    assert BOUNDS.bandwidth("dram") is not None
