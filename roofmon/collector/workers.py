"""Worker processes: whatever may crash, hang or hold device memory runs in one, supervised here."""

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from typing import IO

import msgspec

from roofmon.resources import python_module
from roofmon.stream.framing import Deframer, StreamError
from roofmon.stream.messages import Message

_END_S = 0.3


def start_process(module: str, arguments: Sequence[str], log: IO[bytes] | int) -> "Process":
    """Start `python -m module arguments…` with this interpreter; its stderr goes to `log`."""
    return Process(module, [*python_module(module), *arguments], log)


class Process:
    """A child that ends when its stdin closes, and that speaks the stream on stdout if it speaks."""

    def __init__(self, name: str, command: Sequence[str], log: IO[bytes] | int) -> None:
        self.name = name
        self.started = time.monotonic()
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        self._deframer = Deframer(msgspec.msgpack.Decoder(Message))
        self.problem = ""

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    def fileno(self) -> int:
        """Where its messages come from."""
        assert self._child.stdout is not None
        return self._child.stdout.fileno()

    def receive(self) -> list[Message] | None:
        """Messages that have arrived; None when the child has closed its end or spoke garbage."""
        if self.problem:
            return None
        try:
            data = os.read(self.fileno(), 1 << 20)
        except BlockingIOError:
            return []
        if not data:
            return None
        messages: list[Message] = []
        try:
            messages.extend(self._deframer.feed(data))
        except StreamError as error:
            self.problem = str(error)
            return messages or None  # a broken stream stays broken: the next read ends it
        return messages

    def kill(self) -> None:
        """End it at once. One that the driver holds in the kernel is left for the kernel to end."""
        self._child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_END_S)

    def end(self, *, at_once: bool = False) -> str:
        """Stop it if it runs, and say how it ended: "" for a clean end.

        `at_once` does not wait for it to notice by itself, which one that is still starting does late.
        """
        child = self._child
        with contextlib.suppress(OSError):
            if child.stdin is not None:
                child.stdin.close()
        if at_once:
            child.terminate()
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            child.terminate()
            try:
                child.wait(_END_S)
            except subprocess.TimeoutExpired:
                self.kill()
        if child.stdout is not None:
            child.stdout.close()
        if self.problem:
            return self.problem
        code = child.returncode
        if code in (0, None):
            return ""
        return f"signal {-code}" if code < 0 else f"exit code {code}"


class Backoff:
    """Pauses before starting a failing worker again: 1, 2, 4 … 60 s; a long life resets them."""

    def __init__(self) -> None:
        self._pause_s = 1.0
        self.due = 0.0

    def failed(self, lived_s: float) -> float:
        """Note a failure after `lived_s`; returns the pause before the next start."""
        self._pause_s = 1.0 if lived_s > 60 else self._pause_s
        pause = self._pause_s
        self.due = time.monotonic() + pause
        self._pause_s = min(60.0, pause * 2)
        return pause
