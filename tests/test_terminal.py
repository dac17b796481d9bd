"""What the terminal can do, asked before textual is imported."""

import io
import subprocess
import sys

import pytest

from roofmon.terminal import draws_unicode, unsuitable


class Tty(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_is_suitable() -> None:
    assert unsuitable({"TERM": "xterm-256color"}, Tty(), Tty()) is None


def test_reasons() -> None:
    env = {"TERM": "xterm"}
    assert unsuitable(env, io.StringIO(), Tty()) == "standard input is not a terminal"
    assert unsuitable(env, Tty(), io.StringIO()) == "standard error is not a terminal"
    assert unsuitable(env, None, Tty()) == "standard input is not a terminal"
    assert "TERM=dumb" in (unsuitable({"TERM": "dumb"}, Tty(), Tty()) or "")
    assert "TERM=is not set" in (unsuitable({}, Tty(), Tty()) or "")
    closed = Tty()
    closed.close()
    assert unsuitable(env, closed, Tty()) == "standard input is not a terminal"


@pytest.mark.parametrize(
    ("setting", "encoding", "expected"),
    [
        ("auto", "utf-8", True),
        ("auto", "UTF8", True),
        ("auto", "iso8859-1", False),
        ("auto", "ascii", False),
        ("auto", None, False),
        ("auto", "no such thing", False),
        ("on", "ascii", True),
        ("off", "utf-8", False),
    ],
)
def test_unicode(setting: str, encoding: str | None, expected: bool) -> None:
    assert draws_unicode(setting, encoding) is expected  # type: ignore[arg-type]


def imported_by(module: str) -> set[str]:
    """The modules that a new Python has after importing one."""
    code = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_asking_does_not_import_textual() -> None:
    assert not {"textual", "numpy", "rich"} & imported_by("roofmon.terminal")


def test_the_first_frame_is_painted_without_numpy_and_what_builds_on_it() -> None:
    loaded = imported_by("roofmon.tui.run")
    heavy = {"numpy", "plotext", "psutil", "roofmon.view", "roofmon.diagnosis", "roofmon.compare"}
    assert "textual" in loaded
    assert not heavy & loaded
