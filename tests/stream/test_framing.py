"""Any split of the bytes gives the same messages; garbage gives StreamError and nothing else."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmon.model.session import Notice
from roofmon.stream.framing import Deframer, StreamError, frame
from roofmon.stream.messages import Message, NoticeMessage

ENCODER = msgspec.msgpack.Encoder()


def deframer(limit: int = 1 << 20) -> Deframer[Message]:
    return Deframer(msgspec.msgpack.Decoder(Message), limit)


@given(texts=st.lists(st.text(max_size=40), max_size=6), data=st.data())
def test_any_split_gives_the_same_messages(texts: list[str], data: st.DataObject) -> None:
    messages = [NoticeMessage(notice=Notice(severity="info", what=t)) for t in texts]
    stream = b"".join(frame(ENCODER, m) for m in messages)
    receiver, received = deframer(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += receiver.feed(stream[:size])
        stream = stream[size:]
    assert received == messages
    assert receiver.pending == 0


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_garbage_raises_stream_error_and_nothing_else(pieces: list[bytes]) -> None:
    receiver = deframer()
    try:
        for piece in pieces:
            list(receiver.feed(piece))
    except StreamError:
        pass


@given(st.binary(min_size=1, max_size=200))
def test_a_frame_of_garbage_is_refused_or_is_a_message(body: bytes) -> None:
    data = len(body).to_bytes(4, "little") + body
    try:
        messages = list(deframer().feed(data))
    except StreamError:
        return
    assert len(messages) == 1


def test_an_absurd_length_is_refused_before_anything_is_collected() -> None:
    with pytest.raises(StreamError, match="4294967295 bytes"):
        list(deframer().feed(b"\xff\xff\xff\xff"))


def test_half_a_message_waits() -> None:
    whole = frame(ENCODER, NoticeMessage(notice=Notice(severity="error", what="x")))
    receiver = deframer()
    assert list(receiver.feed(whole[:-1])) == []
    assert receiver.pending == len(whole) - 1
    assert len(list(receiver.feed(whole[-1:]))) == 1
