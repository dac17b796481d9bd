"""Start a program and show its kernels as they run.

roofmon run -- python train.py
roofmon run --json -- ./a.out > kernels.json

The program runs in a terminal of its own; its output is in a panel (6) and in a private file, whose name is
said at the end. Ctrl-C goes to the program. `q` closes the screen only: the program goes on in the
foreground. The exit code is the program's own, 128 + signal where one ended it.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from roofmon.cli.session import (
    Source,
    add_view_arguments,
    collector_command,
    open_log,
    settings,
    show,
)
from roofmon.errors import ExitCode, RoofmonError

if TYPE_CHECKING:
    from roofmon.config import Config
    from roofmon.program.pty_program import PtyProgram
    from roofmon.stream.consumer import Consumer

_LAST_RECORDS_S = 2.5
"""After the program's end: its last records, and the second that is waited for what comes late."""
_FIRST_SNAPSHOT_S = 10.0
_GRACE_S = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon run`."""
    add_view_arguments(parser)
    parser.add_argument(
        "--device", help="the one shown first: cpu, a GPU's number, UUID or PCI id, or auto"
    )
    parser.add_argument(
        "--region", action="store_true", help="also put the annotation API on its PYTHONPATH"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def run(args: argparse.Namespace) -> int:
    """Start the program, show it, and return its exit code."""
    from roofmon.model.activity import BEFOREHAND
    from roofmon.program.environment import tracing_variables
    from roofmon.program.foreground import terminal_size, writer_to
    from roofmon.program.pty_program import PtyProgram
    from roofmon.terminal import unsuitable

    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not command:
        what = "there is nothing to run"
        raise RoofmonError(what, "give it after --: roofmon run -- COMMAND", ExitCode.USAGE)
    config, problems = settings(args)
    variables = tracing_variables(os.environ, region=args.region)
    print("roofmon:", *BEFOREHAND, file=sys.stderr)
    headless = args.once or args.json
    if not headless and (reason := unsuitable(os.environ, sys.stdin, sys.stderr)):
        print(f"roofmon: {reason}: printing the view at the end instead", file=sys.stderr)
        headless = True
    # Without a screen a program goes on reading what it is given: `data | roofmon run --once -- program`.
    stdin = sys.stdin.fileno() if headless and not sys.stdin.isatty() else None
    listener = writer_to(sys.stderr.fileno()) if headless else None
    environment = {**os.environ, **variables}
    program = PtyProgram(command, environment, terminal_size(), stdin, listener)
    source = Source(
        collector_command(config, f"--attach-tree={program.pid}"),
        title=f"run {program.name}",
        program=program,
    )
    try:
        if headless:
            return _without_screen(args, config, source, program)
        return _with_screen(args, config, [*problems, *BEFOREHAND], source, program)
    finally:
        program.finish()
        print(f"roofmon: the program's output is in {program.path}", file=sys.stderr)


def _with_screen(
    args: argparse.Namespace,
    config: "Config",
    problems: list[str],
    source: Source,
    program: "PtyProgram",
) -> int:
    """The screen; when it is closed or fails, the program goes on in the foreground."""
    code = 0
    try:
        code = show(args, config, problems, source)
    except RoofmonError as error:
        print(f"roofmon: {error}", file=sys.stderr)
    if code > 128 and program.exit_code is None:
        return _end(program, code - 128)
    return _to_its_end(program)


def _to_its_end(program: "PtyProgram") -> int:
    program.start()  # where no screen came up to do it
    if program.exit_code is None:
        from roofmon.program.foreground import run_in_foreground, writer_to

        print(f"roofmon: {program.name} goes on without roofmon", file=sys.stderr)
        if program.on_output is None:
            program.on_output = writer_to(sys.stdout.fileno())
        run_in_foreground(program)
    code = program.wait()
    return ExitCode.ERROR if code is None else code


def _end(program: "PtyProgram", number: int) -> int:
    """A signal ended the screen: the program gets it too, and is not left behind without a terminal."""
    program.signal(number)
    if program.wait(_GRACE_S) is None:
        program.signal(signal.SIGHUP)
    return 128 + number


def _without_screen(
    args: argparse.Namespace, config: "Config", source: Source, program: "PtyProgram"
) -> int:
    """Run it to its end, or for --seconds, then print; its own output goes to stderr meanwhile."""
    from roofmon.program.foreground import run_in_foreground
    from roofmon.stream.consumer import Consumer

    changed = threading.Event()
    with open_log() as log:
        consumer = Consumer(source.command, changed.set, log=log)
        consumer.start()
        try:
            _wait_for_first(consumer, changed)
            program.start()
            run_in_foreground(program, args.seconds)
            end = time.monotonic() + _LAST_RECORDS_S
            while time.monotonic() < end:
                changed.wait(0.1)
                changed.clear()
        finally:
            snapshot = consumer.snapshot
            consumer.close()
    if snapshot is None:
        print(f"roofmon: no data came: {consumer.state}", file=sys.stderr)
    elif args.json:
        from roofmon.report.json import write_json

        write_json(snapshot, sys.stdout)
    else:
        from roofmon.report.text import print_once

        print_once(snapshot, config, sys.stdout)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    return _to_its_end(program)


def _wait_for_first(consumer: "Consumer", changed: threading.Event) -> None:
    """Until the collector is there, so that not even the first kernel is missed; not for ever."""
    end = time.monotonic() + _FIRST_SNAPSHOT_S
    while consumer.snapshot is None and time.monotonic() < end:
        changed.wait(0.1)
        changed.clear()
