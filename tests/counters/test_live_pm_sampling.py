"""The counters worker through the real cupti-python, over a stand-in of libcupti with a made-up device."""

import shutil
import time
from functools import partial

import pytest
from counters_process import batch_of, starting, states
from pm_sampling_double import (
    KERNELS,
    UUID,
    PmSamplingDouble,
    build_double,
    launches,
    needs_cupti_python,
)

from roofmon.counters.metric_sets import DRAM_READ, DRAM_WRITE, L2, SETS
from roofmon.counters.overlap import Launches
from roofmon.counters.weights import FMA_LITE, TENSOR

pytestmark = [pytest.mark.slow, needs_cupti_python]
TICK_S = 0.25


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    return build_double(tmp_path_factory.mktemp("cupti"))


@pytest.fixture
def device(libraries, tmp_path):
    return PmSamplingDouble(libraries, tmp_path)


@pytest.fixture
def start(device, tmp_path):
    for started in starting(tmp_path):
        yield partial(start_on, started, device)


def start_on(started, device, *arguments, **env):
    return started("--device", UUID, *arguments, env=device.env | env)


def feed(process, results, shift_ns=lambda: 0):
    """Tells it what ran, as it runs, until it has told so many results; the last of them.

    The trace's clock is behind the samples' by `shift_ns()`.
    """
    since = time.time_ns()
    told = since - shift_ns()
    deadline = time.monotonic() + 40
    while len(process.results) < results:
        assert time.monotonic() < deadline, process.said[-3:]
        time.sleep(TICK_S)
        now, shift = time.time_ns(), shift_ns()
        ran = launches(since, now)
        ran = Launches(ran.kernel, ran.start_ns - shift, ran.end_ns - shift)
        process.tell(batch_of(ran, now - shift, told))
        since, told = now, now - shift
    return process.results[-1]


def check(result, bound=0.02):
    """Every kernel's amounts are those that it was made with."""
    rows = result.array("kernels").tolist()
    assert rows == list(range(len(KERNELS)))
    for metric in {DRAM_READ, DRAM_WRITE, L2, TENSOR} & set(result.metrics):
        amounts = result.array("amounts")[:, result.metrics.index(metric)]
        largest = max(kernel.counts.get(metric, 0.0) for kernel in KERNELS)
        for kernel, amount in zip(KERNELS, amounts, strict=True):
            expected = kernel.counts.get(metric, 0.0)
            assert amount == pytest.approx(expected, rel=bound, abs=0.003 * largest), metric


def test_live_kernels_get_what_they_counted(start):
    process = start()
    process.wait_state("sampling")
    result = feed(process, 4)
    check(result)
    assert tuple(result.metrics) == SETS[0]
    assert result.array("attributed")[0] == pytest.approx(result.array("device")[0], rel=0.005)
    health = process.health[-1]
    assert health.interval_us == 1000
    # A busy machine reads late, but the device loses nothing for it.
    assert health.samples_per_s > 500
    assert health.overflows == health.gaps == 0
    assert process.end() == (0, "")


def test_live_a_step_of_the_clocks_is_found_within_two_windows(start):
    process = start()
    process.wait_state("sampling")
    shifts = [0]
    feed(process, 3, lambda: shifts[0])
    shifts[0] = 400_000
    before = len(process.results)
    # The window with the step in its middle, and two more.
    result = feed(process, before + 3, lambda: shifts[0])
    assert result.clock_offset_ns == pytest.approx(400_000, abs=15_000)
    check(feed(process, before + 5, lambda: shifts[0]), bound=0.03)


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ({"never_complete": FMA_LITE}, SETS[1]),
        ({"multi_pass": TENSOR}, SETS[2]),
        ({"unknown": f"{DRAM_READ},{DRAM_WRITE}"}, SETS[0][2:]),
        ({"no_time_trigger": 1}, SETS[0]),
    ],
    ids=["incomplete", "several passes", "other chip", "no time trigger"],
)
def test_live_the_largest_set_that_completes_is_sampled(start, device, scenario, expected):
    device.set(**scenario)
    process = start()
    process.wait_state("sampling")
    result = feed(process, 2)
    assert tuple(result.metrics) == expected
    assert result.array("device")[0] > 0


