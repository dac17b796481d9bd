"""What is left of a calibration is measured while the GPU is idle, and later where others needed it."""

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from roofmon.collector.calibration import IDLE_S, Calibrations
from roofmon.collector.host_state import HostState
from roofmon.collector.workers import Process
from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.session import Progress
from roofmon.stream.messages import Describe, Message, ProgressMessage, Tick

GPU = DeviceDescription(uuid="GPU-none", index=0, name="a GPU", kind="cuda")


@dataclass
class Collector:
    """What a collector does for its calibrations, with a clock of its own.

    The workers are real ones, which find no such GPU; what they say and how they end is told here.
    """

    now: float = 100.0
    started: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.host = HostState(lambda message: None)
        self.calibrations = Calibrations(
            self.host, self._watch, lambda process: None, subprocess.DEVNULL, measure=True
        )
        self.host.take(Describe(devices=[GPU]))
        self.calibrations.begin([GPU], GPU.uuid)

    def _watch(
        self, process: Process, take: Callable[[Message], None], ended: Callable[[str], None]
    ) -> None:
        self.started.append(process)
        self.take, self._ended = take, ended

    def end(self, problem: str = "") -> None:
        """The worker ends."""
        self.started[-1].end()
        self._ended(problem)

    def tell(self, done: int) -> None:
        """The worker says how far it is, of 2."""
        progress = Progress(task="calibration", device=GPU.uuid, done=done, total=2, text="")
        self.take(ProgressMessage(progress=progress))

    def idle(self, seconds: float, load: float = 0.0) -> int:
        """Time goes by with this load; returns how many workers there have been."""
        sample = DeviceSample(device=GPU.uuid, time_unix_ns=time.time_ns(), load=load)
        tick = Tick(sequence=1, time_unix_ns=sample.time_unix_ns, interval_ns=1, samples=[sample])
        self.host.take(tick)
        self.calibrations.supervise(self.now)
        self.now += seconds
        self.calibrations.supervise(self.now)
        return len(self.started)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    made.tell(2)
    made.end()  # the few at the start
    yield made
    made.calibrations.close()


def test_what_is_left_is_measured_once_the_gpu_is_idle(collector: Collector) -> None:
    assert collector.idle(IDLE_S, load=0.5) == 1
    assert collector.idle(IDLE_S - 1) == 1
    assert collector.idle(2) == 2
    collector.tell(2)
    collector.end()
    assert collector.idle(1000) == 2


def test_it_is_put_off_for_longer_each_time_that_others_need_the_gpu(collector: Collector) -> None:
    assert collector.idle(IDLE_S) == 2
    collector.tell(1)
    assert GPU.uuid in collector.host.progress
    collector.end()
    assert GPU.uuid not in collector.host.progress
    assert collector.idle(1, load=0.5) == 2
    assert collector.idle(2 * IDLE_S - 1) == 2
    assert collector.idle(2) == 3


@pytest.mark.parametrize("how", ["fails", "stopped", "asked for"])
def test_it_is_not_tried_again_after_a_failure_or_a_word_of_the_user(
    collector: Collector, how: str
) -> None:
    assert collector.idle(IDLE_S) == 2
    if how == "fails":
        collector.end("exit code 1")
    elif how == "stopped":
        collector.calibrations.stop()
    else:
        collector.calibrations.ask(GPU.uuid, thorough=False)
        assert len(collector.started) == 3
        collector.tell(2)
        collector.end()
    before = len(collector.started)
    collector.idle(1, load=0.5)
    assert collector.idle(1000) == before
