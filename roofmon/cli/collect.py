"""Run the collector by itself: the stream goes to stdout, commands come from stdin.

ssh HOST roofmon collect          what a remote screen reads
roofmon collect > FILE            a recording
"""

import argparse

from roofmon.errors import ExitCode, RoofmonError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon collect`."""
    from roofmon.collector.options import add_collector_arguments

    add_collector_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the collector in this process."""
    import sys

    if sys.stdout.isatty():
        raise RoofmonError(
            "the stream is not for a terminal",
            "pipe it into a file or another roofmon",
            ExitCode.USAGE,
        )
    from roofmon.collector.main import run_collector

    return run_collector(args)
