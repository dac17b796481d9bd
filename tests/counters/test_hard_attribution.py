"""Attribution where totals cannot fake it: kernels in random order, on one and two streams, beside others.

What each kernel moves is known from how the run was made up (`made_up_device`) and must be found back from
samples with noise: kernels with at least 5 % of the traffic within 3 %.
"""

import numpy as np
import pytest
from made_up_device import BANDWIDTH, EIGHT, T0, Kernel, run_device, shuffled

from roofmon.counters.attribution import Attributor
from roofmon.counters.overlap import Launches
from roofmon.counters.results import Attribution
from roofmon.counters.samples import Samples

TRUTH = np.array([kernel.bytes for kernel in EIGHT])
FLOPS = np.array([kernel.flops for kernel in EIGHT])
LARGE = [0, 1, 2, 4]  # 61, 7, 20 and 6 % of the traffic
BURSTS = [(start * 1e6, (start + 6) * 1e6) for start in range(20, 5000, 40)]
RATE = 1500.0  # byte/ns that the foreign process asks for
STREAMS = pytest.mark.parametrize("streams", [1, 2])
SETTINGS = pytest.mark.parametrize(
    ("step_ns", "seconds"),
    [
        pytest.param(2e5, 0.3, id="0.2 ms"),
        pytest.param(1e6, 3.0, id="1 ms", marks=pytest.mark.slow),
    ],
)


def windows(run, step_ns, noise=0.01, **options) -> list[Attribution]:
    """What is known after each window of up to 1 s of a run."""
    samples, launches = run.samples(step_ns, noise=noise, seed=5), run.launches()
    end = int(samples.end_ns[-1]) - 1_000_000  # records of what still runs are missing
    attributor, known = Attributor(samples.metrics), []
    for start in range(T0, end, 1_000_000_000):
        stop = min(start + 1_000_000_000, end)
        inside = samples.take((samples.start_ns >= start) & (samples.end_ns <= stop))
        found = attributor.window(inside, launches, **options)
        assert found is not None
        known.append(found)
    return known


def attribute(run, step_ns, **options) -> Attribution:
    """What is known after all windows of a run."""
    return windows(run, step_ns, **options)[-1]


def assert_large_ones_are_right(found: Attribution) -> None:
    assert found.kernels.tolist() == list(range(8))
    for row in LARGE:
        assert found.groups[row, 0] == -1
        assert found.amounts[row, 0] == pytest.approx(TRUTH[row], rel=0.03), row
    # What is said about the errors holds: no kernel is off by more than four of them.
    assert (np.abs(found.amounts[:, 0] - TRUTH) < 4 * found.errors[:, 0] + 0.003 * TRUTH).all()
    assert (np.abs(found.amounts[:, 1] - FLOPS) < 4 * found.errors[:, 1] + 0.003 * FLOPS).all()


@STREAMS
@SETTINGS
def test_kernels_in_random_order(streams, step_ns, seconds):
    run = run_device(seconds, EIGHT, shuffled(8), streams=streams, seed=21)
    found = attribute(run, step_ns)
    assert_large_ones_are_right(found)
    assert found.traffic.explained[0] == pytest.approx(1, abs=0.01)
    assert found.foreign_share == 0
    assert not found.contended.any()


@STREAMS
@SETTINGS
def test_an_untraced_process_beside_them(streams, step_ns, seconds):
    run = run_device(
        seconds,
        EIGHT,
        shuffled(8),
        streams=streams,
        foreign=BURSTS,
        foreign_rate=RATE,
        seed=22,
    )
    known = windows(run, step_ns, foreign=True)
    assert_large_ones_are_right(known[-1])
    untraced = sum(found.traffic.untraced[0] for found in known)
    assert untraced == pytest.approx(run.foreign_bytes(), rel=0.05)
    assert known[-1].foreign_share == pytest.approx(6 / 40, abs=0.04)
    # What the bursts are told from is known as exactly as without them, or is marked.
    assert not known[-1].contended[[0, 2]].any()
    assert known[-1].contended[1.96 * known[-1].errors[:, 0] > 0.02 * TRUTH].all()


