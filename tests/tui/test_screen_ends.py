"""However the screen ends, it ends in time and leaves the terminal as it was. In real terminals."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from terminal_driver import SHOW, Terminal

Open = Callable[..., Terminal]
pytestmark = pytest.mark.slow


@pytest.fixture
def terminal() -> Iterator[Open]:
    """Opens terminals that are closed after the test."""
    opened: list[Terminal] = []

    def open_one(*arguments: str, **env: str) -> Terminal:
        opened.append(Terminal(*arguments, **env))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_restore_the_terminal(terminal: Open, number: signal.Signals, code: int) -> None:
    it = terminal()
    it.wait_for("starting collector")
    it.kill(number)
    assert it.ended(3.0)[0] == code
    assert it.is_restored()
    assert it.said() == ""


def test_ctrl_c_before_the_first_snapshot(terminal: Open) -> None:
    it = terminal("--hz", "0.01")
    it.wait_for("starting collector")
    it.write("\x03")
    code, took = it.ended(3.0)
    assert code == 0
    assert took < 1.2
    assert it.is_restored()


def test_a_consumer_that_never_closes_does_not_hold_up_q(terminal: Open) -> None:
    it = terminal("--deaf", "--hz", "10")
    it.wait_for("softmax")
    it.write("q")
    code, took = it.ended(3.0)
    assert code == 0
    assert took < 1.2
    assert it.is_restored()


def test_a_terminal_that_swallows_nothing_does_not_hold_up_q(terminal: Open) -> None:
    it = terminal("--hz", "20")
    it.wait_for("softmax")
    time.sleep(0.8)  # nobody reads: the terminal's buffer fills up
    it.write("q")
    code, took = it.ended(3.0, reading=False)
    assert code == 0
    assert took < 1.2
    it.read(0.2)
    assert it.is_restored()


def test_the_terminal_going_away_ends_it(terminal: Open) -> None:
    it = terminal()
    it.wait_for("starting collector")
    spare = os.open(os.devnull, os.O_RDONLY)
    os.dup2(spare, it.master)  # closes the terminal's other end
    os.close(spare)
    code, _ = it.ended(3.0, reading=False)
    assert code != 0


def test_a_fault_is_one_line_on_a_restored_terminal(terminal: Open) -> None:
    it = terminal("--fail", "--hz", "10")
    assert it.ended(15.0)[0] == 1
    assert it.is_restored()
    said = it.said().splitlines()
    assert len(said) == 1
    assert said[0].startswith("roofmon: the screen failed: AttributeError: ")
    assert "Traceback" not in it.sent.decode()


def test_no_color_and_latin_1_get_neither_colour_nor_unicode(terminal: Open) -> None:
    it = terminal("--hz", "10", NO_COLOR="1", PYTHONIOENCODING="iso8859-1")
    it.wait_for("softmax")
    it.write("j\r")
    it.wait_for("CHECKLIST")
    styles = {part for m in re.findall(rb"\x1b\[([\d;]*)m", it.sent) for part in m.split(b";")}
    assert styles <= {b"", b"0", b"1", b"2", b"4", b"7"}  # reset, bold, dim, underline, reverse
    assert b"7" in styles
    assert it.sent.isascii()
    assert b"\\u" not in it.sent


needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Tmux:
    """A tmux server of the test's own with one window."""

    def __init__(self) -> None:
        self._socket = f"roofmon-test-{os.getpid()}"
        self("-f", os.devnull, "new-session", "-d", "-x", "80", "-y", "24", "sh")

    def __call__(self, *arguments: str) -> str:
        command = ["tmux", "-L", self._socket, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def wait_for(self, text: str, seconds: float = 15.0) -> str:
        """The screen, once it shows `text`."""
        end = time.monotonic() + seconds
        while text not in (screen := self("capture-pane", "-p")):
            assert time.monotonic() < end, f"{text!r} never came:\n{screen}"
            time.sleep(0.05)
        return screen


@pytest.fixture
def tmux() -> Iterator[Tmux]:
    """A tmux with a shell, ended after the test."""
    it = Tmux()
    yield it
    it("kill-server")


@needs_tmux
def test_in_tmux(tmux: Tmux) -> None:
    program = f"env -u NO_COLOR {sys.executable} {SHOW} --unicode on; echo ENDED=$?"
    tmux("send-keys", program, "Enter")
    screen = tmux.wait_for("▸①")
    assert "DRAM 4.39T" in screen
    assert "✗ 80 % of the DRAM roof" in screen
    tmux("send-keys", "j")
    tmux.wait_for("▸②")
    tmux("resize-window", "-x", "120", "-y", "40")
    tmux.wait_for("checklist: ②")
    tmux("send-keys", "Enter")
    tmux.wait_for("POSITION")
    tmux("send-keys", "Escape")
    tmux.wait_for("▸②")
    start = time.monotonic()
    tmux("send-keys", "q")
    tmux.wait_for("ENDED=0")
    assert time.monotonic() - start < 1.2
    assert tmux("display-message", "-p", "#{cursor_flag} #{alternate_on}").split() == ["1", "0"]
    tmux("send-keys", "clear; stty -a", "Enter")
    modes = tmux.wait_for("icanon").split()
    assert "-icanon" not in modes
    assert "-echo" not in modes
    assert "-isig" not in modes
