"""The real telemetry worker as a child process on the NVML double, and what it has said.

Import `start` in a `conftest.py` to use it.
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from nvml_double import NvmlDouble
from nvml_scenarios import gpu_uuid

from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.roofline import Roofline
from roofmon.model.session import Notice
from roofmon.stream.framing import Deframer
from roofmon.stream.messages import Describe, Message, NoticeMessage, Roofs, Tick

FIRST, SECOND = gpu_uuid(0), gpu_uuid(1)


class Worker:
    """A worker process and what it has said so far."""

    def __init__(self, environment: dict[str, str], log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "roofmon.telemetry.worker", "--interval", "0.1", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
            )
        self._deframer: Deframer[Message] = Deframer(msgspec.msgpack.Decoder(Message))
        self.devices: dict[str, DeviceDescription] = {}
        self.rooflines: dict[str, Roofline] = {}
        self.notices: list[Notice] = []
        self.ticks: list[Tick] = []

    def until(self, condition: Callable[[], object], timeout_s: float = 8.0) -> None:
        """Read until the condition holds."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, self.ticks[-1:]
            if not select.select([self.process.stdout], [], [], left)[0]:
                continue
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, f"the worker ended: {self.log}"
            for message in self._deframer.feed(data):
                match message:
                    case Describe():
                        self.devices.update({d.uuid: d for d in message.devices})
                    case Roofs():
                        self.rooflines[message.device] = message.roofline
                    case NoticeMessage():
                        self.notices.append(message.notice)
                    case Tick():
                        self.ticks.append(message)

    def next(self, device: str | None, condition: Callable[[DeviceSample], object]) -> DeviceSample:
        """The next sample of a device, or of any, that fits."""
        start = len(self.ticks)

        def found() -> list[DeviceSample]:
            samples = (s for tick in self.ticks[start:] for s in tick.samples)
            return [s for s in samples if device in (None, s.device) and condition(s)]

        self.until(found)
        return found()[0]

    def settled(self, device: str = FIRST) -> DeviceSample:
        """A sample after the first interval of GPM, which needs 0.1 s."""
        return self.next(device, lambda s: "not over yet" not in s.missing.get("rates", ""))

    def close(self) -> None:
        """End it, whatever state it is in."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def log(self) -> str:
        return self._log.read_text()


def missing_has_reasons(sample: DeviceSample) -> bool:
    """Whether each field without a value has a reason, and no other."""
    fields = set(sample.__struct_fields__) - {"missing"}
    return set(sample.missing) == {f for f in fields if getattr(sample, f) is None}


@pytest.fixture
def start(nvml: NvmlDouble, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Starts workers: arguments of the worker, `device`, and variables of its environment."""
    workers: list[Worker] = []

    def begin(*arguments: str, device: str = "nvidia", **environment: str) -> Worker:
        environment = {**os.environ, **nvml.env, "XDG_STATE_HOME": str(tmp_path), **environment}
        log = tmp_path / f"stderr{len(workers)}"
        workers.append(Worker(environment, log, "--device", device, *arguments))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.close()
