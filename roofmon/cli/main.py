"""The `roofmon` command: finds the subcommand, imports only that one, and turns errors into one line."""

import argparse
import importlib
import os
import signal
import sys

from roofmon import __version__
from roofmon.errors import ExitCode, RoofmonError

COMMANDS: dict[str, str] = {
    "live": "the live screen (what `roofmon` alone does)",
    "run": "start a program and show its kernels",
    "attach": "show the kernels of a running program",
    "env": "what a shell sets so that its programs can be traced",
    "demo": "the live screen with a bundled workload to look at",
    "calibrate": "measure this device's roofs, or list the probes",
    "release": "free the performance counters for another profiler",
    "record": "write the stream to a file",
    "replay": "show a recording",
    "collect": "run the collector alone: the stream on stdout",
    "doctor": "what works here, what does not, and why",
    "config": "where the configuration is, and what it says",
    "picture": "draw the screen into an SVG file",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code (see `ExitCode`)."""
    arguments = sys.argv[1:] if argv is None else argv
    name = next((a for a in arguments if not a.startswith("-")), None)
    asks = {"-h", "--help", "--version"} & set(arguments[:1])
    if name in COMMANDS and arguments[0] == name:
        arguments = arguments[1:]
    elif asks or (arguments and not arguments[0].startswith("-")):
        return _general(arguments)
    else:
        name = "live"
    command = importlib.import_module(f"roofmon.cli.{name}")
    parser = argparse.ArgumentParser(
        prog=f"roofmon {name}" if name != "live" else "roofmon",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    try:
        return int(command.run(parser.parse_args(arguments)))
    except RoofmonError as error:
        print(f"roofmon: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our stdout went away; nothing is wrong, but Python must not flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK


def _general(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="roofmon",
        description="A live roofline monitor for kernels, in the terminal.",
        epilog="commands:\n"
        + "\n".join(f"  {name:<11}{text}" for name, text in COMMANDS.items())
        + "\n\n`roofmon COMMAND --help` says more; `roofmon` alone opens the live screen.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"roofmon {__version__}")
    parser.add_argument("command", nargs="?", choices=list(COMMANDS), metavar="COMMAND")
    parser.parse_args(arguments)
    return ExitCode.OK
