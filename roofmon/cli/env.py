"""Print what a shell has to set so that the CUDA programs it starts can be traced.

eval "$(roofmon env)"            in the shell that starts the jobs (sh, bash, zsh, dash)
eval "$(roofmon env --region)"   also makes `from region import region` work in any Python

The library stays dormant in the programs: it does nothing until a roofmon attaches to one of them.
"""

import argparse
import os
import shlex
import sys

from roofmon.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon env`."""
    parser.add_argument(
        "--region", action="store_true", help="also put the annotation API on PYTHONPATH"
    )


def run(args: argparse.Namespace) -> int:
    """Print the lines; compiles the library first, once."""
    from roofmon.program.environment import tracing_variables

    for name, value in tracing_variables(os.environ, region=args.region).items():
        print(f"export {name}={shlex.quote(value)}")
    if sys.stdout.isatty():
        print('roofmon: to set this here: eval "$(roofmon env)"', file=sys.stderr)
    return ExitCode.OK