def test_an_untraced_process_that_never_rests_leaves_every_kernel_contended():
    run = run_device(0.3, EIGHT, shuffled(8), foreign=[(0, 1e9)], foreign_rate=RATE, seed=23)
    found = attribute(run, 2e5, foreign=True)
    # Nothing in the samples tells it from the kernels, whose amounts are far too high.
    assert found.amounts[0, 0] > 1.3 * TRUTH[0]
    assert found.contended.all()


def test_an_active_process_that_moves_nothing_contends_with_nobody():
    run = run_device(0.3, EIGHT, shuffled(8), gap_ns=20_000, seed=24)
    found = attribute(run, 2e5, foreign=True)
    assert not found.contended.any()


def test_traffic_while_nothing_traced_runs_is_untraced():
    # Launches only in the first and the last third.
    run = run_device(
        0.3, EIGHT, shuffled(8), foreign=[(100e6, 200e6)], foreign_rate=2 * BANDWIDTH, seed=25
    )
    launches = run.launches()
    outside = (launches.end_ns < T0 + 100_000_000) | (launches.start_ns > T0 + 200_000_000)
    samples = run.samples(2e5, noise=0.01)
    samples = samples.take(samples.end_ns < samples.end_ns[-1] - 1_000_000)
    found = Attributor(samples.metrics).window(samples, launches.take(outside))
    middle = (samples.start_ns > T0 + 100_000_000) & (samples.end_ns < T0 + 200_000_000)
    assert found.traffic.untraced[0] == pytest.approx(samples.values[middle, 0].sum(), rel=0.02)
    assert found.amounts[0, 0] == pytest.approx(TRUTH[0], rel=0.03)


def test_a_time_that_was_not_traced_is_masked_and_not_called_untraced():
    run = run_device(0.5, EIGHT, shuffled(8), seed=26)
    launches, samples = run.launches(), run.samples(2e5, noise=0.01)
    spans = np.array([[T0, T0 + 200_000_000], [T0 + 300_000_000, T0 + 499_000_000]])
    seen = np.zeros(len(launches), dtype=bool)
    for start, end in spans.tolist():
        seen |= (launches.end_ns > start) & (launches.start_ns < end)
    found = Attributor(samples.metrics).window(samples, launches.take(seen), traced_ns=spans)
    assert found.traffic.seconds == pytest.approx(0.399, abs=0.001)
    assert found.traffic.explained[0] == pytest.approx(1, abs=0.01)
    assert found.traffic.untraced[0] < 0.01 * found.traffic.device[0]
    for row in LARGE:
        assert found.amounts[row, 0] == pytest.approx(TRUTH[row], rel=0.03)


def test_two_kernels_that_always_run_together_are_one_group():
    # Kernel 1 follows kernel 0 at once, every time; both are short beside a sample. Kernel 2 runs freely.
    kernels = [Kernel(20e3, 60e6), Kernel(12e3, 20e6), Kernel(150e3, 90e6)]
    queue: list[int] = []

    def order(random):
        if not queue:
            queue.extend([0, 1] if random.random() < 0.7 else [2])
        return queue.pop(0)

    run = run_device(0.4, kernels, order, gap_ns=1.0, seed=27)
    found = attribute(run, 1e6, noise=0.03)
    assert found.groups[:, 0].tolist() == [0, 0, -1]
    assert found.amounts[2, 0] == pytest.approx(90e6, rel=0.03)
    # Both moved 80 MB a round, and that much is known.
    for row in (0, 1):
        assert found.together[row, 0] == pytest.approx(80e6, rel=0.03)
        assert found.together_errors[row, 0] < 0.02 * 80e6 < found.errors[row, 0]


