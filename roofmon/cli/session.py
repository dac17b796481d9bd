"""What the commands that show a stream share: their arguments, the child they read, the way they show.

The child is started before anything heavy is imported, so that it gets going while the screen does.
"""

import argparse
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roofmon.config import Config, load_config
from roofmon.errors import ExitCode, RoofmonError
from roofmon.hangup import watch_terminal
from roofmon.opening import Opening
from roofmon.resources import log_path, python_module
from roofmon.stream.consumer import Consumer, spawn
from roofmon.terminal import draws_unicode, unsuitable

if TYPE_CHECKING:
    from roofmon.model.snapshot import Snapshot
    from roofmon.program.pty_program import PtyProgram

_CALIBRATION_LIMIT_S = 120.0
_FIRST_KERNEL_LIMIT_S = 30.0
_NOTHING_LIMIT_S = 15.0
_LOG_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Source:
    """The child to read: its command, whether it is live, and what a headless view waits for."""

    command: tuple[str, ...]
    live: bool = True
    needs_kernels: bool = False
    title: str = ""
    speedless: tuple[str, ...] | None = None  # the command to use when nothing is shown live
    program: "PtyProgram | None" = None  # what `run` started, whose output the screen shows


def add_view_arguments(parser: argparse.ArgumentParser) -> None:
    """`--once`, `--json` and what goes with them."""
    parser.add_argument("--once", action="store_true", help="print the view as text and end")
    parser.add_argument("--json", action="store_true", help="print the snapshot as JSON and end")
    parser.add_argument(
        "--seconds", type=_positive, help="how long to watch before --once or --json print"
    )
    parser.add_argument("--theme", help="a theme by name")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    parser.add_argument("--config", type=Path, help="another configuration file")


def settings(args: argparse.Namespace) -> tuple[Config, list[str]]:
    """The configuration in force, and its faults as lines, which are also told on stderr."""
    config, problems = load_config(args.config, os.environ, _flags(args))
    for problem in problems:
        print(f"roofmon: {problem}", file=sys.stderr)
    return config, [str(problem) for problem in problems]


def show(args: argparse.Namespace, config: Config, problems: list[str], source: Source) -> int:
    """Show `source` as the arguments ask: screen, text or JSON."""
    if args.once or args.json:
        return _print_once(args, config, source)
    reason = unsuitable(os.environ, sys.stdin, sys.stderr)
    if reason:
        print(f"roofmon: {reason}: printing the view once instead", file=sys.stderr)
        return _print_once(args, config, source)
    return _run_screen(config, source, problems)


def _run_screen(config: Config, source: Source, problems: list[str]) -> int:
    with open_log() as log:
        # What goes wrong in the screen is told in one line; the log has the traceback.
        logging.basicConfig(
            stream=os.fdopen(os.dup(log), "a"),
            level=logging.WARNING,
            format="%(asctime)s %(name)s %(levelname)s %(message)s",
        )
        child = spawn(source.command, log)
        watch_terminal()

        def consumer(on_change: Callable[[], None]) -> Consumer:
            return Consumer(source.command, on_change, live=source.live, log=log, first=child)

        unicode = draws_unicode(config.unicode, getattr(sys.__stderr__, "encoding", None))
        with Opening(source.title, unicode=unicode) as opening:
            from roofmon.tui.run import run

            opening.hand_over()
            told = " · ".join(problems)
            return run(consumer, config, notice=told, title=source.title, program=source.program)


def _print_once(args: argparse.Namespace, config: Config, source: Source) -> int:
    snapshot = watch(source, args.seconds)
    if config.device != "auto":
        from roofmon.device_choice import choose

        choose([device.description for device in snapshot.devices], config.device)
    if args.json:
        from roofmon.report.json import write_json

        write_json(snapshot, sys.stdout)
    else:
        from roofmon.report.text import print_once

        print_once(snapshot, config, sys.stdout)
    return ExitCode.OK


def watch(source: Source, seconds: float | None) -> "Snapshot":
    """Read the stream without a screen until there is something to print; returns the last snapshot.

    A live stream is watched for `seconds` (default 2) after calibration has ended and, for sources that
    bring kernels, after the first one. Raises RoofmonError when nothing comes.
    """
    changed = threading.Event()
    with open_log() as log:
        consumer = Consumer(
            source.speedless or source.command, changed.set, live=source.live, log=log
        )
        consumer.start()
        try:
            if source.live:
                _watch_live(consumer, changed, source, 2.0 if seconds is None else seconds)
            else:
                consumer.wait_end()
        finally:
            snapshot, state = consumer.snapshot, consumer.state
            consumer.close()
    if snapshot is None:
        raise RoofmonError(
            f"no data came: {state or 'the stream is empty'}",
            f"see the log at {log_path()}",
            ExitCode.ERROR,
        )
    return snapshot


def _watch_live(
    consumer: Consumer, changed: threading.Event, source: Source, seconds: float
) -> None:
    start = time.monotonic()
    told = ""
    calibrated = first_kernel = None
    while True:
        changed.wait(0.2)
        changed.clear()
        now, snapshot = time.monotonic(), consumer.snapshot
        if snapshot is None:
            if consumer.state != told:
                told = consumer.state
                print(f"roofmon: {told}", file=sys.stderr)
            if now - start > _NOTHING_LIMIT_S:
                return
            continue
        busy = next((d.progress for d in snapshot.devices if d.progress), None)
        if calibrated is None and snapshot.devices and busy is None:
            calibrated = now
        if busy is not None and busy.text != told:
            told = busy.text
            print(f"roofmon: {busy.task} {busy.done}/{busy.total}: {told}", file=sys.stderr)
        if first_kernel is None and len(snapshot.kernels):
            first_kernel = now
        begun = first_kernel if source.needs_kernels else calibrated
        if begun is not None and now - begun >= seconds:
            return
        waited = now - (calibrated if calibrated is not None else start)
        limit = _FIRST_KERNEL_LIMIT_S + seconds if calibrated is not None else _CALIBRATION_LIMIT_S
        if waited > limit:
            return


@contextlib.contextmanager
def open_log() -> Iterator[int]:
    """A descriptor of the log, for what children write to stderr; of nowhere if it cannot be written."""
    path = log_path()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    try:
        if path is None:
            raise OSError
        if path.exists() and path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def collector_command(config: Config, *extra: str) -> tuple[str, ...]:
    """The local collector as a child, told what the configuration in force says."""
    interval = f"{1 / config.refresh_hz:g}"
    return (
        *python_module("roofmon.collector"),
        *("--device", config.device, "--interval", interval),
        *extra,
    )


def _flags(args: argparse.Namespace) -> dict[str, object]:
    return {
        "theme": getattr(args, "theme", None),
        "unicode": "off" if getattr(args, "ascii", False) else None,
        "device": getattr(args, "device", None),
    }


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError("a number of seconds from 0 to 86400")
    return value
