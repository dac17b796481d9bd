"""Writing the stream: a descriptor of its own, and a writer that drops ticks rather than block."""

import contextlib
import fcntl
import os
from pathlib import Path

import msgspec

from roofmon.stream.framing import frame
from roofmon.stream.messages import Keyframe, Message, Tick

_PIPE_BYTES = 1 << 20


def private_output(log: Path | None = None) -> int:
    """A private duplicate of fd 1, with fd 1 itself pointed at `log` (or nowhere).

    A stray print, of ours or of a library, then lands in the log instead of corrupting the stream. The
    duplicate is not inherited by child processes.
    """
    private = os.dup(1)
    os.set_inheritable(private, False)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    sink = os.open(log, flags, 0o600) if log else os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.close(sink)
    return private


class MessageWriter:
    """Writes messages to a descriptor and waits for the reader: for workers, which have one reader."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, message: msgspec.Struct) -> None:
        """Write one message whole. Raises BrokenPipeError when the reader is gone."""
        data = memoryview(frame(self._encoder, message))
        while data:
            data = data[os.write(self._descriptor, data) :]


class StreamWriter:
    """Writes the collector's stream without ever blocking on a slow consumer.

    A message that has begun is always finished. While older bytes wait, a `Tick` is dropped (so the next
    one must be a keyframe, `needs_keyframe`), and other messages queue up to `limit` bytes; beyond that
    they are dropped as well, since the keyframe carries what they said.
    """

    def __init__(self, descriptor: int, limit: int = 4 * 2**20) -> None:
        self._descriptor = descriptor
        self._limit = limit
        self._encoder = msgspec.msgpack.Encoder()
        self._waiting = bytearray()
        self.needs_keyframe = True
        self.dropped_ticks = 0
        os.set_blocking(descriptor, False)
        # A keyframe of 5,000 kernels is 2.6 MB; a pipe holds 64 KiB unless asked for more.
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def fileno(self) -> int:
        """Where it writes: to be waited on while `backed_up`, then `flush` writes on."""
        return self._descriptor

    @property
    def backed_up(self) -> bool:
        """Whether bytes wait for the consumer."""
        return bool(self._waiting)

    def send(self, message: Message) -> bool:
        """Queue or write a message; False when it was dropped. Raises BrokenPipeError at the end."""
        if self.backed_up:
            self.flush()
        if self.backed_up and (isinstance(message, Tick) or len(self._waiting) > self._limit):
            self.dropped_ticks += isinstance(message, Tick)
            self.needs_keyframe = True
            return False
        self._waiting += frame(self._encoder, message)
        if isinstance(message, Keyframe):
            self.needs_keyframe = False
        self.flush()
        return True

    def flush(self) -> None:
        """Write what the consumer will take now."""
        try:
            while self._waiting:
                written = os.write(self._descriptor, self._waiting)
                del self._waiting[:written]
        except BlockingIOError:
            return
