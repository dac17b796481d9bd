"""Samples one counter of one GPU for a moment: a process of its own, started by a calibration.

Its own, since CuPy brings another CUPTI than the one that can sample. It loads its libraries at once and
then waits: at the first byte on stdin it takes the counters and says `meter_messages.Ready`, at the second
it says what was counted and gives them back. It ends then, when stdin closes, with its parent, or when it
has had the counters for `_LONGEST_S`.
"""

import argparse
import contextlib
import os
import select
import sys
import time
import traceback
from collections.abc import Callable, Sequence

from roofmon.counters.cupti_library import device_index, load_cupti
from roofmon.counters.hold import Hold
from roofmon.counters.meter_messages import Counted, Ready, Refused, Said
from roofmon.counters.rivals import Lookout
from roofmon.counters.sampler import Sampler
from roofmon.counters.samples import Samples
from roofmon.errors import ExitCode, RoofmonError
from roofmon.lifetime import die_with_parent
from roofmon.resources import log_path
from roofmon.stream.writer import MessageWriter, private_output

INTERVAL_US = 1_000
_READ_S = 0.1
_LATE_S = 0.05  # samples are complete some time after their end: about 16 of 1 ms on an H200
_LONGEST_S = 10.0


def main(arguments: list[str] | None = None) -> int:
    """Meter once. Returns 0 whatever came of it, 1 where the parent is gone already."""
    parser = argparse.ArgumentParser(prog="python -m roofmon.counters.meter", description=__doc__)
    parser.add_argument("--device", metavar="UUID", required=True)
    parser.add_argument("--counter", required=True, help="for example lts__t_bytes.sum")
    options = parser.parse_args(arguments)
    if not die_with_parent():
        return ExitCode.ERROR
    say = MessageWriter(private_output(log_path())).send
    with contextlib.suppress(BrokenPipeError):
        try:
            _meter(options.device, options.counter, say)
        except RoofmonError as error:
            print(f"roofmon: counters: {error}", file=sys.stderr)
            say(Refused(error.what))
        except Exception as error:
            traceback.print_exc()
            say(Refused(f"the counters cannot be had: {error}"))
    return ExitCode.OK


def _meter(device: str, counter: str, say: Callable[[Said], None]) -> None:
    # What takes longest, done while the other side has not asked yet. `Sampler` finds it done.
    device_index(device)
    load_cupti()
    if not _asked(None):
        return
    if rivals := Lookout().look():
        pid, tool = min(rivals.items())
        raise RoofmonError(f"{tool} ({pid}) runs: it may want the counters")
    hold = Hold(device)
    holder = hold.take()
    if holder is not None:
        who = f"another roofmon ({holder}) has the counters"
        raise RoofmonError(f"{who}: roofmon release frees them")
    # The same counters together as when kernels are watched.
    sampler = Sampler(device, INTERVAL_US, longest_read_s=_READ_S)
    try:
        say(Ready())
        parts: list[Samples] = []
        end = time.monotonic() + _LONGEST_S
        while not _asked(_READ_S) and time.monotonic() < end:
            parts.append(sampler.read())
        time.sleep(_LATE_S)
        parts.append(sampler.read())
        metrics = sampler.metrics
        if sampler.overflows:
            raise RoofmonError("samples were lost: the GPU's buffer for them was full")
        if counter not in metrics:
            raise RoofmonError(f"{counter} cannot be sampled on this GPU")
        say(_counted(parts, metrics.index(counter)))
    finally:
        sampler.close()
        hold.give_back()


def _counted(parts: Sequence[Samples], column: int) -> Counted:
    return Counted(
        start_ns=[int(ns) for part in parts for ns in part.start_ns],
        end_ns=[int(ns) for part in parts for ns in part.end_ns],
        counts=[float(count) for part in parts for count in part.values[:, column]],
    )


def _asked(timeout_s: float | None) -> bool:
    """Whether a byte came within this time. Raises BrokenPipeError where the other side is gone."""
    if not select.select([0], [], [], timeout_s)[0]:
        return False
    if not os.read(0, 1):
        raise BrokenPipeError
    return True


if __name__ == "__main__":
    sys.exit(main())
