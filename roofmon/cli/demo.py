"""Show the bundled workload: its kernels appear one by one under the roofs of this machine.

The workload is a second process; it declares FLOPs and bytes through `roofmon.region`.
"""

import argparse

from roofmon.cli.session import Source, add_view_arguments, collector_command, settings, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon demo`."""
    add_view_arguments(parser)
    parser.add_argument(
        "--device", help="the one shown first: cpu, a GPU's number, UUID or PCI id, or auto"
    )


def run(args: argparse.Namespace) -> int:
    """Show the collector that starts the workload after calibrating."""
    config, problems = settings(args)
    command = collector_command(config, "--demo")
    return show(args, config, problems, Source(command, needs_kernels=True, title="demo"))
