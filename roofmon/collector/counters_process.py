"""A counters worker as the collector has it: a process that is told things as well."""

import contextlib
import fcntl
import os
from collections.abc import Collection
from typing import IO

import msgspec

from roofmon.collector.workers import Process
from roofmon.counters.worker_messages import Batch, Heard, Said
from roofmon.resources import python_module
from roofmon.stream.framing import Deframer, StreamError, frame

_MOST_UNSENT = 16 * 2**20  # bytes, 800,000 launches: 4 s of what programs reach at most
_PIPE_BYTES = 1 << 20


class CountersProcess(Process):
    """A worker that is told things as well, without ever waiting for it."""

    def __init__(self, uuid: str, log: IO[bytes] | int, arguments: Collection[str]) -> None:
        module = python_module("roofmon.counters.worker")
        super().__init__("counters", [*module, "--device", uuid, *arguments], log)
        assert self._child.stdin is not None
        self.stdin = self._child.stdin.fileno()
        os.set_blocking(self.stdin, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._said: Deframer[Said] = Deframer(msgspec.msgpack.Decoder(Said))
        self._encoder = msgspec.msgpack.Encoder()
        self._unsent = bytearray()

    def tell(self, message: Heard) -> bool:
        """Send it, now or when there is room; False where too much waits already."""
        if isinstance(message, Batch) and len(self._unsent) > _MOST_UNSENT:
            self.flush()
            return False
        self._unsent += frame(self._encoder, message)
        self.flush()
        return True

    @property
    def backed_up(self) -> bool:
        """Whether bytes wait for the worker: `flush` when `stdin` can be written to."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Write what the worker takes now. A worker that is gone is noticed where it is heard."""
        try:
            while self._unsent:
                del self._unsent[: os.write(self.stdin, self._unsent)]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._unsent.clear()

    def hear(self) -> list[Said] | None:
        """What it has said; None when it has ended or spoke garbage."""
        try:
            data = os.read(self.fileno(), 1 << 20)
            return list(self._said.feed(data)) if data else None
        except BlockingIOError:
            return []
        except StreamError as error:
            self.problem = str(error)
            return None
