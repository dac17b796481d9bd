"""Write the stream to a file, for `roofmon replay` or a colleague. Ctrl-C ends the recording."""

import argparse
import contextlib
import os
import select
import shlex
import sys
import time
from pathlib import Path

from roofmon.cli.session import collector_command, open_log, settings
from roofmon.errors import ExitCode
from roofmon.stream.consumer import end, spawn
from roofmon.stream.recording import create


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon record`."""
    parser.add_argument("file", type=Path, help="a new file; nothing is overwritten")
    parser.add_argument("--seconds", type=float, help="how long; until Ctrl-C if not given")
    parser.add_argument(
        "--device", help="the one shown first: cpu, a GPU's number, UUID or PCI id, or auto"
    )
    parser.add_argument("--demo", action="store_true", help="record the bundled workload")
    parser.add_argument("--config", type=Path, help="another configuration file")
    parser.add_argument("--collector", metavar="COMMAND", help="record the stream of this command")


def run(args: argparse.Namespace) -> int:
    """Copy the collector's stream to the file as it comes."""
    config, _ = settings(args)
    command = (
        tuple(shlex.split(args.collector))
        if args.collector
        else collector_command(config, *(["--demo"] if args.demo else []))
    )
    limit = config.record_limit_mib * 2**20
    target = create(args.file)
    finish = time.monotonic() + args.seconds if args.seconds else float("inf")
    size = 0
    with open_log() as log:
        child = spawn(command, log)
        assert child.stdout is not None
        try:
            with contextlib.suppress(KeyboardInterrupt):
                while time.monotonic() < finish:
                    if not select.select([child.stdout], [], [], 0.2)[0]:
                        continue
                    data = os.read(child.stdout.fileno(), 1 << 20)
                    if not data:
                        break
                    size += len(data)
                    os.write(target, data)
                    if size >= limit:
                        print(
                            f"roofmon: the recording ends at {config.record_limit_mib} MiB; "
                            "record_limit_mib in the configuration allows more",
                            file=sys.stderr,
                        )
                        break
        finally:
            end(child)
            os.close(target)
    print(f"roofmon: {size} bytes recorded in {args.file}", file=sys.stderr)
    return ExitCode.OK if size else ExitCode.ERROR
