"""A consumer against real children that behave well, die, hang, and speak garbage."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roofmon.stream.consumer import Consumer
from roofmon.stream.messages import Command

SPEAKER = str(Path(__file__).with_name("speaker.py"))


class Watched:
    """A consumer whose every state is kept."""

    def __init__(self, *command: str, live: bool = True) -> None:
        self.states: list[str] = []
        self.stale: list[str] = []
        self._changed = threading.Condition()
        self.consumer = Consumer(command, self._note, live=live)
        self.consumer.start()

    def _note(self) -> None:
        with self._changed:
            self.states.append(self.consumer.state)
            if self.consumer.snapshot is not None:
                self.stale.append(self.consumer.snapshot.stale)
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool], timeout_s: float = 10) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout_s), self.states


@pytest.fixture
def watch() -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def start(*command: str, live: bool = True) -> Watched:
        made.append(Watched(*command, live=live))
        return made[-1]

    yield start
    for watched in made:
        watched.consumer.close()


def speak(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, SPEAKER, *arguments)


def test_snapshots_come_and_closing_ends_the_child_at_once(watch: Callable[..., Watched]) -> None:
    watched = watch(*speak("well"))
    watched.until(lambda: watched.states.count("") >= 3)
    began = time.monotonic()
    watched.consumer.close()
    assert time.monotonic() - began < 0.8
    assert watched.consumer.wait_end(1)
    assert watched.consumer.snapshot is not None
    assert watched.consumer.snapshot.host == "well"


@pytest.mark.parametrize(
    ("manner", "says"),
    [("dies", "signal 9"), ("garbage", "not the stream"), ("half", "middle of a message")],
)
def test_a_failing_collector_leaves_its_last_snapshot_and_is_started_again(
    watch: Callable[..., Watched], tmp_path: Path, manner: str, says: str
) -> None:
    watched = watch(*speak(manner, str(tmp_path / "started")))
    watched.until(lambda: any(says in state for state in watched.states))
    watched.until(lambda: any(says in stale for stale in watched.stale))
    assert any("starting it again" in state for state in watched.states)
    watched.until(lambda: watched.states[-1] == "")
    assert watched.consumer.snapshot is not None
    assert watched.consumer.snapshot.host == "well"
    assert watched.consumer.snapshot.stale == ""


def test_a_child_that_ignores_everything_is_killed_on_close(watch: Callable[..., Watched]) -> None:
    watched = watch(*speak("hangs"))
    watched.until(lambda: watched.consumer.snapshot is not None)
    began = time.monotonic()
    watched.consumer.close()
    assert time.monotonic() - began < 1.0


def test_the_end_of_a_recording_is_told_and_nothing_is_restarted(
    watch: Callable[..., Watched],
) -> None:
    watched = watch(*speak("half"), live=False)
    assert watched.consumer.wait_end(10)
    assert "middle of a message" in watched.states[-1]
    assert watched.states[-1] == watched.stale[-1]


def test_a_command_that_does_not_exist_is_told(watch: Callable[..., Watched]) -> None:
    watched = watch("/nonexistent/collector")
    watched.until(lambda: any("cannot be started" in state for state in watched.states))
    assert not watched.consumer.send(Command(command="reset"))
