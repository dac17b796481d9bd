"""The telemetry process: describes its devices, then sends a sample of each every interval.

A process of its own, since a driver call may hang; numpy stays out, so that it is small (20 MiB for a CPU,
30 with NVML).
"""

import argparse
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from roofmon.errors import RoofmonError
from roofmon.lifetime import Lifetime
from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.session import Notice
from roofmon.resources import log_path
from roofmon.stream.messages import Describe, Message, NoticeMessage, Tick
from roofmon.stream.writer import MessageWriter, private_output
from roofmon.telemetry.cpu import CpuSampler
from roofmon.telemetry.host import describe_cpu, read_host

if TYPE_CHECKING:
    from roofmon.telemetry.nvidia.sampler import GpuSampler

_OPEN_S = 5.0  # without persistence mode a GPU takes seconds to wake up
_DESCRIBE_S = 2.0
_LONGEST_WAIT_S = 0.2


class Telemetry:
    """What is sampled: GPUs where they are wanted and found, and the CPU unless only GPUs are wanted."""

    def __init__(self, device: str, gpm_interval_s: float, skip: list[str]) -> None:
        self._gpus: GpuSampler | None = None
        self._cpu: CpuSampler | None = None
        self._opening: list[Message] = []
        problem: RoofmonError | None = None
        if device != "cpu":
            # Imported only when asked for: it brings pynvml, 6 MiB.
            from roofmon.telemetry.nvidia import sampler

            self._gpus = sampler.GpuSampler(gpm_interval_s, skip)
            problem = self._gpus.settle(_OPEN_S)
        if problem is not None:
            what = f"{problem.what}: showing the CPU"
            self._opening.append(
                NoticeMessage(notice=Notice(severity="info", what=what, fix=problem.fix))
            )
        elif self._gpus is not None:
            self._opening += self._gpus.gather(_DESCRIBE_S)[0]
        if device != "nvidia" or problem is not None:
            self._add_cpu()

    def opening(self) -> list[Message]:
        """What comes before the first sample."""
        return self._opening

    def sample(self, wait_s: float) -> tuple[list[Message], list[DeviceSample]]:
        """Messages to send first, and the samples; GPUs that take longer than `wait_s` come later."""
        messages: list[Message] = []
        samples: list[DeviceSample] = []
        if self._gpus is not None:
            messages, samples = self._gpus.gather(wait_s)
        if self._cpu is not None:
            samples.append(self._cpu.sample())
        return messages, samples

    def _add_cpu(self) -> None:
        host = read_host()
        self._cpu = CpuSampler(host)
        gpus: list[DeviceDescription] = self._gpus.descriptions if self._gpus else []
        index = max((gpu.index + 1 for gpu in gpus), default=0)
        described = msgspec.structs.replace(describe_cpu(host), index=index)
        self._opening.append(Describe(devices=[described]))


def main(arguments: list[str] | None = None) -> int:
    """Run until stdin closes, a signal comes or the reader is gone."""
    parser = argparse.ArgumentParser(prog="python -m roofmon.telemetry.worker", description=__doc__)
    parser.add_argument("--device", choices=["auto", "cpu", "nvidia"], default="cpu")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between samples")
    parser.add_argument(
        "--gpm-interval", type=float, default=0.1, help="least seconds between samples of GPM"
    )
    parser.add_argument(
        "--skip", metavar="UUID", action="append", default=[], help="a GPU to leave alone"
    )
    options = parser.parse_args(arguments)
    if not 0.05 <= options.interval <= 3600:
        parser.error("--interval must be between 0.05 and 3600 seconds")
    if not 0.1 <= options.gpm_interval <= 3600:
        parser.error("--gpm-interval must be between 0.1 and 3600 seconds")
    lifetime = Lifetime()
    writer = MessageWriter(private_output(log_path()))
    try:
        return _serve(lifetime, writer, options)
    except BrokenPipeError:
        return 0
    except RoofmonError as error:
        print(f"roofmon: {error}", file=sys.stderr)
        return error.exit_code


def _serve(lifetime: Lifetime, writer: MessageWriter, options: argparse.Namespace) -> int:
    telemetry = Telemetry(options.device, options.gpm_interval, options.skip)
    for message in telemetry.opening():
        writer.send(message)
    wait_s = min(_LONGEST_WAIT_S, options.interval / 2)
    sequence, last = 0, time.monotonic_ns()
    due = time.monotonic()
    while True:
        # Kept to a grid, so that intervals do not drift; a late start (sleep, stop) skips ahead.
        due = max(due + options.interval, time.monotonic())
        if lifetime.wait(due - time.monotonic()):
            return 0
        messages, samples = telemetry.sample(wait_s)
        for message in messages:
            writer.send(message)
        now = time.monotonic_ns()
        writer.send(
            Tick(
                sequence=sequence,
                time_unix_ns=time.time_ns(),
                interval_ns=now - last,
                samples=samples,
            )
        )
        sequence, last = sequence + 1, now


if __name__ == "__main__":
    sys.exit(main())
