"""Draws the screen of `roofmon run -- COMMAND` into an SVG file: the program runs, and is ended after.

    python tests/gpu/record_screen.py docs/trace.svg [--size 120x40] [--seconds 8] [--keys ...] [-- COMMAND]

Without a command it runs train.py beside it, which needs a GPU and torch; says so where one is missing.
Nothing waits longer than --limit seconds: where roofs have yet to be measured, `roofmon calibrate` before
saves time; --no-calibration takes kept roofs only.
"""

import argparse
import importlib.util
import os
import signal
import sys
import time
from pathlib import Path

from roofmon.cli.session import collector_command, open_log
from roofmon.collector.rungs import nvidia_gpu_present
from roofmon.config import load_config
from roofmon.errors import RoofmonError
from roofmon.program.environment import tracing_variables
from roofmon.program.pty_program import PtyProgram
from roofmon.stream.consumer import Consumer
from roofmon.tui.picture import save_picture

TRAIN = Path(__file__).with_name("train.py")
GRACE_S = 5.0


def record(arguments: argparse.Namespace, command: list[str]) -> None:
    columns, rows = map(int, arguments.size.split("x"))
    flags = {"unicode": "on", "device": arguments.device}
    config, _ = load_config(None, os.environ, flags)
    environment = {**os.environ, **tracing_variables(os.environ, region=False)}
    program = PtyProgram(command, environment, (columns, rows))
    try:
        extra = ["--no-calibration"] if arguments.no_calibration else []
        collector = collector_command(config, f"--attach-tree={program.pid}", *extra)
        with open_log() as log:
            save_picture(
                lambda changed: Consumer(collector, changed, log=log),
                config,
                arguments.file,
                (columns, rows),
                seconds=arguments.seconds,
                keys=arguments.keys,
                title=f"run {program.name}",
                program=program,
                limit_s=arguments.limit,
            )
        arguments.file.chmod(0o644)
    finally:
        for number in (signal.SIGHUP, signal.SIGKILL):
            program.signal(number)
            if program.wait(GRACE_S) is not None:
                break
        program.finish()
        print("\n".join(program.output.tail(5)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", default="120x40", help="columns x rows")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long kernels run before")
    parser.add_argument("--keys", nargs="*", default=[], help="keys to press before")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-calibration", action="store_true", help="measure no roofs")
    parser.add_argument(
        "--limit", type=float, default=120.0, help="seconds until there is a kernel"
    )
    given = [*sys.argv[1:], "--"]
    at = given.index("--")
    arguments, command = parser.parse_args(given[:at]), given[at + 1 : -1]
    if not command and not (nvidia_gpu_present() and importlib.util.find_spec("torch")):
        print("skipped: this needs an NVIDIA GPU and torch, or a command")
        return
    began = time.monotonic()
    try:
        record(arguments, command or [sys.executable, str(TRAIN)])
    except RoofmonError as error:
        sys.exit(str(error))
    print(f"{arguments.file} was written in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
