"""The scenes that the chart's tests share."""

import pytest

from roofmon.chart import Arrow, Point, Region, Roof, Scene


@pytest.fixture
def h200() -> Scene:
    """Measured roofs of an H200 and a training step's kernels, ② selected."""
    roofs = (
        Roof("bandwidth", 9.6e12, "L2 9.6T", "roof.memory", "L2"),
        Roof("bandwidth", 4.39e12, "DRAM 4.39T", "roof.bound", "DRAM", emphasised=True),
        Roof("compute", 1.355e15, "fp8 1.36P", "roof.compute", "fp8"),
        Roof("compute", 753e12, "bf16 753T", "roof.bound", "bf16", emphasised=True),
        Roof("compute", 366e12, "tf32 366T", "roof.compute", "tf32"),
        Roof("compute", 51.9e12, "fp32 51.9T", "roof.compute", "fp32", line="dashed"),
        Roof("compute", 62e12, "fp64 62T", "roof.compute", "fp64", line="dotted"),
    )
    points = (
        Point(118, 417e12, "1", "point.memory"),
        Point(0.2, 0.37e12, "2", "point.memory", selected=True),
        Point(0.1, 0.43e12, "3", "point.memory"),
        Point(113, 439e12, "4", "point.memory"),
        Point(200, 300e12, "5", "point.compute"),
        Point(1.5, 0.8e12, "6", "point.latency"),
        Point(None, 1e12, "7"),
    )
    return Scene(roofs, points)


@pytest.fixture
def cpu() -> Scene:
    """Measured roofs of a small CPU and the nine kernels of a workload on it."""
    roofs = (
        Roof("bandwidth", 120e9, "LLC 120G", "roof.memory", "LLC"),
        Roof("bandwidth", 20e9, "DRAM 20G", "roof.bound", "DRAM", emphasised=True),
        Roof("compute", 150e9, "fp32 150G", "roof.bound", "fp32", emphasised=True),
        Roof("compute", 75e9, "fp64 75G", "roof.compute", "fp64"),
    )
    places = (
        (0.08, 1.5e9),
        (0.083, 1.6e9),
        (0.125, 2.2e9),
        (0.25, 1.1e9),
        (0.25, 4.6e9),
        (1.2, 14e9),
        (8, 70e9),
        (60, 118e9),
        (200, 140e9),
    )
    points = tuple(
        Point(intensity, flops, str(number), "point.memory", selected=number == 6)
        for number, (intensity, flops) in enumerate(places, start=1)
    )
    return Scene(roofs, points)


@pytest.fixture
def comparison(cpu: Scene) -> Scene:
    """The CPU's roofs with two kernels on their way from a baseline, and a latency limit."""
    return Scene(
        cpu.roofs,
        (Point(8, 70e9, "1", "point.memory"), Point(0.25, 4.6e9, "2", "point.memory")),
        arrows=(Arrow((1, 8e9), (8, 70e9)), Arrow((0.25, 0.9e9), (0.25, 4.6e9))),
        regions=(Region(2e9, "latency limit 2G"),),
    )
