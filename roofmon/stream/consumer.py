"""The consuming end: one child process that speaks the stream, one thread that reads it, one slot.

The child is a collector (here, or on another host through ssh) or a replayed recording. The thread
applies messages and leaves the latest snapshot in the slot; whoever shows it never waits for the child.
When the child dies, falls silent or speaks garbage, the last snapshot stays, marked stale with the
reason, and the child is started again after a growing pause.
"""

import contextlib
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from roofmon.stream.framing import Deframer, StreamError, frame
from roofmon.stream.messages import Command, Message

if TYPE_CHECKING:
    from roofmon.model.snapshot import Snapshot
    from roofmon.stream.state import StreamState

SILENT_S = 5.0
"""A live collector ticks at least every 5 s at the slowest rate; longer silence is told."""
GIVE_UP_S = 20.0
"""After this much silence the child is taken for hung and replaced."""
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_CLOSE_S = 0.3


def spawn(command: Sequence[str], log: int) -> "subprocess.Popen[bytes]":
    """Start a process that speaks the stream on its stdout; its stderr goes to descriptor `log`."""
    # A session of its own: Ctrl-C in the terminal is for the screen, which ends the child by stdin.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
    )


class Consumer:
    """Runs and reads one child.

    Args:
        command: what to run.
        on_change: called from the reader thread after `snapshot` or `state` changed.
        live: whether the end of the stream is a failure (a collector) or just the end (a recording).
        log: descriptor for the child's stderr.
        first: the child, where it was already started to save time.
    """

    def __init__(
        self,
        command: Sequence[str],
        on_change: Callable[[], None],
        *,
        live: bool = True,
        log: int = subprocess.DEVNULL,
        first: "subprocess.Popen[bytes] | None" = None,
    ) -> None:
        self._command = list(command)
        self._on_change = on_change
        self._live = live
        self._log = log
        self._child = first
        self._snapshot: Snapshot | None = None
        self._state = "starting"
        self._ended = threading.Event()
        self._closing = threading.Event()
        self._command_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="stream-reader", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    @property
    def snapshot(self) -> "Snapshot | None":
        """The latest snapshot; None until the first keyframe."""
        return self._snapshot

    @property
    def state(self) -> str:
        """Empty while live, else one short line."""
        return self._state

    def wait_end(self, timeout_s: float | None = None) -> bool:
        """Wait until the stream has ended for good (a recording, or after `close`)."""
        return self._ended.wait(timeout_s)

    def send(self, command: Command) -> bool:
        """Ask something of the child; False when it cannot be reached now."""
        data = frame(msgspec.msgpack.Encoder(), command)
        child = self._child
        if child is None or child.stdin is None:
            return False
        with self._command_lock:
            try:
                # A pipe takes a small write whole or not at all; one that is full belongs to a hung child.
                os.set_blocking(child.stdin.fileno(), False)
                return os.write(child.stdin.fileno(), data) == len(data)
            except (OSError, ValueError):
                return False

    def close(self) -> None:
        """End the child and stop reading; takes at most about 0.3 s."""
        self._closing.set()
        child = self._child
        if child is not None:
            end(child)

    def _run(self) -> None:
        from roofmon.stream.state import StreamState  # numpy: after the first paint

        attempt = 0
        while not self._closing.is_set():
            began = time.monotonic()
            reason = self._read_child(StreamState())
            if self._closing.is_set():
                break
            if not self._live:
                self._publish(None, reason or "recording ended")
                break
            attempt = 0 if time.monotonic() - began > 60 else attempt + 1
            pause = _PAUSES_S[min(attempt, len(_PAUSES_S) - 1)]
            self._publish(None, f"{reason}; starting it again in {pause:g} s")
            self._closing.wait(pause)
        self._ended.set()
        self._on_change()

    def _read_child(self, state: "StreamState") -> str:
        """Read one child to its end; returns why it ended, "" for a clean end."""
        try:
            child = self._child if self._child is not None else spawn(self._command, self._log)
        except OSError as error:
            return f"{self._command[0]} cannot be started: {error.strerror}"
        self._child = child
        assert child.stdout is not None
        try:
            return self._read(child, child.stdout.fileno(), state)
        except StreamError as error:
            return f"collector: {error}"
        finally:
            end(child)
            self._child = None

    def _read(self, child: "subprocess.Popen[bytes]", source: int, state: "StreamState") -> str:
        deframer = Deframer(msgspec.msgpack.Decoder(Message))
        last = time.monotonic()
        while not self._closing.is_set():
            ready, _, _ = select.select([source], [], [], 0.5)
            if not ready:
                silent = time.monotonic() - last
                if silent > GIVE_UP_S and self._live:
                    return f"collector silent for {silent:.0f} s, ended"
                if silent > SILENT_S and self._live:
                    self._publish(None, f"collector silent for {silent:.0f} s")
                continue
            data = os.read(source, 1 << 20)
            if not data:
                return self._end_reason(child, deframer.pending)
            last = time.monotonic()
            changed = False
            try:
                for message in deframer.feed(data):
                    changed |= state.apply(message)
            finally:  # what was good before an error is still shown
                if changed:
                    self._publish(state, "")
        return ""

    def _end_reason(self, child: "subprocess.Popen[bytes]", pending: int) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_CLOSE_S)
        code = child.returncode
        half = " in the middle of a message" if pending else ""
        if code in (0, None):
            return f"the stream ended{half}" if half or self._live else ""
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"collector died ({how}){half}"

    def _publish(self, state: "StreamState | None", reason: str) -> None:
        if state is not None:
            self._snapshot = state.snapshot()
        elif self._snapshot is not None and self._snapshot.stale != reason:
            self._snapshot = replace(self._snapshot, stale=reason)
        self._state = reason
        self._on_change()


def end(child: "subprocess.Popen[bytes]", patience_s: float = 0.3) -> None:
    """Ask a child to end by closing its stdin and SIGTERM, then insist."""
    if child.stdin is not None:
        with contextlib.suppress(OSError):
            child.stdin.close()
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(patience_s)
        except subprocess.TimeoutExpired:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(patience_s)
