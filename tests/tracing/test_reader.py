"""What a program may send, and what it may not."""

import json
import os
import socket
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmon.tracing import protocol
from roofmon.tracing.endpoints import Endpoint, start_time_of
from roofmon.tracing.protocol import Described, Drops, Hello, Records
from roofmon.tracing.reader import Decoder, ProtocolError, RegionConnection

HELLO_FIELDS = {
    "kind": "region",
    "pid": 7,
    "start_time": 99,
    "process": "train.py",
    "pid_namespace": 1,
    "clock": "unix_ns",
    "record_type": 3,
    "record_size": 40,
}


def message(kind: int, payload: bytes, magic: int = protocol.MAGIC, version: int = 1) -> bytes:
    return struct.pack("<HBBI", magic, kind, version, len(payload)) + payload


def hello(**changes) -> bytes:
    return message(1, json.dumps(HELLO_FIELDS | changes).encode())


def describe(identity=1, **changes) -> bytes:
    fields = {"id": identity, "name": "a", "level": "dram", "precision": "fp32", "unit": "vector"}
    return message(2, json.dumps(fields | changes).encode())


def record(identity=1, start=10, duration=5, flops=1.0, bytes=2.0) -> bytes:
    return struct.pack("<IHHQQdd", identity, 0, 0, start, duration, flops, bytes)


GOOD = (
    hello()
    + describe()
    + message(3, record(flops=3.0) + record(flops=float("nan")))
    + describe(2, name="b", level="llc", precision="bf16", unit="tensor")
    + message(3, record(2, bytes=-1.0, flops=float("inf")))
    + message(4, struct.pack("<Q", 12))
)


def decoded(chunks) -> list:
    decoder = Decoder()
    return [plain(event) for chunk in chunks for event in decoder.feed(chunk)]


def plain(event):
    return event.records.tobytes() if isinstance(event, Records) else event


def test_good_stream():
    events = list(Decoder().feed(GOOD))
    assert [type(event) for event in events] == [
        Hello,
        Described,
        Records,
        Described,
        Records,
        Drops,
    ]
    assert events[0].process == "train.py"
    first, second = events[2].records, events[4].records
    assert first["flops"][0] == 3.0
    assert np.isnan(first["flops"][1])
    assert first["flags"].tolist() == [0, 0]
    assert (first["start_ns"][0], first["duration_ns"][0]) == (10, 5)
    assert events[3] == Described(id=2, name="b", level="llc", precision="bf16", unit="tensor")
    assert np.isnan([second["flops"][0], second["bytes"][0]]).all()
    assert second["flags"].tolist() == [protocol.UNUSABLE_WORK]
    assert events[5] == Drops(12)


@given(cuts=st.lists(st.integers(0, len(GOOD)), max_size=20))
def test_any_split_gives_the_same(cuts):
    at = [0, *sorted(cuts), len(GOOD)]
    chunks = [GOOD[a:b] for a, b in pairwise(at)]
    assert decoded(chunks) == decoded([GOOD])


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=200), max_size=10))
def test_any_bytes_are_refused_or_wait_for_more(chunks):
    decoder = Decoder()
    try:
        for chunk in [hello(), *chunks]:
            for event in decoder.feed(chunk):
                assert isinstance(event, Hello | Described | Records | Drops)
    except ProtocolError as error:
        assert str(error)  # noqa: PT017


@settings(max_examples=300)
@given(
    at=st.integers(0, len(GOOD) - 1),
    byte=st.integers(0, 255),
    size=st.integers(1, len(GOOD)),
)
def test_any_changed_byte_does_no_harm(at, byte, size):
    spoiled = GOOD[:at] + bytes([byte]) + GOOD[at + 1 :]
    decoder = Decoder()
    try:
        for first in range(0, len(spoiled), size):
            for event in decoder.feed(spoiled[first : first + size]):
                if isinstance(event, Records):
                    assert (event.records["duration_ns"] < 2**62).all()
                    assert not (event.records["flops"] < 0).any()
    except ProtocolError as error:
        assert str(error)  # noqa: PT017


