"""Attach to running programs that have the tracing library, and show their kernels.

roofmon attach 4711

A program has it when it was started with `roofmon run -- …`, or from a shell in which
eval "$(roofmon env)" was done before. A program that runs without it cannot be given it.
"""

import argparse
import os
import sys
from pathlib import Path

from roofmon.cli.session import Source, add_view_arguments, collector_command, settings, show
from roofmon.errors import ExitCode, RoofmonError

_HOW = 'start it with roofmon run -- COMMAND, or after eval "$(roofmon env)" in its shell'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon attach`."""
    add_view_arguments(parser)
    parser.add_argument("pid", type=int, nargs="+", help="process ids")
    parser.add_argument(
        "--device", help="the one shown first: cpu, a GPU's number, UUID or PCI id, or auto"
    )


def run(args: argparse.Namespace) -> int:
    """Check that each can be attached to, say what that means, and show them."""
    from roofmon.model.activity import BEFOREHAND
    from roofmon.tracing.endpoints import find_endpoints

    traceable = {endpoint.pid for endpoint in find_endpoints("trace")}
    for pid in args.pid:
        if pid not in traceable:
            raise _why_not(pid)
    print("roofmon:", *BEFOREHAND, file=sys.stderr)
    config, problems = settings(args)
    pids = [f"--attach={pid}" for pid in args.pid]
    source = Source(
        collector_command(config, *pids), needs_kernels=True, title=f"attach {args.pid[0]}"
    )
    return show(args, config, [*problems, *BEFOREHAND], source)


def _why_not(pid: int) -> RoofmonError:
    """What is missing in a program that has no socket to attach to, and what to do."""
    process = Path("/proc", str(pid))
    try:
        name = process.joinpath("comm").read_text(errors="replace").strip()
        owner = process.stat().st_uid
    except OSError:
        return RoofmonError(f"there is no process {pid}", "", ExitCode.USAGE)
    called = f"{name} ({pid})"
    if owner != os.getuid():
        what = f"{called} belongs to another user"
        return RoofmonError(what, "only that user can trace it", ExitCode.NO_DEVICE)
    try:
        environment = process.joinpath("environ").read_bytes().split(b"\0")
    except OSError:
        environment = []
    library = [v for v in environment if v.startswith(b"CUDA_INJECTION64_PATH=")]
    if not library:
        what = f"{called} was started without the tracing library, which cannot be added later"
        return RoofmonError(what, _HOW, ExitCode.USAGE)
    if b"libroofmon_trace" not in library[0]:
        what = f"{called} was started with another tool's library in CUDA_INJECTION64_PATH"
        return RoofmonError(what, _HOW, ExitCode.USAGE)
    return RoofmonError(
        f"{called} was started with the tracing library, but has not loaded it yet: "
        "it does with its first CUDA call",
        "try again then, or let `roofmon` run: it lists the program as soon as it can be traced",
        ExitCode.ERROR,
    )
