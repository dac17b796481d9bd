"""The parts of live counters that need no process: windows, names of tools, sets of metrics, locks."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
from counters_process import batch_of, machine

from roofmon.counters.hold import Hold, holders, is_counters_worker
from roofmon.counters.metric_sets import DRAM_READ, DRAM_WRITE, L2, SETS, candidate_sets
from roofmon.counters.overlap import Launches
from roofmon.counters.rivals import profiler_named, service_named
from roofmon.counters.samples import Samples
from roofmon.counters.session import CountersSession
from roofmon.counters.waiting import WINDOW_NS, Waiting
from roofmon.counters.worker_messages import Health

MS = 1_000_000
T0 = 1_800_000_000_000_000_000


def samples(first, count, metrics=("a",)):
    start = T0 + MS * np.arange(first, first + count)
    return Samples(metrics, start, start + MS, np.ones((count, len(metrics))))


def launches(*spans_ms):
    start, end = (np.array(column) * MS + T0 for column in zip(*spans_ms, strict=True))
    return Launches(np.arange(len(start)), start, end)


def test_a_window_waits_for_samples_and_for_launches():
    waiting = Waiting()
    assert waiting.take(0.0) is None
    waiting.add_samples(samples(0, 1500))
    assert waiting.take(0.0) is None  # nothing is known of what ran
    waiting.add_batch(batch_of(launches((1, 2), (600, 601)), T0 + 900 * MS, T0))
    assert waiting.take(0.0) is None  # under a second of it is complete
    waiting.add_batch(batch_of(launches((950, 951), (1300, 1301)), T0 + 1400 * MS, T0 + 900 * MS))
    window = waiting.take(0.0)
    # Launches up to 1400 ms are known; 2 ms are left for a step of the clocks.
    assert (window.samples.start_ns[0] - T0) // MS == 0
    assert (window.samples.end_ns[-1] - T0) // MS == 1398
    assert window.launches.kernel.tolist() == [0, 1, 0, 1]
    assert window.traced_ns.tolist() == [[T0, T0 + 1400 * MS]]  # joined
    assert waiting.take(0.0) is None
    waiting.add_samples(samples(1500, 1000))
    waiting.add_batch(batch_of(launches((2000, 2001)), T0 + 2500 * MS, T0 + 1400 * MS))
    assert (waiting.take(0.0).samples.start_ns[0] - T0) // MS == 1398


def test_a_launch_across_two_windows_is_in_both():
    waiting = Waiting()
    waiting.add_samples(samples(0, 2500))
    waiting.add_batch(batch_of(launches((1000, 1200)), T0 + 1100 * MS, T0))
    assert len(waiting.take(0.0).launches) == 1
    waiting.add_batch(batch_of(launches((1500, 1501)), T0 + 2200 * MS, T0))
    assert waiting.take(0.0).launches.kernel.tolist() == [0, 0]


def test_the_distance_of_the_clocks_moves_the_end_of_a_window():
    waiting = Waiting()
    waiting.add_samples(samples(0, 3000))
    waiting.add_batch(batch_of(launches((1, 2)), T0 + 1500 * MS, T0, lost_ns=_span(700, 800)))
    window = waiting.take(100.0 * MS)
    assert (window.samples.end_ns[-1] - T0) // MS == 1598
    assert window.lost_ns.tolist() == [[T0 + 800 * MS, T0 + 900 * MS]]


def test_what_waits_is_bounded_and_what_found_no_room_is_lost():
    waiting = Waiting()
    for second in range(30):  # and nothing is heard of launches
        waiting.add_samples(samples(1000 * second, 1000))
    assert waiting.dropped == 10_000
    many = np.arange(1_500_000)
    batch = batch_of(Launches(many % 7, T0 + many, T0 + many + 5), T0 + 2 * MS, T0)
    waiting.add_batch(batch)
    waiting.add_batch(batch)
    assert waiting.dropped == 10_000 + 1_500_000
    waiting.add_batch(batch_of(launches((20_000, 20_001)), T0 + 21_000 * MS, T0))
    window = waiting.take(0.0)
    assert window.lost_ns.tolist() == [[T0, T0 + 1_499_999 + 5]]
    assert window.samples.end_ns[-1] - window.samples.start_ns[0] >= WINDOW_NS


def test_another_set_of_metrics_begins_anew():
    waiting = Waiting()
    waiting.add_samples(samples(0, 900))
    waiting.add_samples(samples(900, 1500, metrics=("a", "b")))
    waiting.add_batch(batch_of(launches((1000, 1001)), T0 + 2400 * MS, T0))
    assert waiting.take(0.0).samples.values.shape[1] == 2


@pytest.mark.parametrize("name", ["ncu", "nsys", "nv-nsight-cu-cl", "dcgmi", "dcgmproftester1"])
def test_tools_that_take_the_counters(name):
    assert profiler_named(name) == name
    assert service_named(name) is None


@pytest.mark.parametrize("name", ["nv-hostengine", "dcgm-exporter"])
def test_services_that_may_take_the_counters(name):
    assert service_named(name) == name
    assert profiler_named(name) is None


@pytest.mark.parametrize(
    "name",
    ["", "ncurses", "ncu-ui", "sync", "python3", "nvidia-smi", "roofmon", "insncu", "nsys-ui"],
)
def test_other_programs_are_no_rivals(name):
    assert profiler_named(name) is None
    assert service_named(name) is None


def test_sets_are_cut_down_to_what_the_chip_has():
    assert candidate_sets(lambda name: True) == list(SETS)
    without = candidate_sets(lambda name: not name.startswith("dram"))
    assert without[0] == SETS[0][2:]
    assert all(L2 in names and DRAM_READ not in names for names in without)
    assert (DRAM_READ, DRAM_WRITE) not in without
    assert candidate_sets(lambda name: name == DRAM_WRITE) == [(DRAM_WRITE,)]
    assert candidate_sets(lambda name: name.startswith("sm__")) == []


class Punctual:
    """A source that notes when it is read; what comes later than half a period finds no room."""

    metrics, interval_us, overflows, gaps, ended, read_s = ("a",), 1000, 0, 0, False, 0.08

    def __init__(self):
        self.read_at = []

    def read(self):
        self.read_at.append(time.monotonic())
        return samples(80 * len(self.read_at), 80)

    def close(self):
        pass


def test_samples_are_read_when_they_are_due_and_their_rate_is_steady(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    source, said = Punctual(), []
    with machine():  # with no profiler on it
        session = CountersSession("GPU-a", lambda: source, said.append, idle_s=60.0)
        end = time.monotonic() + 2.3
        while time.monotonic() < end:
            time.sleep(session.step())
        session.close()
    assert np.median(np.diff(source.read_at)) < 1.25 * source.read_s
    rates = [told.samples_per_s for told in said if isinstance(told, Health)]
    assert rates == pytest.approx([1000] * 2, rel=0.3)


def test_a_lock_has_one_holder_at_a_time_and_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    code = (
        "import sys; from roofmon.counters.hold import Hold\n"
        "hold = Hold('GPU-a'); print(hold.take(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "None\n"
        mine = Hold("GPU-a")
        assert mine.take() == child.pid
        other = Hold("GPU-b")
        assert other.take() is None
        assert holders() == {"GPU-a": child.pid, "GPU-b": os.getpid()}
        other.give_back()
        assert holders() == {"GPU-a": child.pid}
        child.kill()
        child.wait()
    assert mine.take() is None
    assert mine.take() is None
    assert holders() == {"GPU-a": os.getpid()}
    mine.give_back()
    assert holders() == {}


def test_only_a_worker_may_be_signalled():
    assert not is_counters_worker(os.getpid())
    assert not is_counters_worker(0)


def _span(*ends_ms):
    return (np.array([ends_ms], "<i8") * MS + T0).tobytes()
