"""A user's program that does what its standard input says, and answers each line by one line of JSON."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roofmon.program.environment import INJECTION

START_S = 120.0  # several at once import torch from a disk that is cold
END_S = 20.0


def core_apart() -> int:
    """A core for a program, which this process and what it starts leave from now on.

    One in the middle: on a virtual machine with an H200 the last of 16 made all of this slower, by times.
    """
    cores = sorted(os.sched_getaffinity(0))
    core = cores[len(cores) // 2]
    os.sched_setaffinity(0, set(cores) - {core} or {core})
    return core


def plain_environment() -> dict[str, str]:
    """Ours, without any injected library."""
    return {name: value for name, value in os.environ.items() if name != INJECTION}


class ProgramError(AssertionError):
    """The program ended, has not answered in time, or said something else."""


class AskedProgram:
    """The running program. Everything that waits has a limit and raises ProgramError.

    Args:
        script: its source.
        environment: all of its environment.
        core: where its first thread is to stay.
        python: the interpreter, this one where not given.
    """

    def __init__(
        self,
        script: Path,
        environment: Mapping[str, str],
        core: int | None = None,
        python: str = sys.executable,
    ) -> None:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._unread = b""
        self.process = subprocess.Popen(
            [python, "-P", str(script), *([] if core is None else [str(core)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )

    def wait_ready(self) -> None:
        """Until it has started."""
        self._expect("ready", START_S)

    def start(self, command: str) -> None:
        """Let it do something."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{command}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise ProgramError(self._end()) from None

    def answer(self, seconds: float) -> dict[str, Any]:
        """What it says when it has done it, within so many seconds."""
        found: dict[str, Any] = json.loads(self._line(seconds))
        return found

    def finish(self, seconds: float = 60.0) -> None:
        """Let it end; it must end well."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._expect("bye", seconds)
        if (code := self.process.wait(seconds)) != 0:
            raise ProgramError(f"the program ended with {code}")

    def close(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the driver
            self.process.wait(END_S)
        self._errors.close()

    def _expect(self, word: str, seconds: float) -> None:
        line = self._line(seconds)
        if line != word:
            raise ProgramError(f"it said {line!r} and not {word!r}")

    def _line(self, seconds: float) -> str:
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = max(deadline - time.monotonic(), 0)
            if not select.select([self.process.stdout], [], [], left)[0]:
                self.process.send_signal(signal.SIGABRT)  # it says where each of its threads is
                raise ProgramError(f"no answer in {seconds:.0f} s; {self._end()}")
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise ProgramError(self._end())
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode().strip()

    def _end(self) -> str:
        try:
            told = f"the program ended with {self.process.wait(END_S)}"
        except subprocess.TimeoutExpired:
            told = "the program does not end"
        self._errors.seek(0)
        return f"{told}: {self._errors.read()[-4000:]}"
