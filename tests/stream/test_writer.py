"""The collector's writer never blocks on a consumer that does not read, and catches up by keyframe."""

import os

import msgspec

from roofmon.model.session import Notice
from roofmon.stream.framing import Deframer
from roofmon.stream.messages import (
    VERSION,
    Describe,
    Hello,
    KernelColumns,
    Keyframe,
    Message,
    NoticeMessage,
    Status,
    Tick,
)
from roofmon.stream.writer import StreamWriter

HELLO = Hello(version=VERSION, roofmon="0", host="h", pid=1, time_unix_ns=0)


def tick(sequence: int, size: int = 0) -> Tick:
    return Tick(
        sequence=sequence,
        time_unix_ns=0,
        interval_ns=1,
        kernels=KernelColumns(ids=bytes(size)),
    )


def keyframe() -> Keyframe:
    return Keyframe(
        hello=HELLO,
        describe=Describe(),
        tick=tick(0),
        roofs=[],
        status=Status(rungs=[], programs={}),
        notices=[],
        progress=[],
    )


def drain(descriptor: int, writer: StreamWriter) -> list[Message]:
    os.set_blocking(descriptor, False)
    deframer, messages = Deframer(msgspec.msgpack.Decoder(Message)), []
    while True:
        try:
            messages += deframer.feed(os.read(descriptor, 1 << 16))
        except BlockingIOError:
            if not writer.backed_up:
                break
        writer.flush()
    assert deframer.pending == 0
    return messages


def test_ticks_are_dropped_whole_while_the_consumer_does_not_read() -> None:
    source, sink = os.pipe()
    writer = StreamWriter(sink)
    assert writer.needs_keyframe
    writer.send(keyframe())
    assert not writer.needs_keyframe
    sent = [writer.send(tick(n, 50_000)) for n in range(60)]
    assert False in sent
    assert writer.needs_keyframe
    assert writer.dropped_ticks == sent.count(False)
    writer.send(NoticeMessage(notice=Notice(severity="info", what="kept")))
    messages = drain(source, writer)
    assert [m.sequence for m in messages if isinstance(m, Tick)] == list(range(sent.count(True)))
    assert isinstance(messages[-1], NoticeMessage)
    os.close(source)
    os.close(sink)


def test_what_waits_is_bounded_even_for_messages_that_are_no_ticks() -> None:
    source, sink = os.pipe()
    writer = StreamWriter(sink, limit=100_000)
    text = "x" * 10_000
    sent = [
        writer.send(NoticeMessage(notice=Notice(severity="info", what=text))) for _ in range(300)
    ]
    assert sent.count(True) < 150
    assert writer.needs_keyframe
    os.close(source)
    os.close(sink)
