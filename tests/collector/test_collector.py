"""The real collector with real programs: rows, restarts, death of workers, and nothing left behind."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from command_lines import words_of
from watched_gpus import Watched

from roofmon.model.snapshot import Snapshot
from roofmon.model.table import Column
from roofmon.resources import probes_dir
from roofmon.stream.messages import Command

PROGRAM = str(Path(__file__).with_name("program.py"))
_NUMBERS = itertools.count()


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directories of our own, so that no other program or cache is seen."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    for name in ("CONFIG", "CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    return tmp_path


@pytest.fixture
def watched(private: Path) -> Iterator[Watched]:
    made = Watched("--device", "cpu")
    yield made
    made.consumer.close()


class Program:
    """A running program.py under a name that no other test's program has: the collector sees those."""

    def __init__(self, seconds: float, flops: str = "2e6", name: str = "") -> None:
        self.name = name or f"program-{os.getpid()}-{next(_NUMBERS)}.py"
        self._process = subprocess.Popen([sys.executable, PROGRAM, self.name, str(seconds), flops])
        self.pid = self._process.pid

    def rows(self, snapshot: Snapshot) -> dict[str, int]:
        """Row by kernel name, of this program's name."""
        descriptions = enumerate(snapshot.kernels.descriptions)
        return {d.name: row for row, d in descriptions if d.process == self.name}

    def column(self, snapshot: Snapshot, column: Column) -> list[float]:
        return snapshot.kernels.column(column)[list(self.rows(snapshot).values())].tolist()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> None:
        self._process.wait(20)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    made: list[Program] = []

    def start(*arguments: object, **more: str) -> Program:
        made.append(Program(*arguments, **more))
        return made[-1]

    yield start
    for one in made:
        one.kill()


Start = Callable[..., Program]


def test_a_program_appears_with_its_work_and_goes_without_losing_its_rows(
    watched: Watched, program: Start
) -> None:
    train = program(1.5, "2e6")
    watched.until(lambda s: train.name in s.programs.values() and len(train.rows(s)) == 2)
    train.wait()
    snapshot = watched.until(lambda s: train.pid not in s.programs)
    rows, table = train.rows(snapshot), snapshot.kernels
    outer, inner = rows["outer"], rows["inner"]
    launches = table.column(Column.LAUNCHES)
    assert launches[outer] == launches[inner] > 20
    assert table.flops["vector/fp64"].values[inner] == 2e6
    assert table.bytes["llc"].values[inner] == 500
    assert table.bytes["dram"].values[outer] == 1000
    assert np.isnan(table.flops["vector/fp64"].values[outer])  # not declared is not zero
    assert table.column(Column.MEDIAN_NS)[inner] >= 1e6
    # The nested region's time lies inside the outer one's and is not counted again.
    assert table.column(Column.OUTER_NS)[inner] == 0
    assert table.column(Column.OUTER_NS)[outer] == table.column(Column.TOTAL_NS)[outer]


@pytest.mark.slow
def test_the_next_run_of_a_program_replaces_the_rows_of_the_ended_one(
    watched: Watched, program: Start
) -> None:
    first = program(1.5)
    watched.until(lambda s: len(first.rows(s)) == 2)
    first.wait()
    watched.until(lambda s: first.pid not in s.programs)
    second = program(20, name=first.name)
    watched.until(
        lambda s: (
            {d.pid for d in s.kernels.descriptions if d.process == first.name} == {second.pid}
            and len(second.rows(s)) == 2
        )
    )


def test_two_programs_at_once_have_rows_of_their_own(watched: Watched, program: Start) -> None:
    one, other = program(20, "1e6"), program(20, "3e6")
    snapshot = watched.until(lambda s: len(one.rows(s)) == len(other.rows(s)) == 2)
    flops = snapshot.kernels.flops["vector/fp64"].values
    assert flops[one.rows(snapshot)["inner"]] == 1e6
    assert flops[other.rows(snapshot)["inner"]] == 3e6


