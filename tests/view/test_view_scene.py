"""The chart of a view: roofs, points, the selected kernel's latency limit, arrows, messages."""

from dataclasses import replace

import pytest
from builders import (
    COPY,
    CPU,
    GEMM,
    H200,
    SNAPSHOT,
    Kernel,
    bandwidth,
    compute,
    device,
    roofline,
    snapshot,
)

from roofmon.chart import render
from roofmon.chart.scene import Arrow
from roofmon.model.roofline import NO_ROOFS, Latency
from roofmon.model.session import Progress
from roofmon.view import ViewState, build_view, scene


def test_scene_of_roofs_and_points() -> None:
    found = scene(build_view(SNAPSHOT, ViewState()))
    roofs = {roof.label: roof for roof in found.roofs}
    assert list(roofs) == ["DRAM 4.39T", "L2 9.6T", "bf16 753T", "bf16 866T", "fp32 65T"]
    assert [label for label, roof in roofs.items() if roof.emphasised] == [
        "DRAM 4.39T",
        "bf16 753T",
    ]
    assert roofs["bf16 866T"].line == "dotted"
    assert {p.label for p in found.points} == {"1", "2", "3", "4"}
    gemm = found.points[0]
    assert gemm.intensity == pytest.approx(68.7e9 / 580e6)
    assert gemm.flops == pytest.approx(68.7e9 / 164.8e-6)
    assert gemm.selected
    assert gemm.role == "point.memory"
    copy = found.points[2]
    assert (copy.intensity, copy.flops) == (None, None)
    assert found.message is None
    assert found.unicode
    assert not scene(build_view(SNAPSHOT, ViewState()), unicode=False).unicode


def test_the_selected_kernel_is_on_the_chart_without_a_number_too() -> None:
    kernels = [Kernel(str(i), flops={"vector/fp32": 1e9}, bytes={"dram": 1e9}) for i in range(30)]
    view = build_view(snapshot(*kernels), ViewState(selected=30, points=9))
    points = scene(view).points
    assert len(points) == 10
    assert points[-1].selected
    assert render(scene(view), 80, 15).point_cells[points[-1].label]


def test_links_are_roofs_only_of_kernels_that_use_them() -> None:
    roofs = roofline(bandwidth(20e9), bandwidth(5e9, "pcie_h2d"), compute(1e12))
    computing, copying = Kernel(bytes={"dram": 1e6}), Kernel(bytes={"pcie_h2d": 1e6})
    for kernel, expected in ((computing, {"DRAM", "fp32"}), (copying, {"DRAM", "PCIe→", "fp32"})):
        view = build_view(snapshot(kernel, devices=[device(roofs)]), ViewState())
        assert {roof.name for roof in scene(view).roofs} == expected


def test_roofs_at_the_present_clock() -> None:
    roofs = roofline(bandwidth(4e12), compute(60e12, clock_hz=2e9))
    running = device(roofs, clock_hz=1.5e9)
    view = build_view(snapshot(GEMM, devices=[running]), ViewState(show_current_clock=True))
    (line,) = (roof for roof in scene(view).roofs if roof.line == "dashed")
    assert line.value == pytest.approx(45e12)
    assert line.label == "fp32 45T at 1500 MHz"
    # No clock, no line.
    for silent in (device(roofs), device(roofline(compute(60e12)), clock_hz=1.5e9)):
        view = build_view(snapshot(GEMM, devices=[silent]), ViewState(show_current_clock=True))
        assert all(roof.line == "solid" for roof in scene(view).roofs)


def test_latency_region_of_the_selected_kernel() -> None:
    roofs = roofline(*H200.ceilings, latency=Latency(launch_s=4e-6))
    small = Kernel(median=5e3, flops={"vector/fp32": 2e6}, bytes={"dram": 1e6})
    view = build_view(snapshot(small, COPY, devices=[device(roofs)]), ViewState(selected=1))
    (region,) = scene(view).regions
    assert region.flops == pytest.approx(500e9)
    assert scene(build_view(snapshot(COPY, devices=[device(roofs)]), ViewState())).regions == ()


def test_messages_on_the_chart() -> None:
    assert scene(build_view(snapshot(devices=[]), ViewState())).message
    bare = device(NO_ROOFS)
    message = scene(build_view(snapshot(devices=[bare]), ViewState())).message
    assert message == "no roofs: roofmon calibrate measures them"
    progress = Progress(task="calibrating", device=CPU, done=2, total=6, text="triad")
    busy = replace(bare, progress=progress)
    message = scene(build_view(snapshot(devices=[busy]), ViewState())).message
    assert message == "calibrating 2/6: triad"
    assert scene(build_view(snapshot(), ViewState())).message is None


def test_zoom_is_a_window() -> None:
    assert scene(build_view(SNAPSHOT, ViewState())).window is None
    closer = scene(build_view(SNAPSHOT, ViewState(zoom=2.0, centre=(118.0, 4e14)))).window
    assert closer is not None
    assert closer.x_min < 118 < closer.x_max
    assert closer.x_max / closer.x_min < 1e4


def test_arrows_from_the_baseline() -> None:
    # The same work in half the time: straight up by a factor of two.
    baseline = snapshot(replace(GEMM, median=329_600), COPY)
    view = build_view(SNAPSHOT, ViewState(baseline=baseline, difference=True))
    intensity, rate = 68.7e9 / 580e6, 68.7e9 / 164.8e-6
    assert scene(view).arrows == (
        Arrow(pytest.approx((intensity, rate / 2)), pytest.approx((intensity, rate))),
    )
    unmoved = build_view(SNAPSHOT, ViewState(baseline=SNAPSHOT, difference=True))
    assert scene(unmoved).arrows == ()
