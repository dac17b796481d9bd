"""What windows of samples and telemetry say together, where one of them is late, partial or implausible."""

import msgspec
import numpy as np
import pytest

from roofmon.collector.device_traffic import DeviceTraffic
from roofmon.counters.metric_sets import DRAM_READ, DRAM_WRITE, L2
from roofmon.counters.weights import CYCLES
from roofmon.counters.worker_messages import Result
from roofmon.model.device import DeviceProcess, DeviceSample

S = 10**9
T0 = 1_800_000_000 * S
METRICS = [DRAM_READ, DRAM_WRITE, CYCLES]
TRACED = (10,)


def result(
    attributed=(900e9, 450e9, 0), device=(1000e9, 500e9, 1.4e9), contended=False, **more
) -> Result:
    """A window of one second with one kernel; the counts of its metrics."""

    def data(values, dtype="<f8"):
        return np.array(values, dtype).tobytes()

    one = data([[0.0] * len(device)])
    fields = {
        "start_ns": T0,
        "end_ns": T0 + S,
        "metrics": METRICS,
        "kernels": data([0], "<i8"),
        "launches": data([1.0]),
        "amounts": one,
        "errors": one,
        "groups": data([[-1] * len(device)], "<i8"),
        "together": one,
        "together_errors": one,
        "contended": data([contended], "?"),
        "pooled": b"",
        "seconds": 1.0,
        "device": data(device),
        "attributed": data(attributed),
        "untraced": data([d - a for d, a in zip(device, attributed, strict=True)]),
        "foreign_share": 0.0,
        "clock_offset_ns": 0.0,
        "clock_error_ns": 1.0,
        "clock_certain": True,
        "clock_stepped": False,
    }
    return Result(**(fields | more))


def sample(at_s, clock=1.55e9, dram=1.5e12, **more) -> DeviceSample:
    rates = {"dram": dram, "tensor/bf16": 500e12}
    fields = {"clock_hz": clock, "rates": rates, "rates_clock_hz": clock, **more}
    return DeviceSample(device="GPU-1", time_unix_ns=T0 + round(at_s * S), **fields)


def watched(*samples, steps=(0, 0.5, 1, 1.5)) -> DeviceTraffic:
    found = DeviceTraffic("GPU-1")
    for one in samples or [sample(at) for at in steps]:
        found.amended(one)
    return found


def test_rates_are_per_second_of_usable_samples():
    known = watched().take(result(seconds=0.5), TRACED)
    assert known.dram_bytes_per_s == pytest.approx(3e12)
    assert known.explained == pytest.approx(0.9)
    assert known.untraced_share == pytest.approx(0.1)


def test_gpm_is_weighted_by_the_time_that_it_tells_of():
    found = watched(sample(0, dram=9e12), sample(0.25, dram=1e12), sample(1.5, dram=2e12))
    assert found.take(result(), TRACED).gpm_bytes_per_s == pytest.approx(1.75e12)


@pytest.mark.parametrize("steps", [(), (0,), (0, 0.5), (0.9, 1.0, 1.5), (-30, 12)])
def test_gpm_of_another_time_is_not_compared(steps):
    known = watched(*[sample(at) for at in steps]) if steps else DeviceTraffic("GPU-1")
    traffic = known.take(result(), TRACED)
    assert traffic.gpm_bytes_per_s is None
    assert traffic.explained_of_gpm is None
    assert "same time" in traffic.missing["gpm_bytes_per_s"]
    assert traffic.explained == pytest.approx(0.9)


def test_without_gpm_the_clock_is_known_all_the_same():
    bare = {"rates": None, "rates_clock_hz": None}
    found = watched(*[sample(at, **bare) for at in (0, 0.5, 1, 1.5)])
    assert found.take(result(), TRACED).clock_hz == pytest.approx(1.4e9)
    again = sample(2, **bare)
    assert found.amended(again) == again  # there are no rates to amend


