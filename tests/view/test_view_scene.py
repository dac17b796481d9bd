"""The chart of a view: roofs, points, the selected kernel's latency limit, arrows, messages."""

from dataclasses import replace

import pytest
from builders import (
    BOUNDS,
    COPY,
    CPU,
    GEMM,
    GPU,
    H200,
    SNAPSHOT,
    Kernel,
    Work,
    bandwidth,
    compute,
    device,
    gpu,
    roofline,
    snapshot,
)

from roofmon.chart import render
from roofmon.chart.scene import Arrow
from roofmon.model.roofline import NO_ROOFS, Latency, Roofline
from roofmon.model.session import Progress
from roofmon.model.snapshot import Device
from roofmon.model.work import Provenance
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


def test_a_level_has_the_roof_that_counts_what_its_kernels_count() -> None:
    requested, sampled = bandwidth(9.6e12, "l2"), bandwidth(14.4e12, "l2", counts="lts__t_bytes")
    work = {"vector/fp32": 1e9}
    declared = Kernel("declared", flops=work, bytes={"l2": 4e9}, id=1)
    seen = Work(6e9, Provenance.SAMPLED, counts="lts__t_bytes")
    counted = Kernel("counted", flops=work, bytes={"l2": [seen, Work(4e9)]}, id=2)

    def drawn(*kernels: Kernel, roofs: Roofline) -> dict[str, bool]:
        """Roofs of L2, and whether they are the selected (the last) kernel's."""
        state = ViewState(selected=kernels[-1].id)
        view = build_view(snapshot(*kernels, devices=[device(roofs)]), state)
        return {roof.label: roof.emphasised for roof in scene(view).roofs if "L2" in roof.label}

    both, old = roofline(requested, sampled, compute(1e15)), roofline(requested, compute(1e15))
    assert drawn(declared, roofs=both) == {"L2 9.6T": True}
    assert drawn(counted, roofs=both) == {"L2 sampled 14.4T": True}
    assert drawn(declared, counted, roofs=both) == {"L2 9.6T": False, "L2 sampled 14.4T": True}
    assert drawn(counted, roofs=old) == {"L2 9.6T": False}


def test_roofs_at_the_present_clock() -> None:
    roofs = roofline(bandwidth(4e12), compute(60e12, clock_hz=2e9))
    running = device(roofs, clock_hz=1.5e9)
    view = build_view(snapshot(GEMM, devices=[running]), ViewState(show_current_clock=True))
    (line,) = (roof for roof in scene(view).roofs if roof.line == "dotted")
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
    assert message == "no roofs: roofmon calibrate --device cpu measures them"
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


def test_bounds_are_dashed_and_named_until_there_is_a_measured_roof() -> None:
    view = build_view(snapshot(devices=[gpu()]), ViewState())
    roofs = {roof.label: roof for roof in scene(view).roofs}
    # Of tf32 and fp16 vector, idle and with a bound alone, there is no line; nor of L1.
    assert list(roofs) == [
        "DRAM 4.81T bound",
        "bf16 1.07P bound",
        "fp32 67T bound",
        "fp64 33.5T bound",
    ]
    assert {roof.line for roof in roofs.values()} == {"dashed"}
    measured = roofline(*BOUNDS.ceilings, bandwidth(4.39e12), compute(753e12, "tensor/bf16"))
    roofs = {
        r.label: r for r in scene(build_view(snapshot(devices=[gpu(measured)]), ViewState())).roofs
    }
    assert list(roofs) == ["DRAM 4.39T", "bf16 753T", "fp32 67T bound", "fp64 33.5T bound"]
    assert roofs["DRAM 4.39T"].line == roofs["bf16 753T"].line == "solid"


def test_bounds_of_pipes_and_caches_in_use_are_drawn_too() -> None:
    # 10 of 134 TFLOP/s is 7 %, 10 of 535 is 2 %.
    busy = gpu(rates={"dram": 1e12, "vector/fp16": 10e12, "tensor/tf32": 10e12})
    names = {roof.name for roof in scene(build_view(snapshot(devices=[busy]), ViewState())).roofs}
    assert names == {"DRAM", "bf16", "fp32", "fp64", "fp16 vector"}
    used = Kernel(flops={"tensor/tf32": 1e9}, bytes={"l1": 1e6}, device=GPU)
    names = {
        roof.name for roof in scene(build_view(snapshot(used, devices=[gpu()]), ViewState())).roofs
    }
    assert names == {"DRAM", "L1", "bf16", "fp32", "fp64", "tf32"}


def test_bounds_at_the_present_clock() -> None:
    def lines(found: Device) -> list[str]:
        view = build_view(snapshot(devices=[found]), ViewState(show_current_clock=True))
        return [roof.label for roof in scene(view).roofs if roof.line == "dotted"]

    # 1070 × 1.5 / 2; of idle pipes there is no line while another one works.
    assert lines(gpu(clock_hz=1.5e9, rates={"dram": 1e12, "tensor/bf16": 4e14})) == [
        "bf16 802T at 1500 MHz"
    ]
    assert len(lines(gpu(clock_hz=1.5e9))) == 3
    assert lines(gpu()) == []
    # A measured issue rate is scaled, up to the bound: 866 × 2 / 1.755 = 987; a GEMM never is.
    measured = roofline(
        *BOUNDS.ceilings,
        compute(753e12, "tensor/bf16", clock_hz=1.755e9),
        compute(866e12, "tensor/bf16", regime="issue", clock_hz=1.755e9),
    )
    rates = {"dram": 1e12, "tensor/bf16": 4e14}
    assert "bf16 987T at 2000 MHz" in lines(gpu(measured, clock_hz=2e9, rates=rates))
    assert "bf16 1.07P at 2500 MHz" in lines(gpu(measured, clock_hz=2.5e9, rates=rates))
