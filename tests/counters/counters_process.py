"""A counters worker for tests: a real process on real pipes, told of launches and listened to."""

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from roofmon.counters.overlap import Launches
from roofmon.counters.samples import Samples
from roofmon.counters.worker_messages import Batch, Health, Heard, Order, Result, Said, State
from roofmon.stream.framing import Deframer, frame

DEADLINE_S = 20.0
T = TypeVar("T")


def batch_of(launches: Launches, until_ns: int, since_ns: int = 0, **more) -> Batch:
    """Launches as the collector tells them; all the time from `since_ns` was traced."""
    columns = {
        "kernel": launches.kernel.astype("<u4").tobytes(),
        "start_ns": launches.start_ns.astype("<i8").tobytes(),
        "end_ns": launches.end_ns.astype("<i8").tobytes(),
        "traced_ns": np.array([[since_ns, until_ns]], "<i8").tobytes(),
    }
    return Batch(until_ns=until_ns, **(columns | more))


def write_recording(path: Path, samples: Samples) -> Path:
    """Samples as a file that the worker plays."""
    np.savez(
        path,
        metrics=np.array(samples.metrics),
        start_ns=samples.start_ns,
        end_ns=samples.end_ns,
        values=samples.values,
    )
    return path


class CountersProcess:
    """One worker. What it says is gathered by a thread unless `listen` is False."""

    def __init__(
        self, *arguments: str, env: Mapping[str, str] | None = None, listen: bool = True
    ) -> None:
        command = [sys.executable, "-m", "roofmon.counters.worker", "--device", "GPU-test"]
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        self.said: list[Said] = []
        self.ended = False
        self._encoder = msgspec.msgpack.Encoder()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        if listen:
            self._thread.start()

    def tell(self, message: Heard) -> None:
        self.write(frame(self._encoder, message))

    def order(self, order: str, reason: str = "") -> None:
        self.tell(Order(order=order, reason=reason))

    def write(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def wait(self, find: Callable[[list[Said]], T]) -> T:
        """The first true value of `find` on what it said so far."""
        deadline = time.monotonic() + DEADLINE_S
        while not (found := find(list(self.said))):
            assert time.monotonic() < deadline, (self.said[-3:], self.process.poll())
            time.sleep(0.02)
        return found

    def wait_state(self, state: str, after: int = 0) -> State:
        """The first message since the `after`-th that tells this state."""
        return self.wait(
            lambda said: next((s for s in states(said[after:]) if s.state == state), None)
        )

    @property
    def results(self) -> list[Result]:
        return [s for s in self.said if isinstance(s, Result)]

    @property
    def health(self) -> list[Health]:
        return [s for s in self.said if isinstance(s, Health)]

    def end(self) -> tuple[int, str]:
        """Closes its stdin; returns its exit code and what it said on stderr."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        code = self.process.wait(DEADLINE_S)
        return code, self.process.stderr.read().decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._thread.is_alive():
            self._thread.join(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _listen(self) -> None:
        deframer: Deframer[Said] = Deframer(msgspec.msgpack.Decoder(Said))
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            self.said.extend(deframer.feed(data))
        self.ended = True


def states(said: list[Said]) -> list[State]:
    return [s for s in said if isinstance(s, State)]


def starting(folder: Path, *, alone: bool = False) -> Iterator[Callable[..., CountersProcess]]:
    """For a fixture: starts workers whose runtime and state directories are in `folder`, and ends them.

    `alone`: while no other test does, since workers look for profilers on the whole machine.
    """
    with machine(alone=alone):
        yield from _starting(folder)


@contextlib.contextmanager
def machine(*, alone: bool = False) -> Iterator[None]:
    """Shared with other tests that run workers, or not."""
    with Path(tempfile.gettempdir(), "roofmon-tests-counters.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def _starting(folder: Path) -> Iterator[Callable[..., CountersProcess]]:
    started: list[CountersProcess] = []
    directories = {"XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}

    def start(*arguments: str, env: Mapping[str, str] | None = None, listen: bool = True):
        process = CountersProcess(*arguments, env=directories | dict(env or {}), listen=listen)
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()