def test_reset_begins_statistics_anew(watched: Watched, program: Start) -> None:
    train = program(20)
    watched.until(lambda s: max(train.column(s, Column.LAUNCHES), default=0) > 300)
    assert watched.consumer.send(Command(command="reset"))
    watched.until(
        lambda s: len(train.rows(s)) == 2 and 0 < max(train.column(s, Column.LAUNCHES)) < 300
    )


def test_a_row_that_stops_running_has_a_rate_of_zero(watched: Watched, program: Start) -> None:
    train = program(20)
    watched.until(lambda s: max(train.column(s, Column.LAUNCH_RATE), default=0) > 100)
    train.signal(signal.SIGSTOP)
    watched.until(lambda s: train.column(s, Column.LAUNCH_RATE) == [0, 0])


def test_a_killed_telemetry_worker_is_told_and_replaced(watched: Watched) -> None:
    watched.until(lambda s: bool(s.devices) and s.devices[0].sample is not None)
    find_child("roofmon.telemetry.worker").kill()
    snapshot = watched.until(lambda s: any("telemetry" in n.what for n in s.notices))
    assert any("signal 9" in n.what for n in snapshot.notices)
    killed = time.time_ns()
    watched.until(
        lambda s: s.devices[0].sample is not None and s.devices[0].sample.time_unix_ns > killed
    )


def find_child(module: str) -> psutil.Process:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        for child in psutil.Process().children(recursive=True):
            if module in words_of(child):
                return child
        time.sleep(0.02)
    raise AssertionError(f"no {module} among our children")


def find(parent: psutil.Process, module: str, pid: int) -> bool:
    return any(c.pid == pid and module in words_of(c) for c in parent.children())


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=pytest.mark.slow) for how in ("close", "term")] + ["kill"]
)
def test_nothing_is_left_behind(private: Path, how: str) -> None:
    watched = Watched("--device", "cpu", "--demo")
    # Telemetry and the demo's workload both run: the two kinds of children there are.
    collector = find_child("roofmon.collector")
    watched.until(
        lambda s: bool(s.devices) and any(find(collector, "roofmon.demo", p) for p in s.programs)
    )
    children = [collector, *collector.children(recursive=True)]
    assert len(children) >= 3
    if how == "close":
        watched.consumer.close()
    else:
        os.kill(collector.pid, signal.SIGKILL if how == "kill" else signal.SIGTERM)
        time.sleep(0.1)
        watched.consumer.close()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive
    assert not list((private / "run").rglob("*.sock"))


@pytest.fixture
def calibrating(private: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A collector that measures roofs by two probes."""
    probes = private / "probes"
    probes.mkdir()
    for name in ("copy", "gemm-fp32"):
        shutil.copy(probes_dir() / f"{name}.toml", probes)
    monkeypatch.setenv("ROOFMON_PROBES", str(probes))
    made = Watched("--device", "cpu", calibrate=True)
    yield made
    made.consumer.close()


def measured(snapshot: Snapshot) -> dict[str, float]:
    """When each probe's ceiling was measured."""
    return {c.probe: c.time_unix_s for d in snapshot.devices for c in d.roofline.ceilings}


@pytest.mark.slow
def test_roofs_are_measured_again_or_not_as_one_asks(calibrating: Watched) -> None:
    def ended(snapshot: Snapshot) -> bool:
        return bool(snapshot.devices) and snapshot.devices[0].progress is None

    first = measured(calibrating.until(lambda s: ended(s) and len(measured(s)) == 2, 60))
    assert calibrating.consumer.send(Command(command="calibrate"))
    # The roofs of before stand while they are measured again.
    calibrating.until(lambda s: not ended(s) and measured(s) == first)
    again = measured(
        calibrating.until(
            lambda s: ended(s) and not set(measured(s).values()) & set(first.values()), 60
        )
    )
    assert set(again) == set(first)
    assert calibrating.consumer.send(Command(command="calibrate"))
    calibrating.until(lambda s: not ended(s))
    assert calibrating.consumer.send(Command(command="stop-calibration"))
    assert set(measured(calibrating.until(ended))) == set(first)
