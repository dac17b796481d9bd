"""CUDA programs for tests, without a GPU: compiled from `doubles/cuda` and `doubles/cupti`, with the real
injected library in them.

`cuda` is the fixture: start programs with it, tell them what to launch, attach to them. Import `cuda`,
`cuda_builds` and `runtime` (of tests/tracing/conftest.py, or one of your own) in a `conftest.py` to use it.
"""

import contextlib
import fcntl
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from roofmon.tracing.endpoints import Endpoint, find_endpoints
from roofmon.tracing.inject import build
from roofmon.tracing.trace_protocol import Device, Drops, Event, Kernels, Name, State, Transfers
from roofmon.tracing.trace_reader import TraceConnection

DEADLINE_S = 20.0
_SOURCES = Path(__file__).parent / "doubles"
_STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread")
_LIBRARY = ("-shared", "-fPIC", "-fvisibility=hidden")


class CudaBuild:
    """A folder with the program, the stand-ins and the injected library.

    `sanitizer` is what gcc's -fsanitize is given, "" for none.
    """

    def __init__(self, folder: Path, sanitizer: str) -> None:
        self.folder = folder
        self.sanitizer = sanitizer
        self.program = folder / "program"
        self.library = folder / "inject" / "libroofmon_trace.so"
        # As pip lays out the packages of CUDA 12.
        self.other_cupti = folder / "cuda_cupti" / "lib" / "libcupti.so.12"
        self.runtime = folder / "cuda_runtime" / "lib" / "libcudart.so.12"

    def compile(self, compiler: str) -> None:
        """Compiles all of it, where that has not been done."""
        if self.library.exists():
            return
        for path in (self.library, self.other_cupti, self.runtime):
            path.parent.mkdir(parents=True, exist_ok=True)
        flags = [*_STRICT, *([f"-fsanitize={self.sanitizer}"] if self.sanitizer else [])]

        def compile_to(output: Path, *arguments: str | Path) -> None:
            command = [compiler, *flags, "-o", output, *arguments, "-ldl"]
            subprocess.run(command, check=True, timeout=120)

        driver = self.folder / "libcuda.so.1"
        cupti = _SOURCES / "cupti" / "cupti.c"
        compile_to(driver, *_LIBRARY, f"-Wl,-soname,{driver.name}", _SOURCES / "cuda" / "driver.c")
        for path, version in ((self.folder / "libcupti.so.13", "130001"), (self.other_cupti, "28")):
            names = (f"-Wl,-soname,{path.name}", f"-DVERSION={version}")
            compile_to(path, *_LIBRARY, *names, cupti, driver)
        compile_to(self.runtime, *_LIBRARY, "-x", "c", "/dev/null")
        # The program finds its driver by itself: set-user-id programs ignore LD_LIBRARY_PATH.
        search = f"-Wl,-rpath,{self.folder}"
        compile_to(self.program, _SOURCES / "cuda" / "program.c", driver, search)
        optimised = ["-O1"] if self.sanitizer else []
        compile_to(self.library, *build.FLAGS, *optimised, *build.sources())


