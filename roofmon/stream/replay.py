"""Plays a recording as a child process that speaks the stream: `python -m roofmon.stream.replay FILE`.

The consumer cannot tell it from a collector, except that its end is not a failure.
"""

import argparse
import os
import select
import sys
import time
from pathlib import Path

from roofmon.errors import RoofmonError
from roofmon.stream.recording import moment, read
from roofmon.stream.writer import MessageWriter, private_output

_LONGEST_PAUSE_S = 5.0


def main() -> int:
    """Play the file given, at the pace it was recorded or `--speed` times that (0: at once)."""
    parser = argparse.ArgumentParser(prog="roofmon.stream.replay")
    parser.add_argument("file", type=Path)
    parser.add_argument("--speed", type=float, default=1.0)
    args = parser.parse_args()
    writer = MessageWriter(private_output())
    before: int | None = None
    try:
        for message in read(args.file):
            now = moment(message)
            if now is not None and before is not None and args.speed > 0:
                pause = min(_LONGEST_PAUSE_S, max(0.0, (now - before) / 1e9 / args.speed))
                if _told_to_stop(pause):
                    return 0
            before = now if now is not None else before
            writer.send(message)
    except BrokenPipeError:
        return 0
    except RoofmonError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _told_to_stop(pause_s: float) -> bool:
    """Sleep, unless the consumer goes first: then its end of our stdin closes."""
    end = time.monotonic() + pause_s
    while (left := end - time.monotonic()) > 0:
        if select.select([0], [], [], left)[0] and not os.read(0, 4096):
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
