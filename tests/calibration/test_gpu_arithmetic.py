"""What a GPU calibration works out without a GPU: sizes, samples, results, bounds, intervals."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from roofmon.calibration import gpu_sizes as sizes
from roofmon.calibration.ceilings import (
    between_runs,
    bound_of,
    judged,
    share_of_bound,
    to_ceiling,
    widened,
)
from roofmon.calibration.gpu_gemm import fitting_shapes
from roofmon.calibration.gpu_results import wrong_result
from roofmon.calibration.gpu_timer import EventTimer
from roofmon.calibration.manifest import load_probes
from roofmon.calibration.timing import Rule, Timing, time_launches
from roofmon.errors import RoofmonError
from roofmon.model.roofline import Ceiling
from roofmon.resources import probes_dir
from roofmon.telemetry.nvidia.bounds import physical_ceilings

GIB = 2**30
H200_L2, H200_SMS = 60 * 2**20, 132
PROBES = {probe.name: probe for probe in load_probes([probes_dir()])[0]}


def test_stream_arrays_are_large_where_memory_allows_and_shrink_where_not() -> None:
    assert sizes.stream_array_bytes(3, 140 * GIB) == 2 * GIB
    small = sizes.stream_array_bytes(3, GIB)
    assert 0.26 * GIB < small < 0.27 * GIB  # 0.8 / 3 of what is free
    assert small % 2**24 == 0
    with pytest.raises(RoofmonError, match=r"only 50\.0 MiB of GPU memory are free"):
        sizes.stream_array_bytes(3, 50 * 2**20)


@pytest.mark.parametrize(
    ("array", "arrays", "small"),
    [(2 * GIB, 3, False), (GIB, 1, False), (GIB // 2, 3, True), (60 * 2**20, 3, True)],
)
def test_a_set_is_small_under_a_gibibyte_an_array_or_four_caches(
    array: int, arrays: int, small: bool
) -> None:
    assert sizes.is_small(array, arrays, H200_L2) is small


def test_a_reread_set_is_a_sixth_of_l2_in_whole_rounds_of_its_grid() -> None:
    probe = PROBES["gpu-l2-read"]
    size = sizes.reread_bytes(probe, H200_L2, H200_SMS)
    round_bytes = 16 * 512 * 3 * H200_SMS  # one element for each thread of three blocks an SM
    assert size == 3 * round_bytes
    assert 9e6 < size < 10.5e6
    # A GPU whose L2 holds less than one round still gets one.
    assert sizes.reread_bytes(probe, 2**20, H200_SMS) == round_bytes


def test_grids_cover_the_elements_or_fill_the_sms() -> None:
    triad = PROBES["gpu-dram-triad"]
    each = (triad.block or 0) * (triad.elements_per_thread or 0)
    assert sizes.covering_blocks(triad, 10 * each) == 10
    assert sizes.covering_blocks(triad, 10 * each + 1) == 11
    loop = msgspec.structs.replace(PROBES["gpu-fma-fp32"], block=512, blocks_per_sm=None)
    assert sizes.resident_blocks(loop, H200_SMS) == 4 * H200_SMS


@pytest.mark.parametrize("each_s", [1e-9, 3e-7, 1e-4, 5e-3])
def test_iterations_make_a_launch_of_two_milliseconds(each_s: float) -> None:
    asked: list[int] = []

    def seconds_of(iterations: int) -> float:
        asked.append(iterations)
        return 4e-6 + iterations * each_s  # a launch costs something by itself

    iterations = sizes.iterations_for(seconds_of)
    assert iterations * each_s == pytest.approx(max(0.002, each_s), rel=0.2)
    assert len(asked) < 8
    assert max(asked) * each_s < 0.1  # nothing may run for long before it is known how long


def test_iterations_stop_at_what_a_kernel_can_count() -> None:
    assert sizes.iterations_for(lambda iterations: 1e-9, most=1000) == 1000


class Clockwork:
    """A device that takes `launch_s` a launch, an event when all before it is done, and our own time."""

    def __init__(self, launch_s: float, queue_s: float) -> None:
        self.now = self.free_at = 0.0
        self.launch_s = launch_s
        self.queue_s = queue_s

    def launch(self) -> None:
        self.now += self.queue_s
        self.free_at = max(self.free_at, self.now) + self.launch_s

    def record(self) -> "Clockwork.Event":
        self.now += self.queue_s
        self.free_at = max(self.free_at, self.now)
        return Clockwork.Event(self, self.free_at)

    class Event:
        def __init__(self, device: "Clockwork", at: float) -> None:
            self.device, self.at = device, at

        @property
        def done(self) -> bool:
            return self.device.now >= self.at

        def synchronize(self) -> None:
            self.device.now = max(self.device.now, self.at)


def timer(device: Clockwork) -> "EventTimer[Clockwork.Event]":
    return EventTimer(device.launch, device.record, lambda start, end: end.at - start.at)


def test_the_time_of_a_launch_is_the_devices_own_without_the_way_there() -> None:
    # 5 µs until a launch arrives: a quarter percent of 2 ms where the device waits for it.
    device = Clockwork(launch_s=0.002, queue_s=5e-6)
    timing = time_launches(timer(device).measure, Rule(half_width=0.003, cap_s=5, sample_s=0.004))
    assert timing.launches == 2
    assert timing.median_s == pytest.approx(0.002, rel=1e-9)
    assert timing.high_s == pytest.approx(0.002, rel=1e-9)


def test_a_pause_between_samples_is_not_counted() -> None:
    device = Clockwork(launch_s=0.001, queue_s=5e-6)
    one = timer(device)
    times = []
    for pause in (0.0, 0.1, 0.0, 0.0101, 0.1, 0.0):
        times.append(one.measure(10) / 10)
        device.now += pause  # as when the clock is read
    assert times == pytest.approx([0.001] * 6, rel=1e-9)


def test_another_number_of_launches_is_timed_anew() -> None:
    one = timer(Clockwork(launch_s=0.001, queue_s=5e-6))
    assert [one.measure(n) for n in (1, 3, 3, 2)] == pytest.approx([0.001, 0.003, 0.003, 0.002])


def arrays(count: int, seed: int = 0) -> Iterator["np.ndarray[tuple[int], np.dtype[np.float64]]"]:
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield random.uniform(0.5, 1, 300) * random.choice([-1, 1], 300)


def test_what_streams_name_says_is_what_counts() -> None:
    b, c = arrays(2)
    for kernel, right in (
        ("copy", [b, b]),
        ("scale", [0.4 * b, b]),
        ("add", [b + c, b, c]),
        ("triad", [b + 0.4 * c, b, c]),
        ("triad", [b + 0.4 * np.append(c[1:], 0), b, np.append(c[1:], 0)]),
        ("anything", [c, b]),
        ("read", [b]),
    ):
        assert wrong_result(kernel, right, 1e-14) == ""
    for kernel, wrong in (
        ("copy", [c, b]),
        ("scale", [b, b]),  # by one: nothing was computed
        ("scale", [0.4 * b + 1e-6, b]),
        ("add", [b - c, b, c]),
        ("triad", [b, b, c]),
        ("triad", [c, b, c]),
        ("triad", [b + 0.4 * c * (1 + 1e-9 * np.arange(300)), b, c]),
        ("anything", [np.full(300, np.inf)]),
    ):
        assert wrong_result(kernel, wrong, 1e-14) != ""


def test_shapes_that_do_not_fit_are_left_out() -> None:
    large, small = (8192, 8192, 8192), (4096, 4096, 4096)  # 384 MiB and 96 MiB of bf16
    assert fitting_shapes("bf16", [large, small], 140 * GIB) == (large, small)
    assert fitting_shapes("bf16", [large, small], 700 * 2**20) == (small,)
    with pytest.raises(RoofmonError, match="GPU memory are free"):
        fitting_shapes("bf16", [large, small], 100 * 2**20)


BOUNDS = physical_ceilings(
    compute_capability="9.0",
    sms=132,
    sm_clock_hz=1.98e9,
    dram_bytes_per_s=4.814e12,
    memory_clock_hz=3.201e9,
)


def ceiling(probe: str, value: float, clock_hz: float | None = 1.98e9) -> Ceiling:
    timing = Timing(1 / value, 1 / value, 1 / value, 20, 1, True, clock_hz)
    return to_ceiling(PROBES[probe], 1.0, timing)


def test_shares_of_the_bound_are_those_at_the_clock_held() -> None:
    fma = ceiling("gpu-fma-fp32", 60.8e12, clock_hz=1.8e9)
    # 132 SMs × 256 FLOP × 1.8 GHz = 60.8256 TFLOP/s
    assert share_of_bound(fma, BOUNDS) == pytest.approx(60.8 / 60.8256)
    unknown = ceiling("gpu-fma-fp32", 60.8e12, clock_hz=None)
    assert share_of_bound(unknown, BOUNDS) == pytest.approx(60.8 / 66.90816)
    triad = ceiling("gpu-dram-triad", 4.393e12, clock_hz=1.2e9)  # DRAM does not follow the SM clock
    assert share_of_bound(triad, BOUNDS) == pytest.approx(4.393 / 4.814)
    assert share_of_bound(ceiling("gpu-l2-read", 9.6e12), BOUNDS) is None
    assert bound_of(ceiling("gpu-pcie-h2d", 54e9), BOUNDS) is None


def test_more_than_the_hardware_can_do_is_flagged() -> None:
    assert judged(ceiling("gpu-dram-triad", 4.83e12), BOUNDS).flags == ()  # within half a percent
    assert judged(ceiling("gpu-dram-triad", 4.9e12), BOUNDS).flags == ("over-bound",)
    assert judged(ceiling("gpu-gemm-bf16", 1.2e15), BOUNDS).flags == ("over-bound",)
    assert judged(ceiling("gpu-l2-read", 1e15), BOUNDS).flags == ()


def test_an_interval_is_wider_by_what_lies_between_runs() -> None:
    wide = widened(ceiling("gpu-dram-triad", 4e12))
    share = between_runs(wide)
    assert wide.ci_high == pytest.approx(4e12 * (1 + share))
    assert wide.ci_low == pytest.approx(4e12 * (1 - share))
    assert between_runs(ceiling("gpu-l2-read", 9.6e12)) > share
    assert wide.value == 4e12


def test_a_chain_is_what_a_pipe_issues_and_a_product_what_a_library_sustains() -> None:
    regimes = {name: ceiling(name, 1e12).regime for name in ("gpu-fma-fp64", "gpu-gemm-fp64")}
    assert regimes == {"gpu-fma-fp64": "issue", "gpu-gemm-fp64": "gemm"}
    assert ceiling("gpu-l1-read", 1e12).regime == "sustained"


def test_probe_sources_lie_beside_their_manifests() -> None:
    for probe in PROBES.values():
        if probe.code:
            assert probe.source_text == (Path(probes_dir()) / probe.code).read_text()