BAD = {
    "not the protocol": b"GET / HTTP/1.1\r\n",
    "version": message(1, b"", version=2),
    "too long": struct.pack("<HBBI", protocol.MAGIC, 3, 1, 2**20 + 1),
    "no hello": describe(),
    "two hellos": hello() + hello(),
    "hello is no JSON": message(1, b"{"),
    "hello is no UTF-8": message(1, b'{"kind": "\xff"}'),
    "hello lacks fields": message(1, b"{}"),
    "deep JSON": message(1, b"[" * 500_000),
    "another kind": hello(kind="kernel"),
    "another record": hello(record_size=48),
    "unknown type": hello() + message(9, b""),
    "unknown level": hello() + describe(level="tape"),
    "negative id": hello() + describe(-1),
    "huge id": hello() + describe(2**70),
    "described twice": hello() + describe() + describe(),
    "part of a record": hello() + describe() + message(3, record()[:-1]),
    "no record": hello() + message(3, b""),
    "undescribed": hello() + describe() + message(3, record() + record(2)),
    "undescribed, huge": hello() + message(3, record(2**32 - 1)),
    "negative duration": hello() + describe() + message(3, record(duration=2**64 - 5)),
    "far future": hello() + describe() + message(3, record(start=2**63)),
    "drops is no number": hello() + message(4, b"1"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_stream_is_refused_with_a_reason(what):
    with pytest.raises(ProtocolError) as refused:
        list(Decoder().feed(BAD[what]))
    assert "\n" not in str(refused.value)


def test_version_mismatch_says_what_to_do():
    with pytest.raises(ProtocolError, match=r"version 2 .* this roofmon 1: give the program"):
        list(Decoder().feed(BAD["version"]))


def test_names_are_stripped_of_what_a_terminal_would_obey():
    events = list(Decoder().feed(hello(process="a\x1b[2J\n") + describe(name="\x07") + describe(2)))
    assert "\x1b" not in events[0].process
    assert events[1].name == "(unnamed)"


class Fake:
    """A program that listens as this very process and sends what it is told."""

    def __init__(self, sockets: Path) -> None:
        pid, start_time = os.getpid(), start_time_of(os.getpid())
        assert start_time is not None
        self.identity = {"pid": pid, "start_time": start_time}
        path = sockets / f"{pid}-{start_time}.region.sock"
        self.endpoint = Endpoint(path=path, process="fake", **self.identity)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1)

    def accept(self) -> socket.socket:
        return self.listener.accept()[0]


@pytest.fixture
def fake(sockets):
    fake = Fake(sockets)
    yield fake
    fake.listener.close()


def test_connection_gives_what_came_before_the_fault(fake):
    connection = RegionConnection(fake.endpoint)
    with fake.accept() as peer:
        assert connection.receive() == []
        peer.sendall(hello(**fake.identity) + describe() + message(9, b""))
        assert [type(event) for event in connection.receive()] == [Hello, Described]
        assert connection.closed == "ignored, message type 9 is not known"
        assert connection.fileno() == -1
        assert connection.receive() == []
        assert peer.recv(1) == b""


def test_connection_refuses_a_false_identity(fake):
    connection = RegionConnection(fake.endpoint)
    with fake.accept() as peer:
        peer.sendall(hello())
        assert connection.receive() == []
    assert connection.closed == "ignored, it claims to be process 7"


def test_connection_ends_with_the_program(fake):
    connection = RegionConnection(fake.endpoint)
    fake.accept().close()
    assert connection.receive() == []
    assert connection.closed == "the program ended"


def test_connecting_to_nothing_gives_a_reason(sockets):
    endpoint = Endpoint(path=sockets / "1-1.region.sock", pid=1, start_time=1, process="")
    assert RegionConnection(endpoint).closed == "cannot connect: No such file or directory"
    too_long = Endpoint(path=sockets / ("x" * 200), pid=1, start_time=1, process="")
    assert "too long" in str(RegionConnection(too_long).closed)


def test_flood_is_taken_in_bounded_portions(fake):
    connection = RegionConnection(fake.endpoint)
    with fake.accept() as peer:
        peer.setblocking(False)
        flood = hello(**fake.identity) + describe() + message(3, record() * 20_000) * 50
        received = sent = 0
        while connection.closed is None and received < 1_000_000:
            if sent < len(flood):
                sent += peer.send(flood[sent : sent + 2**17])
            portion = [e for e in connection.receive() if isinstance(e, Records)]
            assert sum(len(e.records) for e in portion) <= 60_000
            received += sum(len(e.records) for e in portion)
        assert received == 1_000_000
        assert connection.closed is None