def test_flop_rates_follow_the_counted_clock_while_the_driver_tells_about_the_same():
    found = watched()
    found.take(result(), TRACED)
    missing = {"mean_clock_hz": "not yet", "sm_busy": "no"}
    amended = found.amended(sample(3, clock=1.6e9, missing=missing))
    assert amended.mean_clock_hz == amended.rates_clock_hz == pytest.approx(1.4e9)
    assert amended.rates["tensor/bf16"] == pytest.approx(500e12 * 1.4 / 1.6)
    assert amended.rates["dram"] == 1.5e12
    assert amended.missing == {"sm_busy": "no"}
    for other in (sample(3, clock=1.98e9), sample(8), sample(3, clock=None)):
        assert found.amended(other) == other  # the clock moved, the window is old, none is told


@pytest.mark.parametrize("cycles", [0.0, 0.3e9, 2.2e9])
def test_a_count_that_is_no_clock_is_not_taken_for_one(cycles):
    found = watched()
    traffic = found.take(result(device=(1000e9, 500e9, cycles)), TRACED)
    assert traffic.clock_hz is None
    assert traffic.missing["clock_hz"]
    assert found.amended(sample(2)).mean_clock_hz is None


def test_a_chip_without_dram_counters_has_no_accounting_and_says_so():
    traffic = watched().take(result(metrics=[L2], device=(1e9,), attributed=(1e9,)), TRACED)
    assert traffic.explained is traffic.untraced_bytes_per_s is None
    assert "not known" in traffic.missing["dram_bytes_per_s"]
    assert "not known" in traffic.missing["explained"]


def processes(*listed):
    return tuple(
        DeviceProcess(pid=pid, name=name, sm_busy=busy, note="" if name else "elsewhere")
        for pid, name, busy in listed
    )


@pytest.mark.parametrize(
    ("listed", "others", "who"),
    [
        ([(10, "train", 0.4), (11, "bench", 0.3)], ("bench 11",), "bench 11"),
        ([(10, "train", 0.4), (11, "bench", 0.0)], (), "something that is not traced"),
        ([(10, "train", None), (11, "bench", None)], (), "perhaps bench 11"),
        # A number of another namespace is somebody else's only where the traced ones are all known.
        ([(777, "", 0.3)], (), "something that is not traced"),
        ([(10, "train", 0.4), (777, "", 0.3)], ("process 777",), "process 777"),
        (
            [(10, "train", 0.4), (1, "a", 0.2), (2, "b", 0.2), (3, "c", 0.2)],
            ("a 1", "b 2", "c 3"),
            "a 1 and 2 more",
        ),
        ([], (), "something that is not traced"),
    ],
)
def test_the_others_are_named_as_far_as_they_are_known(listed, others, who):
    found = watched(*[sample(at, processes=processes(*listed)) for at in (0, 0.5, 1, 1.5)])
    traffic = found.take(result(contended=True), TRACED)
    assert traffic.others == others
    assert traffic.contended.startswith(f"{who} used the GPU beside it")
    assert found.contention.why == traffic.contended
    assert not found.contention.everywhere
    assert found.take(result(), TRACED).contended == ""


def test_gpm_far_above_what_is_explained_leaves_no_kernel_free_of_doubt():
    found = watched(*[sample(at, dram=2.2e12) for at in (0, 0.5, 1, 1.5)])
    whole = {"attributed": (1000e9, 500e9, 0)}
    # A load that begins or ends may lie in one window by GPM and in the next by the samples.
    assert found.take(result(**whole), TRACED).contended == ""
    traffic = found.take(result(**whole), TRACED)
    assert found.contention.everywhere
    assert traffic.contended.startswith("GPM counts far more DRAM traffic")
    # Where the samples show the rest as untraced, or were not usable for long, GPM tells nothing new.
    for window in (result(attributed=(700e9, 300e9, 0)), result(seconds=0.5, **whole)):
        found.take(window, TRACED)
        assert not found.contention.everywhere


def test_what_was_known_is_not_told_for_ever():
    found = watched()
    assert "not complete" in found.now("").missing["explained"]
    found.take(result(), TRACED)
    assert found.now("").explained == pytest.approx(0.9)
    paused = found.now("the screen is paused")
    assert paused.explained is None
    assert set(paused.missing.values()) == {"the screen is paused"}
    fields = {f for f in msgspec.structs.asdict(paused) if getattr(paused, f) is None}
    assert fields <= paused.missing.keys()
