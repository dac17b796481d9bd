"""Show this machine's kernels live under its measured roofs.

Without an NVIDIA GPU it shows the CPU. Programs appear when they use `roofmon.region`.
"""

import argparse
import shlex

from roofmon.cli.session import Source, add_view_arguments, collector_command, settings, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon` and `roofmon live`."""
    add_view_arguments(parser)
    parser.add_argument(
        "--device", help="the one shown first: cpu, a GPU's number, UUID or PCI id, or auto"
    )
    parser.add_argument(
        "--collector",
        metavar="COMMAND",
        help="read the stream from this command, for example 'ssh HOST roofmon collect'",
    )


def run(args: argparse.Namespace) -> int:
    """Show the stream of the local collector, or of the command given."""
    config, problems = settings(args)
    command = tuple(shlex.split(args.collector)) if args.collector else collector_command(config)
    return show(args, config, problems, Source(command, title="live"))
