"""A program in its pseudo-terminal: it behaves as in any terminal, and its output is kept in private."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roofmon.errors import RoofmonError
from roofmon.program.pty_program import PtyProgram


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., PtyProgram]]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made: list[PtyProgram] = []

    def run(*command: str, size: tuple[int, int] = (80, 24), **more: object) -> PtyProgram:
        made.append(PtyProgram(command, os.environ, size, **more))  # type: ignore[arg-type]
        made[-1].start()
        return made[-1]

    yield run
    for program in made:
        program.signal(signal.SIGKILL)
        program.wait(5)


Start = Callable[..., PtyProgram]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_output_exit_code_and_file(start: Start) -> None:
    heard: list[bytes] = []
    program = start("sh", "-c", "echo out; echo err >&2; exit 7", on_output=heard.append)
    assert program.wait(20) == 7
    program.finish()
    assert program.output.tail(9) == ["out", "err"]
    assert program.path.read_bytes() == b"".join(heard) == b"out\r\nerr\r\n"
    assert stat.S_IMODE(program.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(program.path.parent.stat().st_mode) == 0o700
    assert program.name == "sh"


def test_it_has_a_terminal_of_its_own_with_a_size(start: Start) -> None:
    code = (
        "import os, sys; size = os.get_terminal_size();"
        "print(sys.stdin.isatty(), sys.stdout.isatty(), size.columns, size.lines,"
        " os.getsid(0) == os.getpid(), os.ttyname(0) != sys.argv[1])"
    )
    program = start(sys.executable, "-c", code, "none", size=(101, 33))
    program.wait(20)
    program.finish()
    assert program.output.tail(1) == ["True True 101 33 True True"]


def test_a_new_size_is_told_to_it(start: Start) -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGWINCH, lambda *_: print(os.get_terminal_size().columns, flush=True))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)"
    )
    program = start(sys.executable, "-c", code)
    until(lambda: program.output.tail(1) == ["ready"])
    program.resize(133, 40)
    until(lambda: program.output.tail(1) == ["133"])
    program.resize(0, 0)  # a window that is not there has no size to tell


def test_ctrl_c_and_signals(start: Start) -> None:
    program = start(
        "sh", "-c", "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done"
    )
    until(lambda: "ready" in program.output.tail(9))
    program.interrupt()
    assert program.wait(20) == 3
    program = start("sh", "-c", "sleep 60")
    assert program.exit_code is None
    program.hang_up()
    assert program.wait(20) == 128 + signal.SIGHUP
    program.signal(signal.SIGTERM)  # it is gone: nothing happens


def test_a_signal_right_after_the_start_is_not_lost(start: Start) -> None:
    for _ in range(20):
        program = start("sh", "-c", "sleep 60")
        program.hang_up()
        assert program.wait(20) == 128 + signal.SIGHUP


def test_it_reads_what_is_typed_or_what_it_is_given(start: Start, tmp_path: Path) -> None:
    program = start("sh", "-c", "read line; echo got $line")
    program.type(b"typed\n")
    program.wait(20)
    program.finish()
    assert program.output.tail(1) == ["got typed"]
    given = tmp_path / "given"
    given.write_text("from a file\n")
    with given.open() as file:
        program = start("sh", "-c", "read line; echo got $line", stdin=file.fileno())
        program.wait(20)
        program.finish()
    assert program.output.tail(1) == ["got from a file"]


def test_our_own_stdin_can_be_its_own(tmp_path: Path) -> None:
    code = (
        "import os; from roofmon.program.pty_program import PtyProgram as P;"
        "p = P(['cat'], os.environ, (80, 24), 0); p.start(); p.wait(); p.finish();"
        "print(p.output.tail(9))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        input="given\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )
    assert result.stdout == "['given']\n"


def test_its_end_does_not_wait_for_children_that_live_on(start: Start) -> None:
    program = start("sh", "-c", "sleep 60 & echo started")
    assert program.wait(20) == 0
    begin = time.monotonic()
    program.finish()
    assert time.monotonic() - begin < 10
    assert program.output.tail(1) == ["started"]


@pytest.mark.parametrize("command", ["no-such-program-at-all", "/etc/passwd"])
def test_what_cannot_be_started_is_one_line_and_leaves_no_file(start: Start, command: str) -> None:
    with pytest.raises(RoofmonError, match="cannot be started"):
        start(command)
    assert not list(Path(os.environ["XDG_STATE_HOME"]).rglob("*.log"))


def test_output_that_cannot_be_kept_is_told(start: Start, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a directory")
    with pytest.raises(RoofmonError, match="output cannot be kept"):
        start("true")


def test_it_waits_for_the_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    mark = tmp_path / "mark"
    program = PtyProgram(["touch", str(mark)], os.environ, (80, 24))
    time.sleep(0.2)
    assert program.exit_code is None
    assert not mark.exists()
    program.start()
    program.start()
    assert program.wait(20) == 0
    assert mark.exists()
    unwanted = PtyProgram(["touch", str(tmp_path / "other")], os.environ, (80, 24))
    unwanted.finish()
    assert unwanted.exit_code == 0
    assert not (tmp_path / "other").exists()


def test_a_file_that_is_no_program_fails_as_in_a_shell(start: Start, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("neither a script nor a program")
    broken.chmod(0o700)
    program = start(str(broken))
    assert program.wait(20) == 126
    program.finish()
    assert "cannot be started" in program.output.tail(1)[0]


def test_a_handler_may_pass_a_signal_on_while_the_end_is_looked_for(start: Start) -> None:
    program = start("sleep", "1000")
    with program._reaping:  # as the main thread may hold it when a handler interrupts it
        passing = threading.Thread(target=program.signal, args=(signal.SIGTERM,))
        passing.start()
        passing.join(5)
        assert not passing.is_alive()
    assert program.wait(20) == 128 + signal.SIGTERM