def test_two_kernels_that_fill_each_sample_alike_are_one_group_also_without_noise():
    # 0.4 ms and 0.6 ms in every sample of 1 ms: only that both together move 4 MB can be known.
    start = 10**15 + 10**6 * np.arange(600)
    samples = Samples(
        ("dram__bytes_read.sum",), start, start + 10**6, np.full((len(start), 1), 4e6)
    )
    starts = np.stack([start, start + 400_000], axis=1)
    launches = Launches(
        np.tile([0, 1], len(start)),
        starts.ravel(),
        (starts + np.array([400_000, 600_000])).ravel(),
    )
    found = Attributor(samples.metrics).window(samples, launches)
    assert found.groups[:, 0].tolist() == [0, 0]
    np.testing.assert_allclose(found.together[:, 0], 4e6, rtol=0.001)


def test_sizes_of_one_kernel_are_not_taken_for_the_same_work():
    # Kernels 0 and 1 are one kernel with two problem sizes: four times the work in four times the time.
    kernels = [Kernel(200e3, 500e6), Kernel(50e3, 125e6), Kernel(90e3, 60e6), Kernel(30e3, 100e6)]
    run = run_device(0.5, kernels, shuffled(4), seed=28)
    launches = run.launches()
    merged = np.where(launches.kernel == 1, 0, launches.kernel)
    samples = run.samples(2e5, noise=0.01)
    samples = samples.take(samples.end_ns < samples.end_ns[-1] - 1_000_000)
    found = Attributor(samples.metrics).window(
        samples, Launches(merged, launches.start_ns, launches.end_ns)
    )
    large, small = np.bincount(launches.kernel)[:2]
    mean = (large * 500e6 + small * 125e6) / (large + small)
    assert found.kernels.tolist() == [0, 2, 3]
    np.testing.assert_allclose(found.amounts[:, 0], [mean, 60e6, 100e6], rtol=0.03)


def test_very_short_kernels_are_pooled():
    kernels = [Kernel(100e3, 200e6), Kernel(60, 0.1e6)]
    run = run_device(0.1, kernels, shuffled(2), seed=29)
    found = attribute(run, 2e5)
    assert found.kernels.tolist() == [0]
    assert found.pooled.tolist() == [1]
    assert found.traffic.pooled[0] < 0.01 * found.traffic.device[0]


def test_a_kernel_that_changed_its_work_is_not_averaged_with_its_past():
    before = run_device(0.3, [Kernel(100e3, 200e6), Kernel(40e3, 20e6)], shuffled(2), seed=30)
    after = run_device(0.3, [Kernel(100e3, 300e6), Kernel(40e3, 20e6)], shuffled(2), seed=31)
    attributor = Attributor(before.samples(2e5).metrics)
    attributor.window(before.samples(2e5, noise=0.01), before.launches())
    for _ in range(2):  # a single window could be a slip of the clocks
        found = attributor.window(after.samples(2e5, noise=0.01), after.launches())
    assert found.amounts[0, 0] == pytest.approx(300e6, rel=0.03)


def test_what_is_known_fades_but_outlives_idle_windows():
    run = run_device(0.3, EIGHT, shuffled(8), seed=32)
    samples = run.samples(2e5, noise=0.01)
    attributor = Attributor(samples.metrics)
    before = attributor.window(samples, run.launches())
    idle = run_device(0.3, EIGHT, shuffled(8), gap_ns=1e12, seed=33).samples(2e5)
    later = attributor.window(idle, run.launches().take(np.zeros(len(run.kernel), dtype=bool)))
    np.testing.assert_array_equal(later.amounts, before.amounts)
    assert later.traffic.device[0] == later.traffic.attributed[0] == 0
    assert np.isnan(later.traffic.explained[0])


def test_a_window_without_usable_samples_says_nothing():
    run = run_device(0.05, EIGHT, shuffled(8), seed=34)
    samples = run.samples(2e5)
    attributor = Attributor(samples.metrics)
    assert attributor.window(samples.take(slice(0, 0)), run.launches()) is None
    never = np.zeros((0, 2), dtype=np.int64)
    assert attributor.window(samples, run.launches(), traced_ns=never) is None
