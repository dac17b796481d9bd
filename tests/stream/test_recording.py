"""A recording is the stream as it came: written once, read back, replayed, good up to where it was cut."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from roofmon.errors import ExitCode, RoofmonError
from roofmon.stream.messages import Hello, Tick
from roofmon.stream.recording import create, read

SPEAKER = str(Path(__file__).with_name("speaker.py"))


def recording(path: Path, manner: str = "half") -> Path:
    """A short recording: hello, keyframe and, for `half`, the beginning of a tick."""
    result = subprocess.run(
        [sys.executable, SPEAKER, manner],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    path.write_bytes(result.stdout)
    return path


def test_a_file_cut_in_the_middle_of_a_message_is_good_up_to_there(tmp_path: Path) -> None:
    messages = list(read(recording(tmp_path / "r")))
    assert isinstance(messages[0], Hello)
    assert len(messages) == 2


def test_damage_ends_the_recording_where_it_is(tmp_path: Path) -> None:
    path = recording(tmp_path / "r")
    path.write_bytes(path.read_bytes()[:-9] + b"\xff" * 40)
    assert len(list(read(path))) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "no recording"), (b"hello world, this is text", "not a roofmon recording")],
)
def test_what_is_no_recording_is_refused_with_its_name(
    tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(RoofmonError, match=says) as error:
        list(read(path))
    assert "notes.txt" in str(error.value)
    assert error.value.exit_code == ExitCode.USAGE


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text("precious")
    with pytest.raises(RoofmonError, match="exists already"):
        create(path)
    assert path.read_text() == "precious"


def test_replaying_gives_the_same_bytes_as_far_as_they_are_whole(tmp_path: Path) -> None:
    path = recording(tmp_path / "r")
    result = subprocess.run(
        [sys.executable, "-m", "roofmon.stream.replay", str(path), "--speed", "0"],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    assert result.returncode == 0, result.stderr
    assert path.read_bytes().startswith(result.stdout)
    assert len(result.stdout) == len(path.read_bytes()) - 9


def test_the_replay_command_prints_the_last_moment(tmp_path: Path) -> None:
    path = recording(tmp_path / "r", "well")
    assert not [m for m in read(path) if isinstance(m, Tick)]  # its stdin was closed at once
    result = subprocess.run(
        [sys.executable, "-m", "roofmon", "replay", str(path), "--json"],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["host"] == "well"
