"""Runs the processes that measure, watches them, and gathers what they say into one result.

A probe that kills its process, or keeps it silent for too long, costs that probe: another process goes on
with the rest. Ending one is a SIGKILL, so that a request to stop is obeyed at once, and gives back all GPU
memory, whatever a library was doing.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from roofmon.calibration.bench_messages import Begun, BenchMessage, Failed, Phase, Refused
from roofmon.calibration.gather import Gathered
from roofmon.calibration.probe import Mode, Probe
from roofmon.errors import ExitCode, RoofmonError
from roofmon.resources import python_module
from roofmon.stream.framing import Deframer, StreamError

START_LIMIT_S = 90.0
"""For the libraries and the device to open: a second where all is well, but GPUs without persistence mode
take tens, and so does a CuPy on a slow network drive."""

PROBE_LIMIT_S: Mapping[Mode, float] = {"quick": 30.0, "full": 30.0, "thorough": 90.0}
"""For one probe, the compilation of its kernel included: a hundred times what most take."""

_LOOK_S = 0.05
_KILLED_S = 2.0
_WHO = "the process that measures"


@dataclass(frozen=True)
class Batch:
    """Probes for one process (or, after one has died, several), with its arguments and environment."""

    probes: tuple[Probe, ...]
    arguments: tuple[str, ...]
    environment: dict[str, str] | None = None


def measure_in_processes(
    batches: Sequence[Batch],
    gathered: Gathered,
    probe_limit_s: float,
    stop: Callable[[], bool],
) -> None:
    """Measure all batches, one after the other.

    Args:
        gathered: takes what the processes say.
        probe_limit_s: how long a probe may take.
        stop: asked every 50 ms.

    Raises: InterruptedError when `stop` says so; RoofmonError where nothing can be measured at all.
    """
    for batch in batches:
        left = list(batch.probes)
        while left:
            try:
                _run(batch, left, gathered, probe_limit_s, stop)
            except RoofmonError as problem:
                if not gathered.begun:
                    raise
                # What has been measured stands, whatever became of the device since.
                for probe in left:
                    if probe.name not in gathered.begun:
                        gathered.take(Begun(probe.name))
                        gathered.take(Failed(probe.name, problem.what))
            left = [probe for probe in left if probe.name not in gathered.begun]


def _run(
    batch: Batch,
    probes: Sequence[Probe],
    gathered: Gathered,
    probe_limit_s: float,
    stop: Callable[[], bool],
) -> None:
    """One process, for as many of the probes as it gets done. Raises RoofmonError where it is none."""
    names = [argument for probe in probes for argument in ("--probe", probe.name)]
    before = len(gathered.begun)
    child = _Child([*batch.arguments, *names], batch.environment)
    try:
        ended = _follow(child, gathered, probe_limit_s, stop)
    finally:
        child.kill()
    if len(gathered.begun) == before:
        raise RoofmonError(f"{_WHO} {ended} before it measured anything", "see the log")


def _follow(
    child: "_Child", gathered: Gathered, probe_limit_s: float, stop: Callable[[], bool]
) -> str:
    """Take what a process says until its end; returns how it ended. A death or silence in the middle of
    a probe is noted as that probe's failure."""
    current = ""
    limit_s = START_LIMIT_S
    deadline = time.monotonic() + limit_s
    while (messages := child.receive()) is not None:
        if stop():
            raise InterruptedError("asked to stop")
        for message in messages:
            if isinstance(message, Refused):
                raise RoofmonError(message.what, message.fix, ExitCode(message.exit_code))
            if isinstance(message, Begun):
                current, limit_s = message.probe, probe_limit_s
            elif isinstance(message, Phase) and message.name == current:
                current = ""
            gathered.take(message)
        now = time.monotonic()
        deadline = now + limit_s if messages else deadline
        if now > deadline:
            ended = f"did not go on for {limit_s:g} s and was ended"
            break
    else:
        ended = child.ended()
    if current:
        gathered.take(Failed(current, f"{_WHO} {ended}"))
    return ended


class _Child:
    """A process of `bench_worker`."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str] | None) -> None:
        self._process = subprocess.Popen(
            [*python_module("roofmon.calibration.bench_worker"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment,
            bufsize=0,
        )
        self._deframer: Deframer[BenchMessage] = Deframer(msgspec.msgpack.Decoder(BenchMessage))

    def receive(self) -> list[BenchMessage] | None:
        """What has come within 50 ms; None at the end."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        if not select.select([descriptor], [], [], _LOOK_S)[0]:
            return []
        data = os.read(descriptor, 65536)
        try:
            return list(self._deframer.feed(data)) if data else None
        except StreamError as error:
            print(f"roofmon: calibration: {error}", file=sys.stderr)
            return None

    def ended(self) -> str:
        """How it ended, after its output has."""
        code = self._wait()
        if code is None:
            return "does not end"
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"

    def kill(self) -> None:
        """End it, if it has not. One that the driver holds in the kernel is left to the kernel."""
        self._process.kill()
        self._wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _wait(self) -> int | None:
        try:
            return self._process.wait(_KILLED_S)
        except subprocess.TimeoutExpired:
            return None
