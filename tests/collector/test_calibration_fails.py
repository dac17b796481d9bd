"""What the collector says of a calibration that failed: what the worker said, not how it ended."""

import subprocess
import time
from collections.abc import Callable

from roofmon.collector.calibration import Calibrations
from roofmon.collector.host_state import HostState
from roofmon.collector.workers import Process
from roofmon.model.device import DeviceDescription
from roofmon.stream.messages import Describe, Message, NoticeMessage, ProgressMessage

GPU = DeviceDescription(uuid="GPU-none", index=0, name="a GPU that is not there", kind="cuda")


class Collector:
    """What a collector does for its calibrations: a real worker, and what comes out."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.worker: Process | None = None
        self.host = HostState(self.sent.append)
        self.host.take(Describe(devices=[GPU]))
        self.calibrations = Calibrations(
            self.host, self._watch, lambda process: None, subprocess.DEVNULL, measure=True
        )

    def _watch(
        self, process: Process, take: Callable[[Message], None], ended: Callable[[str], None]
    ) -> None:
        self.worker, self._take, self._ended = process, take, ended

    def until_ended(self) -> None:
        assert self.worker is not None
        deadline = time.monotonic() + 20
        while (messages := self.worker.receive()) is not None:
            for message in messages:
                self._take(message)
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self._ended(self.worker.end())

    def last_progress(self) -> str:
        return [m.progress.text for m in self.sent if isinstance(m, ProgressMessage)][-1]

    def notices(self) -> list[str]:
        return [m.notice.what for m in self.sent if isinstance(m, NoticeMessage)]


def test_the_progress_ends_with_what_the_worker_said() -> None:
    collector = Collector()
    collector.calibrations.ask(GPU.uuid, thorough=False)
    assert collector.last_progress() == "starting"
    collector.until_ended()
    # No driver, no CuPy, or no such GPU: whatever this machine lacks.
    assert collector.notices() == [collector.last_progress()]
    assert "exit code" not in collector.last_progress()


def test_a_worker_that_says_nothing_is_told_by_how_it_ended() -> None:
    collector = Collector()
    collector.calibrations.ask(GPU.uuid, thorough=False)
    assert collector.worker is not None
    collector.worker.kill()
    collector.until_ended()
    assert collector.last_progress() == "signal 9"
    assert collector.notices() == ["calibration ended early (signal 9)"]
