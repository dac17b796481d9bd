"""What the injected library may send, and what it may not."""

import json
import os
import socket
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmon.tracing import protocol
from roofmon.tracing import trace_protocol as wire
from roofmon.tracing.endpoints import Endpoint, start_time_of
from roofmon.tracing.protocol import Drops
from roofmon.tracing.reader import ProtocolError
from roofmon.tracing.trace_protocol import Device, Hello, Kernels, Name, State, Transfers
from roofmon.tracing.trace_reader import TraceConnection, TraceDecoder

HELLO_FIELDS = {
    "kind": "trace",
    "pid": 7,
    "start_time": 99,
    "process": "train.py",
    "pid_namespace": 1,
    "clock": "unix_ns",
    "record_type": 16,
    "record_size": 72,
    "transfer_size": 48,
    "library": "0.1.0",
}
DEVICE_FIELDS = {
    "index": 0,
    "uuid": "GPU-1",
    "name": "NVIDIA H200",
    "compute_capability": [9, 0],
    "sm_count": 132,
}
STATE_FIELDS = {"state": "tracing", "reason": "", "cupti_version": 130001, "cupti_path": "/lib"}


def message(kind: int, payload: bytes, magic: int = protocol.MAGIC, version: int = 1) -> bytes:
    return struct.pack("<HBBI", magic, kind, version, len(payload)) + payload


def hello(**changes) -> bytes:
    return message(1, json.dumps(HELLO_FIELDS | changes).encode())


def state(**changes) -> bytes:
    return message(20, json.dumps(STATE_FIELDS | changes).encode())


def device(**changes) -> bytes:
    return message(18, json.dumps(DEVICE_FIELDS | changes).encode())


def name(number: int, text: bytes = b"_Z3addPf") -> bytes:
    return message(17, struct.pack("<I", number) + text)


def kernel(named=1, start=1000, end=3000, on=0, flags=0) -> bytes:
    places = (named, 7, 1, 0, 132, 1, 1, 128, 1, 1, on, 168, flags, 1024, 2048, 233472, 5)
    return struct.pack("<QQ4I3I3H3H4I", start, end, *places)


def transfer(start=10, end=20, size=4096, on=0, peer=0, kind=1, flags=1, reserved=0) -> bytes:
    return struct.pack("<QQQ4I2H2BH", start, end, size, 7, 1, 0, 6, on, peer, kind, flags, reserved)


GOOD = (
    hello()
    + state(state="starting")
    + state()
    + name(0, b"(other kernels)")
    + name(1)
    + device()
    + message(16, kernel() + kernel(0, 1, 1))
    + device(index=3, registers_per_sm=65536)
    + name(16384, b"")
    + message(19, transfer() + transfer(kind=200, flags=255, reserved=9, peer=3))
    + message(16, kernel(16384, on=3, flags=77))
    + message(4, struct.pack("<Q", 12))
)


def plain(event):
    return event.records.tobytes() if isinstance(event, Kernels | Transfers) else event


def decoded(chunks) -> list:
    decoder = TraceDecoder()
    return [plain(event) for chunk in chunks for event in decoder.feed(chunk)]


def test_good_trace():
    events = list(TraceDecoder().feed(GOOD))
    kinds = [Hello, State, State, Name, Name, Device, Kernels, Device, Name, Transfers, Kernels]
    assert [type(event) for event in events] == [*kinds, Drops]
    assert events[0].process == "train.py"
    assert [event.state for event in events[1:3]] == ["starting", "tracing"]
    assert events[4] == Name(1, "_Z3addPf")
    assert events[5].compute_capability == (9, 0)
    first = events[6].records[0]
    assert (first["start_ns"], first["end_ns"], first["name"]) == (1000, 3000, 1)
    assert (first["grid"].tolist(), first["block"].tolist()) == ([132, 1, 1], [128, 1, 1])
    assert [int(first[field]) for field in ("registers", "static_shared", "dynamic_shared")] == [
        168,
        1024,
        2048,
    ]
    assert (first["shared_executed"], first["correlation"]) == (233472, 5)
    assert events[7].registers_per_sm == 65536
    assert events[8] == Name(16384, "(unnamed)")
    copy, strange = events[9].records
    assert (copy["bytes"], wire.TRANSFER_KINDS[copy["kind"]]) == (4096, "memcpy h2d")
    assert (copy["correlation"], copy["flags"]) == (6, wire.ASYNCHRONOUS)
    assert [int(strange[field]) for field in ("kind", "flags", "reserved", "peer")] == [0, 1, 0, 3]
    assert events[10].records["flags"].tolist() == [0]
    assert events[11] == Drops(12)


@given(cuts=st.lists(st.integers(0, len(GOOD)), max_size=20))
def test_any_split_of_a_trace_gives_the_same(cuts):
    chunks = [GOOD[a:b] for a, b in pairwise([0, *sorted(cuts), len(GOOD)])]
    assert decoded(chunks) == decoded([GOOD])


KINDS = st.sampled_from([1, 4, 16, 17, 18, 19, 20, 21])


@given(st.lists(st.tuples(KINDS, st.binary(max_size=200)), max_size=10))
def test_any_messages_are_refused_or_mean_something(messages):
    decoder = TraceDecoder()
    try:
        for kind, payload in messages:
            for event in decoder.feed(hello() + message(kind, payload)):
                assert isinstance(
                    event, Hello | State | Device | Name | Kernels | Transfers | Drops
                )
    except ProtocolError as error:
        assert str(error)  # noqa: PT017


