"""The script that draws the screen of `roofmon run`, with the stand-in of a traced program."""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
SCRIPT = TESTS / "gpu" / "record_screen.py"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.slow
def test_the_screen_of_a_running_program_is_drawn_and_the_program_ended(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CONFIG", "CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONPATH", str(TESTS.parent))
    options = {"name": "train.py", "seconds": 90, "kernels": [["_Z4axpyfPfS_", 300, 100]]}
    program = [sys.executable, TESTS / "doubles" / "traced_program.py", json.dumps(options)]
    picture = tmp_path / "trace.svg"
    flags = ("--seconds", "0.5", "--limit", "40", "--no-calibration")
    done = run(picture, *flags, "--", *program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:-1] == ["detached"]
    words = " ".join(html.unescape(picture.read_text()).split())
    text = " ".join(re.findall(r"<text [^>]*>([^<]*)</text>", words))
    assert "axpy" in text
    assert "listening" in text
    assert picture.stat().st_mode & 0o777 == 0o644


@pytest.mark.slow
def test_a_program_without_kernels_is_given_up_after_the_limit(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done = run(tmp_path / "trace.svg", "--limit", "3", "--", "sleep", "60")
    assert done.returncode == 1
    assert "nothing came that could be drawn" in done.stderr
    assert not (tmp_path / "trace.svg").exists()
