"""The roof of sampled bytes: a counter sampled by another process while a simulated GPU is busy."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from calibration.simulated_gpu import L2 as REQUESTED_RATE
from calibration.simulated_gpu import SimulatedGpu, SimulatedReadings
from counters.counters_process import machine
from counters.pm_sampling_double import (
    UUID,
    PmSamplingDouble,
    build_double,
    needs_cupti_python,
)

from roofmon.calibration.gpu_bench import GpuBench
from roofmon.calibration.gpu_load import HeldClocks
from roofmon.calibration.gpu_meter import CounterMeter, Meter
from roofmon.calibration.manifest import load_probes
from roofmon.calibration.run import NotApplicableError
from roofmon.counters.hold import Hold, holders
from roofmon.counters.meter_messages import Counted
from roofmon.counters.metric_sets import L2
from roofmon.model.roofline import Ceiling, Roofline
from roofmon.resources import probes_dir

PROBE = next(p for p in load_probes([probes_dir()])[0] if p.name == "gpu-l2-sampled")
RATE = 1.5 * REQUESTED_RATE


def measured_with(meter: Meter | None) -> Ceiling:
    gpu: Any = SimulatedGpu()
    readings: Any = SimulatedReadings()
    return GpuBench(gpu, "full", HeldClocks(readings), Roofline(), meter).measure(PROBE)


class MadeUpMeter:
    """Samples of 1 ms that count `rate` byte/s, and a tenth of it outside the time of the probe."""

    def __init__(self, rate: float, skew_ns: int = 0) -> None:
        self._rate, self._skew_ns = rate, skew_ns
        self.closed = False

    def prepare(self) -> None:
        pass

    def begin(self) -> None:
        self._began_ns = time.time_ns()

    def end(self) -> Counted:
        now = time.time_ns()
        self.busy_ns = now - self._began_ns - 50_000_000  # less what is not counted yet
        start = [*range(self._began_ns - 200_000_000, now + 200_000_000, 1_000_000)]
        inside = [self._began_ns <= ns and ns + 1_000_000 <= now for ns in start]
        counts = [self._rate * 1e-3 * (1.0 if busy else 0.1) for busy in inside]
        moved = [ns + self._skew_ns for ns in start]
        return Counted(moved, [ns + 1_000_000 for ns in moved], counts)

    def close(self) -> None:
        self.closed = True


def test_the_roof_is_what_the_counter_counts_while_the_gpu_is_busy() -> None:
    meter = MadeUpMeter(RATE)
    ceiling = measured_with(meter)
    assert ceiling.value == pytest.approx(RATE)
    assert (ceiling.level, ceiling.counts, ceiling.name) == ("l2", "lts__t_bytes", "L2 sampled")
    assert (ceiling.regime, ceiling.probe, ceiling.flags) == ("sustained", "gpu-l2-sampled", ())
    assert ceiling.n >= 10
    assert ceiling.n * 10_000_000 <= meter.busy_ns
    assert ceiling.ci_low < ceiling.value < ceiling.ci_high
    assert (ceiling.clock_hz, ceiling.memory_clock_hz) == (1.98e9, 3.2e9)
    assert meter.closed


@pytest.mark.parametrize(
    ("meter", "reason"),
    [
        (MadeUpMeter(0.5 * REQUESTED_RATE), "the counter saw 50 % of the bytes"),
        (MadeUpMeter(0.0), "the counter saw 0.0 % of the bytes"),
        (MadeUpMeter(RATE, skew_ns=10**12), "samples of only 0 × 10 ms of the counter"),
        (None, "there is nothing that could sample its counter"),
    ],
)
def test_samples_that_say_nothing_give_no_roof(meter: MadeUpMeter | None, reason: str) -> None:
    with pytest.raises(NotApplicableError, match=reason):
        measured_with(meter)
    assert meter is None or meter.closed


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_double(tmp_path_factory.mktemp("cupti"))


@pytest.fixture
def device(
    libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_directories: Path
) -> Iterator[PmSamplingDouble]:
    """A GPU whose L2 counter counts at `RATE`, for every process that the test starts."""
    with machine():
        yield _device(libraries, tmp_path, monkeypatch)


def _device(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PmSamplingDouble:
    double = PmSamplingDouble(libraries, tmp_path)
    double.set({f"kernel{n}.{L2}": None for n in range(20)} | {f"rate.{L2}": RATE / 1e9})
    for name, value in double.env.items():
        monkeypatch.setenv(name, value)
    return double


@needs_cupti_python
def test_live_counters_give_the_roof_and_are_free_again(device: PmSamplingDouble) -> None:
    meter = CounterMeter(UUID, L2)
    ceiling = measured_with(meter)
    assert ceiling.value == pytest.approx(RATE, rel=1e-3)
    assert ceiling.n >= 10
    assert holders() == {}
    assert psutil.Process().children() == []
    # Somebody else can have them, so nobody holds the hardware either.
    assert measured_with(CounterMeter(UUID, L2)).counts == "lts__t_bytes"
    with pytest.raises(NotApplicableError, match="sampled before"):
        measured_with(meter)


@needs_cupti_python
def test_live_counters_are_taken_while_other_probes_run(device: PmSamplingDouble) -> None:
    meter = CounterMeter(UUID, L2)
    meter.prepare()
    wait_until(lambda: holders() != {})
    began = time.monotonic()
    time.sleep(0.5)  # other probes
    meter.begin()
    assert time.monotonic() - began < 1.0
    meter.close()
    wait_until(lambda: holders() == {})


@needs_cupti_python
@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ({"fail.cuptiPmSamplingEnable": 35}, "ERR_NVGPUCTRPERM"),
        ({"fail.cuptiPmSamplingEnable": 26}, "held by another tool"),
        ({"unknown": L2}, "cannot be sampled on this GPU"),
        ({"driver": 12080}, "the driver supports CUDA 12.8 only"),
        ({"overflow_at": 3}, "samples were lost"),
    ],
)
def test_live_counters_that_cannot_be_had_give_a_reason(
    device: PmSamplingDouble, scenario: dict[str, object], reason: str
) -> None:
    device.set(scenario)
    with pytest.raises(NotApplicableError, match=reason):
        measured_with(CounterMeter(UUID, L2))
    assert psutil.Process().children() == []


@needs_cupti_python
def test_live_counters_of_another_roofmon_are_left_to_it(device: PmSamplingDouble) -> None:
    hold = Hold(UUID)
    assert hold.take() is None
    with pytest.raises(NotApplicableError, match=rf"another roofmon \({os.getpid()}\) has"):
        measured_with(CounterMeter(UUID, L2))
    hold.give_back()


@needs_cupti_python
def test_live_sampling_ends_with_the_process_that_measures(device: PmSamplingDouble) -> None:
    program = (
        "import time\n"
        "from roofmon.calibration.gpu_meter import CounterMeter\n"
        f"meter = CounterMeter({UUID!r}, {L2!r}); meter.begin()\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as measuring:
        assert measuring.stdout is not None
        assert measuring.stdout.readline() == b"ready\n"
        (sampling,) = psutil.Process(measuring.pid).children()
        assert list(holders().values()) == [sampling.pid]
        measuring.send_signal(signal.SIGKILL)
    wait_until(lambda: not sampling.is_running() or sampling.status() == psutil.STATUS_ZOMBIE)
    wait_until(lambda: holders() == {})  # its last threads may end after its first


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