def test_live_no_set_is_said_with_the_chip(start, device):
    device.set(never_complete=",".join([DRAM_READ, L2]), chip="GB202")
    said = start().wait_state("unavailable")
    assert said.reason.startswith("no set of counters can be sampled on GB202")
    assert "samples never complete (0 of " in said.reason


@pytest.mark.parametrize(
    ("scenario", "reason", "fix"),
    [
        (
            {"fail__cuptiPmSamplingEnable": 35},
            "ERR_NVGPUCTRPERM",
            "RestrictProfilingToAdminUsers=0",
        ),
        ({"fail__cuptiPmSamplingEnable": 26}, "held by another tool", "tried again"),
        (
            {"fail__cuptiProfilerHostInitialize": 1},
            "does not fit cupti-python",
            "roofmon[counters]",
        ),
        ({"fail__cuptiPmSamplingEnable": 43}, "MIG", ""),
        ({"fail__cuptiPmSamplingEnable": 999}, "CUPTI says ERROR_UNKNOWN", "log"),
        ({"fail__cuptiProfilerInitialize": 15}, "libnvperf_host.so", "roofmon[counters]"),
        ({"driver": 12080}, "supports CUDA 12.8 only", "580"),
        ({"cuInit": 100}, "shows no GPU", "container"),
        ({"gpus": 0}, f"no GPU {UUID}", "nvidia-smi -L"),
    ],
)
def test_live_what_keeps_the_counters_from_us_is_said(start, device, scenario, reason, fix):
    device.set(**scenario)
    process = start()
    said = process.wait_state("unavailable")
    assert reason in said.reason
    assert fix in said.fix
    # Where it was only that, it goes on as soon as it can.
    device.set(**dict.fromkeys(scenario))
    process.wait_state("sampling")


def test_live_counters_are_exclusive_and_the_holder_comes_first(start, tmp_path):
    first = start()
    first.wait_state("sampling")
    # Of another user, or another machine's container: its lock is in another directory.
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    second = start(XDG_RUNTIME_DIR=str(other))
    assert "held by another tool" in second.wait_state("unavailable").reason
    first.order("release", "asked for")
    first.wait_state("released")
    second.wait_state("sampling")
    count = len(first.said)
    first.order("resume")
    assert "held" in first.wait_state("unavailable", after=count).reason


@pytest.mark.parametrize("key", ["overflow_at", "out_of_memory_at"])
def test_live_an_overflow_is_counted_and_sampling_goes_on(start, device, key):
    device.set(**{key: 8})
    process = start()
    process.wait_state("sampling")
    process.wait(lambda said: process.health and process.health[-1].overflows == 1)
    check(feed(process, 4))
    assert len(states(process.said)) == 2
    assert process.health[-1].overflows == 1


def test_live_sampling_that_fails_is_taken_up_again(start, device):
    process = start()
    process.wait_state("sampling")
    device.set(fail__cuptiPmSamplingDecodeData=18)
    said = process.wait_state("unavailable")
    count = len(process.said)
    device.set(fail__cuptiPmSamplingDecodeData=None)
    process.wait_state("sampling", after=count)
    check(feed(process, 4))
    assert said.reason


def test_live_another_cupti_that_was_loaded_first_is_named(start, libraries, tmp_path):
    other = shutil.copy(libraries / "nvidia/cu13/lib/libcupti.so.13", tmp_path)
    process = start(LD_PRELOAD=str(other))
    said = process.wait_state("unavailable")
    assert said.reason == f"another CUPTI was loaded first: {other}"
    assert "LD_PRELOAD" in said.fix


def test_live_reading_that_costs_too_much_makes_samples_longer_for_a_while(start, device):
    # Every read takes 200 ms of this core, twice a second.
    device.set(read_ms=200)
    process = start()
    process.wait_state("sampling")
    process.wait(lambda said: process.health and process.health[-1].interval_us > 1000)
    device.set(read_ms=0)
    process.wait(lambda said: process.health[-1].interval_us == 1000)
    assert not [said for said in states(process.said) if said.state == "unavailable"]