@given(
    at=st.integers(0, len(GOOD) - 1),
    byte=st.integers(0, 255),
    size=st.integers(1, len(GOOD)),
)
def test_any_changed_byte_of_a_trace_does_no_harm(at, byte, size):
    spoiled = GOOD[:at] + bytes([byte]) + GOOD[at + 1 :]
    decoder = TraceDecoder()
    named, described = set(), set()
    try:
        for first in range(0, len(spoiled), size):
            for event in decoder.feed(spoiled[first : first + size]):
                match event:
                    case Name():
                        named.add(event.id)
                    case Device():
                        described.add(event.index)
                    case Kernels():
                        assert set(event.records["name"].tolist()) <= named
                        check_records(event.records, described)
                    case Transfers():
                        assert set(event.records["peer"].tolist()) <= described
                        check_records(event.records, described)
    except ProtocolError as error:
        assert str(error)  # noqa: PT017


def check_records(records: np.ndarray, described: set[int]) -> None:
    assert set(records["device"].tolist()) <= described
    assert (records["start_ns"] > 0).all()
    assert (records["start_ns"] <= records["end_ns"]).all()
    assert (records["end_ns"] < 2**62).all()


BEGIN = hello() + name(1) + device()

BAD = {
    "not the protocol": b"GET / HTTP/1.1\r\n",
    "version": message(1, b"", version=2),
    "too long": struct.pack("<HBBI", protocol.MAGIC, 16, 1, 2**20 + 1),
    "no hello": name(1),
    "two hellos": hello() + hello(),
    "a region's hello": hello(kind="region"),
    "hello lacks fields": message(1, b"{}"),
    "deep JSON": message(1, b"[" * 500_000),
    "other kernel records": hello(record_size=64),
    "other transfer records": hello(transfer_size=40),
    "unknown type": hello() + message(2, b"{}"),
    "unknown state": hello() + state(state="sleeping"),
    "name without a number": hello() + message(17, b"abc"),
    "name out of range": hello() + name(16385),
    "name given twice": hello() + name(1) + name(1),
    "long name": hello() + name(1, b"x" * 16385),
    "device out of range": hello() + device(index=64),
    "negative device": hello() + device(index=-1),
    "device given twice": hello() + device() + device(),
    "impossible device": hello() + device(sm_count=2**31),
    "negative capability": hello() + device(compute_capability=[-9, 0]),
    "part of a kernel": BEGIN + message(16, kernel()[:-1]),
    "no kernel": BEGIN + message(16, b""),
    "kernel without a name": BEGIN + message(16, kernel() + kernel(2)),
    "kernel with a huge name": BEGIN + message(16, kernel(2**32 - 1)),
    "kernel without a device": BEGIN + message(16, kernel(on=1)),
    "kernel with a huge device": BEGIN + message(16, kernel(on=65535)),
    "kernel without a start": BEGIN + message(16, kernel(start=0)),
    "kernel that ends first": BEGIN + message(16, kernel(start=3001)),
    "kernel of the far future": BEGIN + message(16, kernel(end=2**62)),
    "part of a transfer": BEGIN + message(19, transfer() + b"\0"),
    "transfer that ends first": BEGIN + message(19, transfer(end=9)),
    "transfer to nowhere": BEGIN + message(19, transfer(peer=2)),
    "huge transfer": BEGIN + message(19, transfer(size=2**63)),
    "drops is no number": hello() + message(4, b"1"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_trace_is_refused_with_a_reason(what):
    with pytest.raises(ProtocolError) as refused:
        list(TraceDecoder().feed(BAD[what]))
    assert str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_version_of_the_library_says_what_to_do():
    with pytest.raises(
        ProtocolError, match=r"version 2 .* this roofmon 1: start the program again"
    ):
        list(TraceDecoder().feed(BAD["version"]))


def test_names_of_a_program_are_bounded_in_all():
    decoder = TraceDecoder()
    long = b"".join(name(number, b"x" * 16384) for number in range(2000))
    assert len(list(decoder.feed(hello() + long))) == 2001
    more = b"".join(name(number, b"x" * 16384) for number in range(2000, 2100))
    with pytest.raises(ProtocolError, match="names are too long"):
        list(decoder.feed(more))


def test_text_is_stripped_of_what_a_terminal_would_obey():
    sent = hello(process="a\x1b[2J\n") + state(reason="b\x07\x9b1m") + name(1, b"c\x1b[2J\xff")
    greeting, condition, named = TraceDecoder().feed(sent + device(name="\x1b]0;x\x07")[:0])
    for text in (greeting.process, condition.reason, named.name):
        assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in text)
    assert named.name.startswith("c")


def test_trace_connection_ends_with_a_reason_and_keeps_what_came_before(sockets: Path):
    pid, start_time = os.getpid(), start_time_of(os.getpid())
    path = sockets / f"{pid}-{start_time}.trace.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(2)
        endpoint = Endpoint(path=path, pid=pid, start_time=start_time, process="x", kind="trace")
        connection = TraceConnection(endpoint)
        peer = listener.accept()[0]
        assert connection.receive() == []
        peer.sendall(hello(pid=pid, start_time=start_time) + name(1) + name(1))
        assert [type(event) for event in connection.receive()] == [Hello, Name]
        assert connection.closed == "ignored, name 1 is out of range or given twice"
        assert connection.fileno() == -1
        peer.close()
        liar = TraceConnection(endpoint)
        peer = listener.accept()[0]
        peer.sendall(hello())
        assert liar.receive() == []
        assert liar.closed == "ignored, it claims to be process 7"
        peer.close()
