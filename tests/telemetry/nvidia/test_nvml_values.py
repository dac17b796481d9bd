"""Clock events in words, processes by name, and values that no driver can mean."""

import os
from pathlib import Path

import pytest

from roofmon.telemetry.nvidia import checks
from roofmon.telemetry.nvidia.events import event_words
from roofmon.telemetry.nvidia.processes import ELSEWHERE, describe_processes


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, ()),
        (0x1, ("idle",)),
        (0x4, ("power cap",)),
        (0x48, ("hardware slowdown", "thermal slowdown (hardware)")),
        (0x80, ("power brake",)),
        (0x20, ("thermal limit (driver)",)),
        (0x8004, ("power cap", "reason 0x8000")),
    ],
)
def test_clock_events_in_words(bits: int, words: tuple[str, ...]) -> None:
    assert event_words(bits) == words


@pytest.mark.parametrize("value", [2147483632, -1, 101, float("nan")])
def test_no_percentage_is_over_a_hundred(value: float) -> None:
    assert checks.PERCENT(value) is not None
    assert checks.PERCENT(100) is None


def test_the_reason_names_the_value() -> None:
    problem = checks.PERCENT(2147483632)
    assert problem == "the driver said 2147483632 %, out of 0 … 100"
    assert checks.memory_used(5, 4) == "the driver said 5 bytes are used, of 4"
    assert checks.memory_used(4, 4) is None
    assert checks.memory_used(5, None) is None


def process(proc: Path, pid: int, comm: str, *command: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "comm").write_text(comm + "\n")
    (proc / str(pid) / "cmdline").write_bytes("\0".join(command).encode() + b"\0")


def test_processes_have_the_names_that_proc_tells(tmp_path: Path) -> None:
    process(tmp_path, 10, "train", "./train", "--token", "secret")
    process(tmp_path, 11, "python3", "python3", "/srv/fit.py", "--token", "secret")
    process(tmp_path, 12, "a\x1b[31mb")
    found = describe_processes([(10, 100), (11, 300), (12, 200), (13, 50)], 1000, tmp_path)
    assert [(p.pid, p.name) for p in found] == [
        (11, "python3 fit.py"),
        (12, "a [31mb"),
        (10, "train"),
        (13, ""),
    ]
    user = {p.user for p in found[:3]}
    assert len(user) == 1
    assert user != {""}
    assert [p.note for p in found] == ["", "", "", ELSEWHERE]


def test_who_was_at_work_is_told_only_where_the_numbers_are_the_same() -> None:
    both = [(10, 100), (11, 300)]
    told = {p.pid: p.sm_busy for p in describe_processes(both, 1000, busy={10: 0.35})}
    assert told == {10: 0.35, 11: 0.0}
    for busy in (None, {}, {99: 0.35}):
        assert {p.sm_busy for p in describe_processes(both, 1000, busy=busy)} == {None}


def test_memory_that_cannot_be_is_not_shown() -> None:
    (found,) = describe_processes([(os.getpid(), 2**63)], 1000)
    assert found.memory_bytes is None
    (found,) = describe_processes([(os.getpid(), None)], 1000)
    assert found.memory_bytes is None
    assert found.name
    assert found.note == ""
