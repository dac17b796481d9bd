"""Measure the roofs of a device and print them, or list the probes.

roofmon calibrate            measure, print and keep the roofs of the first GPU, else of the CPU
roofmon calibrate --quick    the most important ones only
roofmon calibrate --list     what there is to measure; measures nothing
"""

import argparse
import io
import json
import sys

from roofmon.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon calibrate`."""
    parser.add_argument("--list", action="store_true", help="list the probes, measure nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--device",
        default="auto",
        help="what to measure: cpu, the index, UUID or PCI id of a GPU, or auto",
    )
    parser.add_argument("--probe", action="append", default=[], metavar="NAME", help="only these")
    parser.add_argument(
        "--cached", action="store_true", help="print the roofs of before where they are valid"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="the most important probes only")
    how.add_argument("--full", action="store_true", help="all probes, as without an option")
    how.add_argument("--thorough", action="store_true", help="more time for narrower intervals")


def run(args: argparse.Namespace) -> int:
    """List or measure."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where the encoding has no ±, → or ●
    return _list(args.json) if args.list else _measure(args)


def _list(as_json: bool) -> int:
    from roofmon.calibration.listing import probe_rows
    from roofmon.calibration.manifest import load_probes

    probes, problems = load_probes()
    for problem in problems:
        print(f"roofmon: {problem}", file=sys.stderr)
    if as_json:
        print(json.dumps(probe_rows(probes), indent=2))
    else:
        from roofmon.report.calibration import probe_lines

        print(*probe_lines(probes), sep="\n")
    return ExitCode.USAGE if problems else ExitCode.OK


def _measure(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as ProgressBar

    from roofmon.calibration.client import run_worker
    from roofmon.cli.session import open_log
    from roofmon.collector.rungs import nvidia_gpu_present
    from roofmon.report.calibration import (
        calibration_json,
        calibration_notes,
        calibration_table,
    )
    from roofmon.stream.messages import Message, NoticeMessage, ProgressMessage

    device = "cpu" if args.device == "auto" and not nvidia_gpu_present() else args.device
    arguments = [f"--device={device}", *(f"--probe={name}" for name in args.probe)]
    arguments += [f"--{name}" for name in ("quick", "full", "thorough") if getattr(args, name)]
    arguments += [] if args.cached else ["--refresh"]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    notes = Console(stderr=True)
    with ProgressBar(*columns, console=notes, transient=True) as bar, open_log() as log:
        task = bar.add_task("starting", total=None)

        def follow(message: Message) -> None:
            if isinstance(message, ProgressMessage):
                now = message.progress
                bar.update(task, completed=now.done, total=now.total, description=now.text)
            elif isinstance(message, NoticeMessage) and message.notice.severity != "error":
                notice = message.notice  # an error is what the command ends with
                print(
                    f"roofmon: {notice.what}",
                    *filter(None, [notice.fix]),
                    sep="; ",
                    file=sys.stderr,
                )

        result = run_worker(arguments, follow, log)
    if args.json:
        print(json.dumps(calibration_json(result), indent=2))
    else:
        console = Console()
        console.print(calibration_table(result))
        print(*calibration_notes(result, console.width), sep="\n")
    return ExitCode.OK