@pytest.fixture(scope="session")
def cuda_builds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CudaBuild]:
    """Compiles everything, once for each sanitizer and for all processes that run tests."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the CUDA doubles need a C compiler")
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    @cache
    def make(sanitizer: str) -> CudaBuild:
        made = CudaBuild(shared / f"cuda-{sanitizer.replace(',', '-') or 'plain'}", sanitizer)
        made.folder.mkdir(exist_ok=True)
        with (made.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            made.compile(compiler)
        return made

    return make


class TracedProgram:
    """A running stand-in program; `do` gives it a line of work and waits until it is done."""

    def __init__(self, command: list[str | Path], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.pid = self.process.pid
        self.printed = ""
        self.given: list[str] = []

    def start(self, *lines: str) -> None:
        """Gives it work without waiting."""
        assert self.process.stdin is not None
        for line in lines:
            self.given.append(line)
            self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, word: str) -> list[str]:
        """Reads until the line `word`; returns the lines before it."""
        assert self.process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != word:
            line = self.process.stdout.readline()
            assert line, (self.printed, self.process.communicate()[1])
            self.printed += line
            lines.append(line.rstrip("\n"))
        return lines[:-1]

    def do(self, *lines: str) -> list[str]:
        """Gives it work and waits; returns what it printed meanwhile."""
        printed: list[str] = []
        for line in lines:
            self.start(line)
            printed += self.wait(line.split()[0] + " done")
        return printed

    def finish(self, *lines: str) -> tuple[int, str]:
        """Gives it the last of its work and closes its input: exit code, and all that it printed."""
        self.given += lines
        out, err = self.process.communicate("".join(f"{line}\n" for line in lines), DEADLINE_S)
        assert err == "", err
        return self.process.returncode, self.printed + out

    def endpoint(self) -> Endpoint:
        """Its socket, as soon as it is there."""
        return wait_for(lambda: endpoint_of(self.pid))

    def attach(self, state: str = "tracing") -> "TraceMonitor":
        """A monitor that has been told `state`."""
        monitor = TraceMonitor(self.endpoint())
        monitor.wait(lambda: monitor.state == state)
        return monitor

    def wait_until_detached(self) -> None:
        """Until the library has closed its side of all connections."""
        wait_for(lambda: len(self._sockets()) == 1)

    def _sockets(self) -> list[str]:
        found = []
        for link in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(str(link.readlink()))
        return [target for target in found if target.startswith("socket:")]


class TraceMonitor:
    """A connection and all that it has received."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.connection = TraceConnection(endpoint)
        self.events: list[Event] = []

    def wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not until():
            assert time.monotonic() < deadline, (len(self.kernels), self.drops, self.states)
            assert self.connection.closed is None, self.connection.closed
            select.select([self.connection], [], [], 0.2)
            self.events += self.connection.receive()

    def wait_for_end(self) -> None:
        while self.connection.closed is None:
            select.select([self.connection], [], [], DEADLINE_S)
            self.events += self.connection.receive()
        assert self.connection.closed == "the program ended"

    def wait_for_count(self, count: int) -> None:
        """Until records and drops are `count` together; fails where they are more."""
        self.wait(lambda: self.count >= count)
        assert self.count == count

    def detach(self) -> None:
        self.connection.close()

    @property
    def kernels(self) -> np.ndarray:
        return joined(event.records for event in self.events if isinstance(event, Kernels))

    @property
    def transfers(self) -> np.ndarray:
        return joined(event.records for event in self.events if isinstance(event, Transfers))

    @property
    def drops(self) -> int:
        return max([event.count for event in self.events if isinstance(event, Drops)], default=0)

    @property
    def count(self) -> int:
        return len(self.kernels) + len(self.transfers) + self.drops

    @property
    def names(self) -> dict[int, str]:
        return {event.id: event.name for event in self.events if isinstance(event, Name)}

    @property
    def devices(self) -> dict[int, Device]:
        return {event.index: event for event in self.events if isinstance(event, Device)}

    @property
    def states(self) -> list[State]:
        return [event for event in self.events if isinstance(event, State)]

    @property
    def state(self) -> str:
        return self.states[-1].state if self.states else ""

    def launches(self, name: str) -> int:
        ids = [number for number, given in self.names.items() if given == name]
        return int(np.isin(self.kernels["name"], ids).sum()) if len(self.kernels) else 0


class CudaDouble:
    """Starts programs; they are killed when the test is over."""

    def __init__(self, build: CudaBuild) -> None:
        self.build = build
        self._programs: list[TracedProgram] = []

    def environment(self, *, traced: bool = True, **settings: int | str) -> dict[str, str]:
        """What a program is started with. Settings of the stand-ins; in capitals, variables."""
        plain = {key: str(value) for key, value in settings.items() if key.isupper()}
        double = [f"{key}={value}" for key, value in settings.items() if not key.isupper()]
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("CUDA")},
            "LD_LIBRARY_PATH": str(self.build.folder),
            "CUDA_DOUBLE": ",".join(double).replace("__", "."),
            # Threads that are stopped by the end of the process keep what they had.
            "ASAN_OPTIONS": "detect_leaks=0",
            "TSAN_OPTIONS": "report_thread_leaks=0",
            **({"CUDA_INJECTION64_PATH": str(self.build.library)} if traced else {}),
            **plain,
        }

    def start(
        self,
        *arguments: str,
        traced: bool = True,
        program: Path | None = None,
        **settings: int | str,
    ) -> TracedProgram:
        """A program, ready for its first line of work."""
        environment = self.environment(traced=traced, **settings)
        started = TracedProgram([program or self.build.program, *arguments], environment)
        self._programs.append(started)
        if not arguments:
            started.wait("ready")
        return started

    def check_unharmed(self, program: TracedProgram, *last_lines: str) -> None:
        """Ends the program; exit code and output must be those of the same work without roofmon."""
        traced = program.finish(*last_lines)
        plain = self.start(traced=False)
        assert plain.finish(*program.given) == traced

    def close(self) -> None:
        for program in self._programs:
            program.process.kill()
            program.process.communicate()


@pytest.fixture
def cuda(cuda_builds: Callable[[str], CudaBuild], runtime: Path) -> Iterator[CudaDouble]:
    """The doubles, with the sanitizer that $ROOFMON_SANITIZER names, as gcc's -fsanitize does."""
    double = CudaDouble(cuda_builds(os.environ.get("ROOFMON_SANITIZER", "")))
    yield double
    double.close()


def endpoint_of(pid: int) -> Endpoint | None:
    return next((e for e in find_endpoints("trace") if e.pid == pid), None)


def joined(batches: Iterable[np.ndarray]) -> np.ndarray:
    parts = list(batches)
    return np.concatenate(parts) if parts else np.empty(0)


def wait_for(value):
    """The first true value of `value()`."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := value()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found
