"""traced_loops.py as a process with the injected library in it, and a monitor that only counts."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from asked_program import AskedProgram, plain_environment

from roofmon.program.environment import INJECTION
from roofmon.tracing.endpoints import Endpoint, find_endpoints
from roofmon.tracing.inject.build import library_path
from roofmon.tracing.trace_protocol import Device, Drops, Kernels, Name, State, Transfers
from roofmon.tracing.trace_reader import TraceConnection

LOOPS = Path(__file__).with_name("traced_loops.py")
DEADLINE_S = 60.0
END_S = 20.0


class TracedLoops(AskedProgram):
    """The running program. `python` may be another environment's interpreter, with torch in it; `library`
    another build of the injected one. `early` attaches as soon as there is a socket, while the driver is
    being initialised, as `roofmon run` does: then there is a `monitor`."""

    def __init__(
        self,
        *,
        traced: bool = True,
        core: int | None = None,
        python: str = sys.executable,
        library: Path | None = None,
        early: bool = False,
    ) -> None:
        environment = plain_environment()
        if traced:
            environment[INJECTION] = str(library or library_path())
        super().__init__(LOOPS, environment, core, python)
        self.monitor: CountingMonitor | None = None
        try:
            if early:
                self.monitor = CountingMonitor(self.endpoint(DEADLINE_S))
            self.wait_ready()
        except BaseException:
            self.close()
            raise

    def result(self) -> dict[str, Any]:
        return self.answer(DEADLINE_S)

    def run(self, command: str) -> dict[str, Any]:
        """One piece of work; fails where its result is wrong."""
        self.start(command)
        found = self.result()
        assert found["good"], (command, found)
        return found

    def held_bytes(self) -> int:
        """GPU memory that it holds, or all that is used where the driver does not list it."""
        query = ["nvidia-smi", "--format=csv,noheader,nounits"]
        apps = [*query, "--query-compute-apps=pid,used_memory"]
        for line in _output(apps):
            pid, _, mib = line.partition(",")
            if pid.strip() == str(self.process.pid) and mib.strip().isdigit():
                return int(mib) << 20
        return sum(int(mib) << 20 for mib in _output([*query, "--query-gpu=memory.used"]))

    def endpoint(self, seconds: float = 10.0) -> Endpoint:
        deadline = time.monotonic() + seconds
        while True:
            for endpoint in find_endpoints("trace"):
                if endpoint.pid == self.process.pid:
                    return endpoint
            assert self.process.poll() is None, self._end()
            assert time.monotonic() < deadline, "the library does not listen"
            time.sleep(0.02)

    def attach(self, state: str = "tracing") -> "CountingMonitor":
        monitor = CountingMonitor(self.endpoint())
        try:
            monitor.wait(lambda: monitor.state in (state, "failed"))
        except EOFError as error:
            raise AssertionError(f"{error}; {self._end()}") from None
        assert monitor.state == state, monitor.states
        return monitor


def _output(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    return done.stdout.splitlines()


class CountingMonitor:
    """Reads in a thread of its own, and keeps counts; `keep` keeps the records too. `longest_wait_ns` is
    from the end of a kernel to the arrival of its record."""

    def __init__(self, endpoint: Endpoint, keep: bool = True) -> None:
        self.connection = TraceConnection(endpoint)
        self.keep = keep
        self.kernels = self.transfers = self.drops = 0
        self.graph_kernels = self.longest_wait_ns = 0
        self.batches: list[np.ndarray] = []
        self.transfer_batches: list[np.ndarray] = []
        self.names: dict[int, str] = {}
        self.devices: list[Device] = []
        self.states: list[State] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._detaching = False
        self._thread.start()

    def _read(self) -> None:
        while self.connection.closed is None and not self._detaching:
            events = self.connection.receive()
            for event in events:
                match event:
                    case Kernels(records):
                        self.kernels += len(records)
                        waited = time.time_ns() - int(records["end_ns"].min())
                        self.longest_wait_ns = max(self.longest_wait_ns, waited)
                        self.graph_kernels += int((records["graph"] != 0).sum())
                        if self.keep:
                            self.batches.append(records)
                    case Transfers(records):
                        self.transfers += len(records)
                        if self.keep:
                            self.transfer_batches.append(records)
                    case Drops(count):
                        self.drops = count
                    case Name(number, name):
                        self.names[number] = name
                    case Device():
                        self.devices.append(event)
                    case State():
                        self.states.append(event)
            if not events:
                time.sleep(0.002)

    @property
    def state(self) -> str:
        return self.states[-1].state if self.states else ""

    @property
    def records(self) -> np.ndarray:
        """The kernels so far, in the order of their starts."""
        joined = np.concatenate(list(self.batches))
        return joined[np.argsort(joined["start_ns"])]

    def wait(self, until, seconds: float = DEADLINE_S) -> None:
        """Raises EOFError where the connection ended before."""
        deadline = time.monotonic() + seconds
        while not until():
            shown = (self.kernels, self.transfers, self.drops, self.states, self.connection.closed)
            if not self._thread.is_alive() and not until():
                raise EOFError(f"the connection ended: {shown}")
            assert time.monotonic() < deadline, shown
            time.sleep(0.002)

    def settle(self) -> None:
        """Until nothing has come for half a second."""
        seen, since = -1, time.monotonic()
        deadline = since + DEADLINE_S
        while time.monotonic() - since < 0.5:
            assert time.monotonic() < deadline, "records keep coming"
            now = self.kernels + self.transfers + self.drops
            if now != seen:
                seen, since = now, time.monotonic()
            time.sleep(0.02)

    def detach(self) -> None:
        self._detaching = True
        self._thread.join(END_S)
        self.connection.close()


def start_together(**options: dict[str, Any]) -> "dict[str, TracedLoops | str]":
    """Programs by name, started at the same time; a text instead of one that did not start."""
    with ThreadPoolExecutor(len(options)) as pool:
        starting = {name: pool.submit(TracedLoops, **given) for name, given in options.items()}
    started: dict[str, TracedLoops | str] = {}
    for name, future in starting.items():
        error = future.exception()
        started[name] = future.result() if error is None else f"did not start: {str(error)[-600:]}"
    return started
