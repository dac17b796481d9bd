"""Where the configuration is, and what it says.

roofmon config path      the file's place, also when it does not exist yet
roofmon config print     all settings in force, as a file that can be edited
"""

import argparse
import os
import sys
from pathlib import Path

from roofmon.config import config_as_toml, config_path, load_config
from roofmon.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon config`."""
    parser.add_argument("what", choices=("path", "print"), help="what to print")
    parser.add_argument("--config", type=Path, help="another configuration file")


def run(args: argparse.Namespace) -> int:
    """Print the path or the settings; faults go to stderr and make the exit code 2."""
    if args.what == "path":
        print(args.config or config_path())
        return ExitCode.OK
    config, problems = load_config(args.config, os.environ, {})
    for problem in problems:
        print(f"roofmon: {problem}", file=sys.stderr)
    print(config_as_toml(config), end="")
    return ExitCode.USAGE if problems else ExitCode.OK
