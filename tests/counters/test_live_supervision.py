"""The collector's side: workers are started, told, paused and replaced; what becomes of their words."""

import os
import selectors
import signal
import time

import numpy as np
import pytest
from counters_process import DEADLINE_S, machine, write_recording
from recording import load_excerpt, truth, window

from roofmon.collector.counters import Counters
from roofmon.collector.host_state import HostState
from roofmon.counters.hold import holders
from roofmon.model.device import DeviceDescription
from roofmon.model.kernel import KernelDescription
from roofmon.model.session import Notice
from roofmon.stream.messages import Describe, NoticeMessage

pytestmark = pytest.mark.slow
UUID = "GPU-00000000-0000-0000-0000-000000000000"
MS = 1_000_000


class Running:
    """A collector's loop around `Counters`."""

    def __init__(self, path):
        self.notices: list[Notice] = []
        self.selector = selectors.DefaultSelector()
        host = HostState(self._note)
        gpu = DeviceDescription(
            uuid=UUID, index=0, name="H200", kind="cuda", cores=132, compute_capability="9.0"
        )
        host.take(Describe(devices=[gpu]))
        self.names = [name for name, _, _ in load_excerpt()[3]]
        self.counters = Counters(self.selector, host, self._describe, 2, ["--recording", str(path)])

    def until(self, find, each=lambda: None):
        """Turns the loop until `find()` is true, and returns that."""
        deadline = time.monotonic() + 2 * DEADLINE_S
        while not (found := find()):
            assert time.monotonic() < deadline, (self.counters.rung(), self.notices)
            for key, _ in self.selector.select(0.05):
                key.data()
            each()
            self.counters.supervise(time.monotonic())
        return found

    def until_state(self, state):
        return self.until(lambda: (r := self.counters.rung()).state == state and r)

    def _note(self, message):
        if isinstance(message, NoticeMessage):
            self.notices.append(message.notice)

    def _describe(self, row):
        return KernelDescription(id=row, name=self.names[row], device=UUID)


@pytest.fixture
def running(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    samples, launches = window(load_excerpt(), "gemm_bf16", 1)
    with machine():
        found = Running(write_recording(tmp_path / "samples.npz", samples))
        found.launches = launches
        yield found
        found.counters.close()


def begin(running):
    """The first launches of a GPU start its worker."""
    ran = running.launches
    assert running.counters.rung().state == "waiting"
    running.counters.launched(UUID, ran.kernel, ran.start_ns, ran.end_ns)
    running.counters.advance(int(ran.start_ns.min()), {UUID: [1]})
    running.until_state("active")


def test_live_results_become_the_work_of_rows(running):
    begin(running)
    ran, counters = running.launches, running.counters
    counters.launched(UUID, ran.kernel, ran.start_ns, ran.end_ns)
    counters.launched("cpu", ran.kernel, ran.start_ns, ran.end_ns)  # which has no counters
    counters.advance(int(ran.end_ns.max()) + 10 * MS, {UUID: [1]})
    running.until(lambda: any(t.explained is not None for t in counters.traffic))
    (traffic,) = counters.traffic
    assert traffic.device == UUID
    assert traffic.explained == pytest.approx(1.0, abs=0.01)
    columns = {
        (c.kind, c.key, c.upper_bound): c
        for c in counters.work.columns(everything=False, standing=lambda _: True)
    }
    flops = columns["flops", "tensor/bf16", False]
    value = np.frombuffer(flops.values, "<f8").max()
    assert value == pytest.approx(truth(load_excerpt(), "gemm_bf16")["flops"], rel=0.01)
    assert ("bytes", "dram", False) in columns
    assert "samples/s" in running.until(lambda: counters.health and counters.rung().reason)


def test_live_a_calibration_gets_the_counters_and_gives_them_back(running):
    begin(running)
    running.counters.lend(UUID)
    assert running.until_state("off").reason == "its roofs are being measured"
    running.counters.pause(True)
    running.counters.pause(False)  # which is no reason to take them
    running.counters.lend(UUID)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        running.until(lambda: True)
        assert running.counters.rung().state == "off"
    running.counters.lend(None)
    running.until_state("active")


def test_live_a_pause_gives_the_counters_back(running):
    begin(running)
    running.counters.pause(True)
    assert running.until_state("off").reason == "the screen is paused"
    running.counters.pause(False)
    running.until_state("active")


def test_live_a_killed_worker_is_replaced(running):
    begin(running)
    first = holders()[UUID]
    os.kill(first, signal.SIGKILL)
    rung = running.until_state("unavailable")
    assert rung.reason == "the counters worker ended (signal 9)"
    assert "started again in 1 s" in rung.fix
    running.until_state("active")
    assert holders()[UUID] != first
    assert [n.what for n in running.notices] == ["the counters worker ended (signal 9)"]


def test_live_a_worker_that_hangs_never_blocks_the_collector_and_is_replaced(running):
    begin(running)
    first, counters = holders()[UUID], running.counters
    os.kill(first, signal.SIGSTOP)
    many = np.zeros(1_000_000, dtype=np.int64)
    start = np.arange(1_000_000) + int(running.launches.end_ns.max())
    begun, cpu = time.monotonic(), time.process_time()
    for number in range(4):  # 80 MB, of which only a part waits for it
        counters.launched(UUID, many, start, start + 5)
        counters.advance(int(start[-1]) + (number + 1) * MS, {UUID: [1]})
    assert time.process_time() - cpu < 5
    running.until_state("unavailable")
    assert time.monotonic() - begun > 9  # it had its time
    assert "has not answered" in running.notices[0].what
    running.until_state("active")
    assert holders()[UUID] != first
