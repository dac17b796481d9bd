"""The first frame, which stands while textual is imported: real terminals, a textual that is slow."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


class Started:
    """`roofmon` in a pseudo-terminal, with a textual of ours in place of the real one."""

    def __init__(self, environment: dict[str, str], directory: Path, textual: str) -> None:
        package = directory / "site" / "textual"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(textual)
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(ours, (40, 120))
        self.terminal, self.painted = ours, b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "roofmon", "--device", "cpu"],
            env={**environment, "PYTHONPATH": str(package.parent)},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def until(self, text: bytes) -> None:
        end = time.monotonic() + 20
        while text not in self.painted:
            assert time.monotonic() < end, self.painted
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.painted += os.read(self.terminal, 65536)

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.terminal)[3] & termios.ECHO)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.terminal)


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[object]:
    running: list[Started] = []

    def run(textual: str) -> Started:
        environment.pop("COLUMNS", None)
        running.append(Started(environment, tmp_path, textual))
        return running[-1]

    yield run
    for started in running:
        started.close()


def test_the_frame_is_there_before_textual_and_a_signal_takes_it_away(start) -> None:
    started = start("import time; time.sleep(30)")
    started.until("starting collector…".encode())
    started.until(b" checklist ")
    assert started.painted.startswith(ENTER)
    assert not started.echoes()
    assert LEAVE not in started.painted
    started.process.terminate()
    started.until(LEAVE)
    assert started.process.wait(20) == 128 + signal.SIGTERM
    assert started.echoes()


def test_the_terminal_going_away_ends_it_though_nobody_sends_a_signal(start) -> None:
    started = start("import time; time.sleep(30)")
    started.until("starting collector…".encode())
    spare = os.open(os.devnull, os.O_RDONLY)
    os.dup2(spare, started.terminal)  # closes the terminal's other end
    os.close(spare)
    assert started.process.wait(5) == 128 + signal.SIGHUP


def test_a_textual_that_cannot_be_imported_leaves_a_terminal_in_order(start) -> None:
    started = start("raise ImportError('it is broken')")
    started.until(b"it is broken")
    assert started.painted.index(ENTER) < started.painted.index(LEAVE)
    assert started.painted.index(LEAVE) < started.painted.index(b"it is broken")
    assert started.process.wait(20) == 1
    assert started.echoes()
