"""Cutting a byte stream into messages, tolerant of any split and intolerant of garbage."""

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from roofmon.stream.messages import MAX_MESSAGE

T = TypeVar("T")


class StreamError(Exception):
    """The bytes are not this stream: garbage, another version, or a frame that is too long."""


def frame(encoder: msgspec.msgpack.Encoder, message: object) -> bytes:
    """`message` as one frame."""
    body = encoder.encode(message)
    return len(body).to_bytes(4, "little") + body


class Deframer(Generic[T]):
    """Collects bytes and yields the messages that are complete.

    `feed` raises StreamError at the first frame that is not a message of the expected type; after that the
    stream has lost its footing and must be opened anew.
    """

    def __init__(self, decoder: "msgspec.msgpack.Decoder[T]", limit: int = MAX_MESSAGE) -> None:
        self._decoder = decoder
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Yields the messages completed by `data`, in order; good ones before any error."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= 4:
                length = int.from_bytes(self._buffer[start : start + 4], "little")
                if length > self._limit:
                    raise StreamError(f"a message of {length} bytes: this is not the stream")
                if len(self._buffer) - start - 4 < length:
                    break
                body = bytes(memoryview(self._buffer)[start + 4 : start + 4 + length])
                start += 4 + length
                try:
                    message = self._decoder.decode(body)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise StreamError(f"a message cannot be read: {error}") from None
                yield message
        finally:
            del self._buffer[:start]

    @property
    def pending(self) -> int:
        """Bytes of a message that is not complete yet."""
        return len(self._buffer)
