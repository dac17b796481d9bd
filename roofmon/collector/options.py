"""What a collector can be told on its command line."""

import argparse


def add_collector_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments shared by `roofmon collect` and the child that the screen starts."""
    parser.add_argument(
        "--device",
        default="auto",
        help="the one shown first: a GPU's number, UUID or PCI id; cpu to watch no GPU; or auto",
    )
    parser.add_argument(
        "--interval", type=_interval, default=0.5, help="seconds between ticks, 0.1 to 5"
    )
    parser.add_argument(
        "--demo", action="store_true", help="start the bundled workload once the roofs are measured"
    )
    parser.add_argument(
        "--attach", type=int, action="append", default=[], metavar="PID", help="trace this program"
    )
    parser.add_argument(
        "--attach-tree",
        type=int,
        action="append",
        default=[],
        metavar="PID",
        help="trace this program and all that it starts",
    )
    parser.add_argument("--no-calibration", action="store_true", help="draw cached roofs only")


def _interval(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 5:
        raise argparse.ArgumentTypeError("an interval from 0.1 to 5 seconds")
    return value
