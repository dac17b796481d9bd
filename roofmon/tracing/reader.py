"""Reads what an annotated program sends; `trace_reader` does for a traced one, with the framing and the
connection from here. No program is trusted: whatever it sends, nothing is raised past a connection, and
memory stays within one message."""

import os
import socket
import struct
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

import msgspec
import numpy as np

from roofmon.tracing import protocol
from roofmon.tracing.endpoints import Endpoint
from roofmon.tracing.protocol import Described, Drops, Event, Hello, Records
from roofmon.units import clean

_READ_BYTES = 1 << 18
_READS = 8  # in one call, 52,000 records: a flood must not starve the caller's other work
_LATEST_NS = 1 << 62  # so that a start plus a duration still is an int64


M = TypeVar("M", bound=msgspec.Struct)
E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class ProtocolError(Exception):
    """The bytes are not the protocol; the message is the reason, for the user."""


class Frames:
    """Bytes, split anywhere, to messages.

    Args:
        remedy: what to do about a program that speaks another version.
    """

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytearray]]:
        """Type and payload of the messages that `data` completes.

        Raises ProtocolError at the first header that is wrong.
        """
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= protocol.HEADER.size:
                magic, kind, version, length = protocol.HEADER.unpack_from(self._buffer, start)
                self._check(magic, version, length)
                end = start + protocol.HEADER.size + length
                if end > len(self._buffer):
                    break
                payload = self._buffer[start + protocol.HEADER.size : end]
                start = end
                yield kind, payload
        finally:
            del self._buffer[:start]

    def _check(self, magic: int, version: int, length: int) -> None:
        if magic != protocol.MAGIC:
            raise ProtocolError("it does not speak roofmon's protocol")
        if version != protocol.VERSION:
            raise ProtocolError(
                f"it speaks version {version} of the protocol and this roofmon {protocol.VERSION}: "
                f"{self._remedy}"
            )
        if length > protocol.MAX_PAYLOAD:
            raise ProtocolError(f"it announces a message of {length} bytes")


class Decoder:
    """Bytes, split anywhere, to events."""

    def __init__(self) -> None:
        self._frames = Frames("give the program the region.py of this roofmon")
        self._hello: Hello | None = None
        self._described = np.zeros(protocol.MAX_ID, dtype=np.bool_)

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that `data` completes.

        Raises ProtocolError at the first message that is wrong; the events before it were yielded.
        """
        for kind, payload in self._frames.feed(data):
            yield self._event(kind, payload)

    def _event(self, kind: int, payload: bytearray) -> Event:
        if (self._hello is None) != (kind == protocol.HELLO):
            raise ProtocolError("it does not begin with one HELLO")
        match kind:
            case protocol.HELLO:
                self._hello = _hello(payload)
                return self._hello
            case protocol.DESCRIBE:
                return self._describe(payload)
            case protocol.RECORDS:
                return self._records(payload)
            case protocol.DROPS:
                return read_drops(payload)
        raise ProtocolError(f"message type {kind} is not known")

    def _describe(self, payload: bytearray) -> Described:
        described = read_json(payload, Described)
        if not 0 <= described.id < protocol.MAX_ID or self._described[described.id]:
            raise ProtocolError(f"description {described.id} is out of range or given twice")
        self._described[described.id] = True
        name = clean(described.name, protocol.MAX_NAME).strip() or "(unnamed)"
        return msgspec.structs.replace(described, name=name)

    def _records(self, payload: bytearray) -> Records:
        if not payload or len(payload) % protocol.RECORD_DTYPE.itemsize:
            raise ProtocolError(f"{len(payload)} bytes are not whole records")
        records = np.frombuffer(payload, dtype=protocol.RECORD_DTYPE)
        ids = records["id"]
        if ids.max() >= protocol.MAX_ID or not self._described[ids].all():
            raise ProtocolError("a record has an id that was not described")
        if max(records["start_ns"].max(), records["duration_ns"].max()) >= _LATEST_NS:
            raise ProtocolError("a record has an impossible time")
        records["flags"] = 0
        for work in (records["flops"], records["bytes"]):
            with np.errstate(invalid="ignore"):  # of signalling NaNs
                unusable = (work < 0) | np.isinf(work)
            work[unusable] = np.nan
            records["flags"][unusable] |= protocol.UNUSABLE_WORK
        return Records(records)


def _hello(payload: bytearray) -> Hello:
    hello = read_json(payload, Hello)
    if (hello.record_type, hello.record_size) != (protocol.RECORDS, protocol.RECORD_DTYPE.itemsize):
        raise ProtocolError(
            f"its records have type {hello.record_type} and {hello.record_size} bytes"
        )
    return msgspec.structs.replace(
        hello,
        process=clean(hello.process, protocol.MAX_NAME).strip(),
        device=clean(hello.device, protocol.MAX_NAME).strip(),
        device_name=clean(hello.device_name, protocol.MAX_NAME).strip(),
    )


def read_json(payload: bytearray, kind: type[M]) -> M:
    """A message in JSON; raises ProtocolError."""
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{kind.__name__} cannot be read: {error}") from None


def read_drops(payload: bytearray) -> Drops:
    """The message DROPS; raises ProtocolError."""
    if len(payload) != 8:
        raise ProtocolError("DROPS is not one number")
    (count,) = struct.unpack("<Q", payload)
    return Drops(int(count))


class EventDecoder(Protocol[E_co]):
    """Turns bytes into events; raises ProtocolError."""

    def feed(self, data: bytes) -> Iterator[E_co]:
        """The events that `data` completes."""


class Connection(Generic[E]):
    """A connection to one program, never blocking.

    `closed` is None while it is open, and then the reason why it is not: the program ended, or what it
    sent was wrong.
    """

    def __init__(self, endpoint: Endpoint, decoder: EventDecoder[E]) -> None:
        self.endpoint = endpoint
        self.closed: str | None = None
        self._decoder = decoder
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        try:
            self._socket.connect(str(endpoint.path))
            peer = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("3i", peer)[1] != os.getuid():
                self.close("the program belongs to another user")
        except OSError as error:
            self.close(f"cannot connect: {error.strerror or error}")

    def fileno(self) -> int:
        """The descriptor to wait on; −1 when closed."""
        return self._socket.fileno()

    def receive(self) -> list[E]:
        """What has arrived, in order; empty when nothing has, or when closed."""
        events: list[E] = []
        try:
            for _ in range(_READS):
                if self.closed is not None:
                    break
                data = self._socket.recv(_READ_BYTES)
                if not data:
                    self.close("the program ended")
                for event in self._decoder.feed(data):
                    self._check_identity(event)
                    events.append(event)
        except BlockingIOError:
            pass
        except ProtocolError as error:
            self.close(f"ignored, {error}")
        except OSError as error:
            self.close(f"the connection broke: {error.strerror}")
        return events

    def close(self, reason: str = "detached") -> None:
        """Ends the connection; the program stops recording when its last monitor has gone."""
        if self.closed is None:
            self.closed = reason
            self._socket.close()

    def _check_identity(self, event: E) -> None:
        pid, start_time = getattr(event, "pid", None), getattr(event, "start_time", None)
        expected = (self.endpoint.pid, self.endpoint.start_time)
        if pid is not None and (pid, start_time) != expected:
            raise ProtocolError(f"it claims to be process {pid}")


class RegionConnection(Connection[Event]):
    """A connection to one annotated program."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint, Decoder())
