"""The offset between trace and samples: found, followed, and left alone where the signal cannot tell."""

import numpy as np
import pytest
from made_up_device import EIGHT, T0, Kernel, run_device, shuffled
from recording import load_excerpt, window

from roofmon.counters.attribution import Attributor
from roofmon.counters.clocks import ClockFit, ClockOffset
from roofmon.counters.overlap import Launches
from roofmon.counters.samples import Samples, usable


def shifted(launches: Launches, ns: float) -> Launches:
    """Launches as a trace shows them whose clock is behind by `ns`."""
    by = round(ns)
    return Launches(launches.kernel, launches.start_ns - by, launches.end_ns - by)


@pytest.fixture(scope="module")
def run():
    """1 s of eight kernels in random order."""
    return run_device(1.0, EIGHT, shuffled(8), seed=11)


def windows(run, step_ns=1e6, seconds=0.15):
    """Successive windows of samples and launches."""
    samples, launches = usable(run.samples(step_ns, noise=0.01)), run.launches()
    starts = np.arange(0, 0.95e9, seconds * 1e9).astype(np.int64) + T0
    for start in starts:
        end = start + int(seconds * 1e9)
        inside = samples.take((samples.start_ns >= start) & (samples.end_ns <= end))
        near = (launches.end_ns > start - 5_000_000) & (launches.start_ns < end + 5_000_000)
        yield inside, launches.take(near)


@pytest.mark.parametrize("shift_us", [20, -50, -200, 500])
def test_an_offset_is_found_in_the_first_window(run, shift_us):
    samples, launches = next(windows(run))
    fit = ClockOffset().update(samples, shifted(launches, shift_us * 1000), {})
    assert fit.certain
    assert fit.offset_ns == pytest.approx(shift_us * 1000, abs=4_000)
    assert abs(fit.offset_ns - shift_us * 1000) < 4 * fit.error_ns


@pytest.mark.parametrize(
    ("phase", "shift_us"),
    [("attention_standard_bf16", 75), ("decode_eager_bf16", -300), ("gemm_fp8", 40)],
)
def test_an_offset_is_found_on_recorded_workloads(phase, shift_us):
    samples, launches = window(load_excerpt(), phase)
    still = ClockOffset().update(samples, launches, {})
    moved = ClockOffset().update(samples, shifted(launches, shift_us * 1000), {})
    assert still.certain
    assert moved.certain
    assert moved.offset_ns - still.offset_ns == pytest.approx(shift_us * 1000, abs=1_000)


@pytest.mark.parametrize("step_us", [60, -500])
def test_a_step_is_corrected_within_two_windows(run, step_us):
    clock, fits = ClockOffset(), []
    for number, (samples, launches) in enumerate(windows(run)):
        behind = step_us * 1000 if number >= 3 else 0
        fits.append(clock.update(samples, shifted(launches, behind), {}))
    assert fits[2].offset_ns == pytest.approx(0, abs=4_000)
    assert fits[4].offset_ns == pytest.approx(step_us * 1000, abs=4_000)
    assert any(fit.stepped for fit in fits[3:5])
    assert not fits[5].stepped


def test_drift_is_followed(run):
    clock = ClockOffset()
    for number, (samples, launches) in enumerate(windows(run)):
        fit = clock.update(samples, shifted(launches, 12_000 * number), {})
        assert fit.offset_ns == pytest.approx(12_000 * number, abs=8_000)
        assert not fit.stepped


@pytest.mark.slow
def test_a_step_in_mid_window_does_not_spoil_what_is_known():
    run = run_device(1.2, EIGHT, shuffled(8), seed=12)
    samples, launches = run.samples(1e6, noise=0.01), run.launches()
    late = launches.start_ns > T0 + 700_000_000
    by = np.where(late, 400_000, 0)
    launches = Launches(launches.kernel, launches.start_ns - by, launches.end_ns - by)
    attributor = Attributor(samples.metrics)
    for number in range(3):
        start = T0 + number * 400_000_000
        inside = (samples.start_ns >= start) & (samples.end_ns <= start + 400_000_000)
        found = attributor.window(samples.take(inside), launches)
    assert found.clock.offset_ns == pytest.approx(400_000, abs=4_000)
    for row in range(5):  # the five with over 2 % of the traffic
        assert found.amounts[row, 0] == pytest.approx(EIGHT[row].bytes, rel=0.05), row


def test_a_constant_signal_cannot_tell_and_the_last_offset_stays(run):
    samples, launches = next(windows(run))
    clock = ClockOffset()
    before = clock.update(samples, shifted(launches, 70_000), {})
    flat = Samples(
        samples.metrics, samples.start_ns, samples.end_ns, np.full_like(samples.values, 7e8)
    )
    for _ in range(3):
        fit = clock.update(flat, shifted(launches, 70_000), {})
        assert not fit.certain
        assert fit.offset_ns == before.offset_ns


def test_a_loop_that_looks_the_same_one_round_later_is_uncertain():
    # Rounds of 50 µs in samples of 1 ms: an offset of 50 µs changes nothing.
    kernels = [Kernel(30e3, 100e6), Kernel(19e3, 5e6)]
    turn = iter(range(10**9))
    run = run_device(0.1, kernels, lambda _: next(turn) % 2, gap_ns=1e-3, seed=3)
    # Noise beyond what the edges of single launches show.
    samples = usable(run.samples(1e6, noise=0.05))
    fit = ClockOffset().update(samples, run.launches(), {})
    assert fit == ClockFit(0.0, fit.error_ns, False, False, fit.unexplained)
    assert np.isnan(fit.error_ns)


def test_too_little_to_fit_is_uncertain(run):
    samples, launches = next(windows(run))
    assert not ClockOffset().update(samples.take(slice(5)), launches, {}).certain
    nothing = launches.take(np.zeros(len(launches), dtype=bool))
    assert not ClockOffset().update(samples, nothing, {}).certain
