"""Draw the screen into an SVG file, without a terminal: for a README, a report, an issue.

roofmon picture screen.svg               the bundled workload
roofmon picture screen.svg --replay FILE a recording
"""

import argparse
import re
from pathlib import Path

from roofmon.cli.session import collector_command, open_log, settings
from roofmon.errors import ExitCode, RoofmonError
from roofmon.resources import python_module
from roofmon.stream.consumer import Consumer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon picture`."""
    parser.add_argument("file", type=Path, help="the SVG file to write")
    parser.add_argument("--size", type=_size, default=(120, 36), help="columns×rows, 120x36")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long kernels run before")
    parser.add_argument(
        "--keys", nargs="*", default=[], help="keys to press before, as in settings"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="draw this recording")
    parser.add_argument("--theme", help="a theme by name")
    parser.add_argument(
        "--device", help="the one shown: cpu, a GPU's number, UUID or PCI id, or auto"
    )
    parser.add_argument("--config", type=Path, help="another configuration file")


def run(args: argparse.Namespace) -> int:
    """Draw one picture."""
    if args.file.exists():
        raise RoofmonError(
            f"{args.file} exists already",
            "choose another name; nothing is overwritten",
            ExitCode.USAGE,
        )
    config, _ = settings(args)
    command = (
        (*python_module("roofmon.stream.replay"), str(args.replay), "--speed", "1")
        if args.replay
        else collector_command(config, "--demo")
    )
    from roofmon.tui.picture import save_picture

    with open_log() as log:
        save_picture(
            lambda changed: Consumer(command, changed, live=not args.replay, log=log),
            config,
            args.file,
            args.size,
            seconds=args.seconds,
            keys=args.keys,
            title=args.replay.name if args.replay else "demo",
        )
    return ExitCode.OK


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{2,3})[x×](\d{1,3})", text)
    if match is None:
        raise argparse.ArgumentTypeError("a size like 120x36")
    return int(match[1]), int(match[2])
