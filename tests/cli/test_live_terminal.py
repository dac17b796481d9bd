"""The live screen with its real collector in a real terminal: death of the collector, and every way out."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from command_lines import words_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]


class Terminal:
    """A tmux session of its own that runs `roofmon ARGUMENTS`; `screen` is what it shows.

    Its shell waits for roofmon; a `deaf` one also when it is told that the terminal is gone.
    """

    def __init__(
        self, environment: dict[str, str], socket: Path, *arguments: str, deaf: bool = False
    ) -> None:
        self._tmux = ("tmux", "-S", str(socket), "-f", "/dev/null")
        self.end = socket.with_suffix(".end")
        command = shlex.join([sys.executable, "-m", "roofmon", *arguments])
        script = f"{command}; echo ended with $? | tee {shlex.quote(str(self.end))}; cat"
        if deaf:
            script = f"trap '' HUP; {script}"
        self._do("new-session", "-d", "-x", "100", "-y", "30", script, env=environment)
        shell = int(self._do("display-message", "-p", "#{pane_pid}"))
        self.shell = psutil.Process(shell)

    def _do(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        result = subprocess.run(
            [*self._tmux, *arguments], check=True, capture_output=True, text=True, env=env
        )
        return result.stdout

    def type(self, *keys: str) -> None:
        self._do("send-keys", *keys)

    def until(self, condition: Callable[[str], bool], timeout_s: float = 20) -> str:
        end, screen = time.monotonic() + timeout_s, ""
        while time.monotonic() < end:
            screen = self._do("capture-pane", "-p")
            if condition(screen):
                return screen
            time.sleep(0.05)
        raise AssertionError(screen)

    def children(self) -> list[psutil.Process]:
        return self.shell.children(recursive=True)

    def child(self, module: str) -> psutil.Process:
        return next(c for c in self.children() if module in " ".join(words_of(c)))

    def runs(self, pattern: str) -> bool:
        """Whether a process has a command line that begins so."""
        return any(re.match(pattern, " ".join(words_of(c))) for c in self.children())

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def plain(environment: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k not in ("COLUMNS", "LINES", "TMUX")}


@pytest.fixture
def live(plain: dict[str, str], tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(plain, tmp_path / "tmux", "--device", "cpu")
    try:
        terminal.until(lambda screen: "load" in screen)
        yield terminal
    finally:
        terminal.close()


def assert_nothing_left(processes: list[psutil.Process], home: Path) -> None:
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert not alive
    assert not list((home / "run").rglob("*.sock"))


def test_the_collector_may_die_and_comes_back(live: Terminal) -> None:
    live.child("roofmon.collector").kill()
    stale = live.until(lambda screen: "STALE" in screen)
    assert "signal 9" in stale
    assert "load" in stale  # what was last known stays
    live.until(lambda screen: "STALE" not in screen)
    assert live.child("roofmon.collector").is_running()


def test_q_leaves_nothing_behind(live: Terminal, tmp_path: Path) -> None:
    processes = live.children()
    assert len(processes) >= 3
    began = time.monotonic()
    live.type("q")
    live.until(lambda screen: "ended with 0" in screen)
    assert time.monotonic() - began < 1.5
    assert_nothing_left([p for p in processes if "roofmon" in " ".join(words_of(p))], tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_leave_nothing_behind(
    live: Terminal, tmp_path: Path, number: int, code: int
) -> None:
    processes = [p for p in live.children() if "roofmon" in " ".join(words_of(p))]
    screen = next(p for p in processes if p.ppid() == live.shell.pid)
    os.kill(screen.pid, number)
    live.until(lambda text: f"ended with {code}" in text)
    assert_nothing_left(processes, tmp_path)


def test_closing_the_terminal_leaves_nothing_behind(live: Terminal, tmp_path: Path) -> None:
    processes = live.children()
    live.close()
    assert_nothing_left(processes, tmp_path)


@pytest.mark.parametrize(
    ("child", "key", "arguments"),
    [
        pytest.param(r"\S+ .*roofmon\.demo", "", ["demo"], id="demo"),
        pytest.param("sleep 1000", "", ["run", "--", "sleep", "1000"], id="run"),
        pytest.param("sleep 1000", "q", ["run", "--", "sleep", "1000"], id="run-foreground"),
    ],
)
def test_closing_it_under_a_parent_that_waits_leaves_nothing_behind(
    plain: dict[str, str], tmp_path: Path, child: str, key: str, arguments: list[str]
) -> None:
    """As under `make` and `uv run`: they lead the session, so nobody else gets SIGHUP."""
    environment = {**plain, "ROOFMON_DEVICE": "cpu"}
    terminal = Terminal(environment, tmp_path / "tmux", *arguments, deaf=True)
    processes: list[psutil.Process] = []
    try:
        terminal.until(lambda screen: "load" in screen and terminal.runs(child))
        processes = terminal.children()
        screen = next(p for p in processes if p.ppid() == terminal.shell.pid)
        assert os.getsid(screen.pid) == terminal.shell.pid
        if key:
            terminal.type(key)
            terminal.until(lambda screen: "goes on without roofmon" in screen)
        terminal.close()
        began = time.monotonic()
        screen.wait(5)
        assert time.monotonic() - began < 1.5
        assert_nothing_left([terminal.shell, *processes], tmp_path)
        assert terminal.end.read_text() == f"ended with {128 + signal.SIGHUP}\n"
    finally:  # the fault that this is about would leave them
        processes = processes or terminal.children()
        terminal.close()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
