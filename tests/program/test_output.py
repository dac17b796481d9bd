"""A program's output as lines: what a terminal would show of it, and nothing that could act on ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmon.program.output import Output


def lines(*parts: bytes, count: int = 50) -> list[str]:
    output = Output()
    for part in parts:
        output.write(part)
    return output.tail(count)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\n\r\ntwo", ["one", "", "two"]),
        (b" 10 %\r 55 %\r100 %\n", ["100 %"]),
        (b"longer line\rshort\n", ["shortr line"]),
        (b"longer line\rshort\x1b[K\n", ["short"]),
        (b"ab\x08\x08XY\n", ["XY"]),
        (b"a\tb\n", ["a       b"]),
        (b"\x1b[1;31mred\x1b[0m and \x1b[38;5;12mblue\x1b[m\n", ["red and blue"]),
        (b"\x1b]0;a title\x07text\x1b]8;;http://x\x1b\\link\n", ["textlink"]),
        (b"\x1b(B\x1b7bell\x07\x00\n", ["bell"]),
        ("grün ▇\n".encode(), ["grün ▇"]),
        (b"bad \xff byte\n", ["bad \ufffd byte"]),
    ],
)
def test_what_a_terminal_would_show(written: bytes, shown: list[str]) -> None:
    assert lines(written) == shown
    # However it is split, escape sequences and characters of several bytes included.
    for at in range(len(written)):
        assert lines(written[:at], written[at:]) == shown
    assert lines(*(bytes([byte]) for byte in written)) == shown


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_any_bytes_give_printable_lines(parts: list[bytes]) -> None:
    for line in lines(*parts):
        assert not any(ord(c) < 32 or c == "\x7f" for c in line)


def test_only_the_last_lines_are_kept_and_long_ones_are_cut() -> None:
    output = Output()
    output.write(b"".join(b"%d\n" % n for n in range(5000)))
    assert output.tail(2) == ["4998", "4999"]
    assert len(output.tail(10**6)) == 2000
    output.write(b"x" * 100_000)
    assert len(output.tail(1)[0]) == 1000
    assert output.tail(0) == []


def test_an_escape_sequence_without_an_end_is_not_kept_for_ever() -> None:
    output = Output()
    for _ in range(50):
        output.write(b"\x1b]0;" + b"x" * 500)
    assert len(output._rest) < 10_000
    version = output.version
    output.write(b"\x07\ndone\n")
    assert output.version > version
    assert output.tail(1) == ["done"]
