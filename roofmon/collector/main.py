"""Sets the collector process up: its private stream, its signals, its log; then runs the loop."""

import argparse
import contextlib
import ctypes
import os
import signal

from roofmon.collector.loop import Collector
from roofmon.resources import log_path
from roofmon.stream.writer import StreamWriter, private_output

_PR_SET_PDEATHSIG = 1


def run_collector(args: argparse.Namespace) -> int:
    """Run until the consumer goes, `quit` is asked for, or a signal says so. Returns 0."""
    die_with_parent()
    collector = Collector(
        StreamWriter(private_output(log_path())),
        device=args.device,
        interval_s=args.interval,
        demo=args.demo,
        calibrate=not args.no_calibration,
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: collector.stop())
    with contextlib.suppress(BrokenPipeError):
        collector.run()
    return 0


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies, however it dies."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit(0)
