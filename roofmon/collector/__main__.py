"""`python -m roofmon.collector`: the child that the screen starts."""

import argparse
import sys

from roofmon.collector.main import run_collector
from roofmon.collector.options import add_collector_arguments

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="roofmon.collector")
    add_collector_arguments(parser)
    sys.exit(run_collector(parser.parse_args()))
