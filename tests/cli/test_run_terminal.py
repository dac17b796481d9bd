"""`roofmon run` in a real terminal: the program in its panel, and what q and Ctrl-C do."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest

pytestmark = pytest.mark.slow

PROGRAM = "trap 'echo caught; exit 7' INT; echo are you ready; while :; do sleep 0.05; done"


class Terminal:
    """A terminal of 100×40 that runs `roofmon ARGUMENTS`; `text` is all that it was sent."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self.text = ""
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            command = [sys.executable, "-m", "roofmon", *arguments]
            os.execve(sys.executable, command, environment)
        size = struct.pack("HHHH", 40, 100, 0, 0)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, size)

    def type(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def until(self, words: str) -> None:
        end = time.monotonic() + 30
        while words not in self.text:
            assert time.monotonic() < end, self.text[-2000:]
            assert self._read() or words in self.text, self.text[-2000:]

    def exit_code(self) -> int:
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        if not select.select([self._descriptor], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def close(self) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self._descriptor)


@pytest.fixture
def terminal(environment: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []
    plain = {k: v for k, v in environment.items() if k not in ("COLUMNS", "LINES")}

    def start(*arguments: str) -> Terminal:
        made.append(Terminal(plain, *arguments))
        return made[-1]

    yield start
    for one in made:
        one.close()


Start = Callable[..., Terminal]


def test_q_closes_the_screen_and_the_program_goes_on_in_the_foreground(terminal: Start) -> None:
    shown = terminal("run", "--device", "cpu", "--", "sh", "-c", PROGRAM)
    shown.until("torch.profiler")  # said before anything is started
    shown.until("are you ready")
    shown.until("sh · running")
    shown.type(b"q")
    shown.until("sh goes on without roofmon")
    os.kill(shown.pid, signal.SIGCONT)  # textual's handler would bring the screen back
    time.sleep(0.5)
    shown.type(b"\x03")
    shown.until("caught")
    assert shown.exit_code() == 7
    assert "the program's output is in" in shown.text


def test_ctrl_c_ends_the_program_and_the_screen_stays(terminal: Start) -> None:
    shown = terminal("run", "--device", "cpu", "--", "sh", "-c", PROGRAM)
    shown.until("are you ready")
    time.sleep(0.5)
    shown.type(b"\x03")
    shown.until("Ctrl-C went to the program")
    shown.until("ended with 7")
    shown.type(b"\x03")
    assert shown.exit_code() == 7


def test_the_screen_of_a_program_that_has_ended_can_be_read_on(terminal: Start) -> None:
    shown = terminal("run", "--device", "cpu", "--", "sh", "-c", "echo its last word; exit 3")
    shown.until("ended with 3")
    shown.until("its last word")
    shown.type(b"q")
    assert shown.exit_code() == 3
