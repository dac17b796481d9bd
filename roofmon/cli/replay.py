"""Show a recording as if it were live. With --once or --json: its last moment."""

import argparse
from pathlib import Path

from roofmon.cli.session import Source, add_view_arguments, settings, show
from roofmon.resources import python_module
from roofmon.stream.recording import read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon replay`."""
    parser.add_argument("file", type=Path, help="a file made by `roofmon record`")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times as fast")
    add_view_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Show the stream of a child that plays the file."""
    next(read(args.file))  # a file that is no recording is told here, not from inside the screen
    play = (*python_module("roofmon.stream.replay"), str(args.file), "--speed")
    return show(
        args,
        *settings(args),
        Source((*play, str(args.speed)), live=False, title=args.file.name, speedless=(*play, "0")),
    )
