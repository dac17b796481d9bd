"""The telemetry process: describes its device once, then sends a sample every interval.

A process of its own, since a driver call may hang; numpy stays out, so that it is small (about 20 MiB).
"""

import argparse
import sys
import time

from roofmon.lifetime import Lifetime
from roofmon.resources import log_path
from roofmon.stream.messages import Describe, Tick
from roofmon.stream.writer import MessageWriter, private_output
from roofmon.telemetry.cpu import CpuSampler
from roofmon.telemetry.host import describe_cpu, read_host


def main(arguments: list[str] | None = None) -> int:
    """Run until stdin closes, a signal comes or the reader is gone."""
    parser = argparse.ArgumentParser(prog="python -m roofmon.telemetry.worker", description=__doc__)
    parser.add_argument("--device", choices=["cpu"], default="cpu")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between samples")
    options = parser.parse_args(arguments)
    if not 0.05 <= options.interval <= 3600:
        parser.error("--interval must be between 0.05 and 3600 seconds")
    lifetime = Lifetime()
    writer = MessageWriter(private_output(log_path()))
    host = read_host()
    try:
        writer.send(Describe(devices=[describe_cpu(host)]))
        sampler = CpuSampler(host)
        sequence, last = 0, time.monotonic_ns()
        due = time.monotonic()
        while True:
            # Kept to a grid, so that intervals do not drift; a late start (sleep, stop) skips ahead.
            due = max(due + options.interval, time.monotonic())
            if lifetime.wait(due - time.monotonic()):
                return 0
            sample, now = sampler.sample(), time.monotonic_ns()
            writer.send(
                Tick(
                    sequence=sequence,
                    time_unix_ns=sample.time_unix_ns,
                    interval_ns=now - last,
                    samples=[sample],
                )
            )
            sequence, last = sequence + 1, now
    except BrokenPipeError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
