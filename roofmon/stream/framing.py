"""Cutting a byte stream into messages, tolerant of any split and intolerant of garbage."""

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

    Raises StreamError at the first frame that is not a message of the expected type; after that the
    stream has lost its footing and must be opened anew.
    """

    def __init__(self, decoder: "msgspec.msgpack.Decoder[T]", limit: int = MAX_MESSAGE) -> None:
        self._decoder = decoder
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[T]:
        """The messages completed by `data`, in order."""
        self._buffer += data
        messages: list[T] = []
        start = 0
        while len(self._buffer) - start >= 4:
            length = int.from_bytes(self._buffer[start : start + 4], "little")
            if length > self._limit:
                raise StreamError(
                    f"a message of {length} bytes is announced: this is not the stream"
                )
            if len(self._buffer) - start - 4 < length:
                break
            body = bytes(memoryview(self._buffer)[start + 4 : start + 4 + length])
            try:
                messages.append(self._decoder.decode(body))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise StreamError(f"a message cannot be read: {error}") from None
            start += 4 + length
        del self._buffer[:start]
        return messages

    @property
    def pending(self) -> int:
        """Bytes of a message that is not complete yet."""
        return len(self._buffer)
