"""Annotated programs as real processes that have nothing but a copy of region.py, and their monitors."""

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cuda_double import cuda, cuda_builds

import roofmon
from roofmon.tracing.endpoints import Endpoint, find_endpoints
from roofmon.tracing.protocol import Described, Drops, Event, Records
from roofmon.tracing.reader import RegionConnection

__all__ = ["cuda", "cuda_builds"]

DEADLINE_S = 20.0


class Program:
    """A running script. It may wait for `step()` with input(), and `read()` returns what it prints."""

    def __init__(self, script: str, path: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(path), **environment},
        )
        self.pid = self.process.pid

    def step(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def finish(self) -> str:
        """Waits for a good end; returns the rest of the output."""
        out, err = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0, err
        assert err == ""
        return out.strip()

    def endpoint(self, pid: int | None = None) -> Endpoint:
        wanted = self.pid if pid is None else pid
        return wait_for(lambda: next((e for e in find_endpoints() if e.pid == wanted), None))

    def connect(self, pid: int | None = None) -> "Monitor":
        return Monitor(self.endpoint(pid))

    def attach(self, pid: int | None = None) -> "Monitor":
        monitor = self.connect(pid)
        monitor.wait(lambda: bool(monitor.events))  # its HELLO: from here on it is heard
        return monitor


class Monitor:
    """A connection and all that it has received."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.connection = RegionConnection(endpoint)
        self.events: list[Event] = []

    def wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not until():
            assert time.monotonic() < deadline, (self.connection.closed, self.events[-3:])
            assert self.connection.closed is None, self.connection.closed
            select.select([self.connection], [], [], 0.2)
            self.events += self.connection.receive()

    def wait_for_end(self) -> None:
        self.wait(self._read_to_end)
        assert self.connection.closed == "the program ended"

    def _read_to_end(self) -> bool:
        while self.connection.closed is None:
            received = self.connection.receive()
            self.events += received
            if not received:
                break
        return self.connection.closed is not None

    @property
    def descriptions(self) -> dict[int, Described]:
        return {event.id: event for event in self.events if isinstance(event, Described)}

    @property
    def records(self) -> list[dict[str, float]]:
        """Records as dictionaries, with the `name` of their description."""
        descriptions = self.descriptions
        return [
            {**dict(zip(batch.dtype.names, row, strict=True)), "name": descriptions[row[0]].name}
            for batch in self.batches
            for row in batch.tolist()
        ]

    @property
    def batches(self):
        return [event.records for event in self.events if isinstance(event, Records)]

    @property
    def count(self) -> int:
        return sum(map(len, self.batches))

    @property
    def drops(self) -> int:
        return max([event.count for event in self.events if isinstance(event, Drops)], default=0)

    def named(self, name: str) -> list[dict[str, float]]:
        return [record for record in self.records if record["name"] == name]


def wait_for(value):
    """The first true value of `value()`."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := value()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory of the test's own; short, since a socket's path has at most 107 bytes."""
    directory = Path(tempfile.mkdtemp(prefix="roofmon-test-", dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def sockets(runtime: Path) -> Path:
    """The directory of the sockets, existing."""
    directory = runtime / "roofmon"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def start(runtime: Path, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts a script in a process that finds a copy of region.py on its path, and kills it after."""
    shutil.copy(Path(roofmon.__file__).parent / "region.py", tmp_path)
    programs: list[Program] = []

    def start_program(script: str, **environment: str) -> Program:
        programs.append(Program(script, tmp_path, environment))
        return programs[-1]

    yield start_program
    for program in programs:
        program.process.kill()
        program.process.communicate()
