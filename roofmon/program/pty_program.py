"""A program in a pseudo-terminal of its own, so that it behaves as it does without roofmon.

It leads a session whose terminal is the pseudo-terminal: Ctrl-C typed there reaches it and its children as
in any shell. All that it writes goes into a private file and to whoever listens.

Its process is forked when the object is made, before there are threads and while nothing is drawn, and
waits; `start` lets it become the program. So the monitor can be ready before its first kernel.
"""

import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from roofmon.errors import ExitCode, RoofmonError
from roofmon.program.output import Output
from roofmon.resources import output_dir
from roofmon.units import clean

_READ_BYTES = 1 << 16
_LARGEST_FILE = 1 << 30
_LAST_WORDS_S = 0.5
_POLL_S = 0.02
_INTERRUPT = b"\x03"
_CANNOT_EXECUTE = 126  # as shells say it
_RESET = (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGTERM)  # Python ignores the first


class PtyProgram:
    """A program and its output.

    Args:
        command: the program and its arguments.
        environment: all of its environment.
        size: columns and rows of its terminal.
        stdin: what it reads from; its terminal where not given.
        on_output: gets all that it writes, in the reading thread.

    Raises RoofmonError where there is no such program, or its output cannot be kept.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        size: tuple[int, int],
        stdin: int | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> None:
        found = shutil.which(command[0], path=environment.get("PATH"))
        if found is None:
            raise RoofmonError(
                f"{clean(command[0], 200)} cannot be started: no such program",
                "give it after --, as it is called in a shell",
                ExitCode.USAGE,
            )
        self.name = clean(Path(command[0]).name, 40)
        self.output = Output()
        self.on_output = on_output
        self.path, self._file = _create_file(self.name)
        self._written = 0
        self._status: int | None = None
        self._reaping = threading.Lock()
        waits, self._go = os.pipe()
        given = None if stdin is None else os.dup(stdin)  # the fork puts the terminal in its place
        # Until the process has handlers of its own, a signal to it waits: ours would swallow it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _RESET)
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            for number in _RESET:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _become(found, command, environment, waits, self._go, given)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for descriptor in (waits, *([] if given is None else [given])):
            os.close(descriptor)
        self.resize(*size)
        self._reader = threading.Thread(target=self._read, name="program-output", daemon=True)

    def start(self) -> None:
        """Let it run; a second call does nothing."""
        if self._go >= 0:
            self._reader.start()
            os.write(self._go, b"\0")
            os.close(self._go)
            self._go = -1

    @property
    def exit_code(self) -> int | None:
        """Its exit code, 128 + signal where one ended it, as a shell says; None while it runs."""
        with self._reaping:
            if self._status is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._status = status if pid else None
            if self._status is None:
                return None
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; returns its exit code, or None when time is up."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while (code := self.exit_code) is None and (end is None or time.monotonic() < end):
            time.sleep(_POLL_S)
        return code

    def finish(self) -> None:
        """After its end: take its last words. One that was never started ends here.

        A child of it that lives on may still hold the terminal; it is waited for only so long.
        """
        if self._go >= 0:
            os.close(self._go)
            self._go = -1
            self.wait()
        else:
            self._reader.join(_LAST_WORDS_S)
        with contextlib.suppress(OSError):
            self._file.flush()

    def resize(self, columns: int, rows: int) -> None:
        """Its terminal has another size; it is told as by any terminal."""
        if columns > 0 and rows > 0:
            size = struct.pack("HHHH", rows, columns, 0, 0)
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def type(self, data: bytes) -> None:
        """Type into its terminal; what does not fit, because it does not read, is lost."""
        with contextlib.suppress(OSError):
            if select.select([], [self._master], [], 0)[1]:
                os.write(self._master, data)

    def interrupt(self) -> None:
        """Ctrl-C, typed into its terminal."""
        self.type(_INTERRUPT)

    def signal(self, number: int) -> None:
        """Send a signal to the program and what it started in its process group.

        Handlers of signals call it, so it must not wait for a lock that the main thread may hold.
        """
        if self._status is not None:  # until then its number is not another's
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:  # it was forked just now, and does not lead its group yet
                os.kill(self.pid, number)

    def hang_up(self) -> None:
        """What it gets when its terminal goes away."""
        self.signal(signal.SIGHUP)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, _READ_BYTES)
            except OSError:  # EIO is how Linux says that nobody has the other end open any more
                return
            if not data:
                return
            self._keep(data)
            self.output.write(data)
            if (listener := self.on_output) is not None:
                listener(data)

    def _keep(self, data: bytes) -> None:
        room = _LARGEST_FILE - self._written
        if room <= 0:
            return
        self._written += len(data)
        with contextlib.suppress(OSError, ValueError):
            self._file.write(data[:room])
            if len(data) >= room:
                self._file.write(b"\n[roofmon: the rest is not kept: 1 GiB is the most]\n")
            self._file.flush()


def _become(
    path: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    waits: int,
    go: int,
    stdin: int | None,
) -> None:
    """In the forked process: wait for the word, then be the program; never returns."""
    try:
        os.close(go)
        if not os.read(waits, 1):
            os._exit(0)  # it is not wanted any more
        os.close(waits)
        if stdin is not None:
            os.dup2(stdin, 0)
        os.execve(path, list(command), dict(environment))
    except BaseException as error:
        os.write(2, f"roofmon: {command[0]} cannot be started: {error}\n".encode())
    finally:
        os._exit(_CANNOT_EXECUTE)


def _create_file(name: str) -> tuple[Path, IO[bytes]]:
    """A new file for the output, 0600. Raises RoofmonError."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    try:
        descriptor, path = tempfile.mkstemp(".log", f"{moment}-{safe}-", output_dir())
        return Path(path), os.fdopen(descriptor, "wb")
    except OSError as error:
        what = f"the program's output cannot be kept: {error.strerror or error}"
        raise RoofmonError(what, "set XDG_STATE_HOME to a directory of yours") from None
