"""Sets the collector process up: its private stream, its signals, its log; then runs the loop."""

import argparse
import contextlib
import signal

from roofmon.collector.loop import Collector
from roofmon.lifetime import die_with_parent
from roofmon.resources import log_path
from roofmon.stream.writer import StreamWriter, private_output


def run_collector(args: argparse.Namespace) -> int:
    """Run until the consumer goes, `quit` is asked for, or a signal says so. Returns 0."""
    if not die_with_parent():
        return 0
    collector = Collector(
        StreamWriter(private_output(log_path())),
        device=args.device,
        interval_s=args.interval,
        demo=args.demo,
        calibrate=not args.no_calibration,
        attach=args.attach,
        attach_tree=args.attach_tree,
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: collector.stop())
    with contextlib.suppress(BrokenPipeError):
        collector.run()
    return 0
