"""Free the performance counters that roofmon holds, so that another profiler can have them.

Counters are exclusive on a GPU. roofmon lets go by itself when ncu, nsys or DCGM's tools start; this is for
all others. The screen stays; `p` twice takes the counters again.
"""

import argparse
import os
import signal
import time

from roofmon.errors import ExitCode, RoofmonError

_PATIENCE_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon release`: none."""


def run(args: argparse.Namespace) -> int:
    """Tell every worker of this user that holds counters to free them, and wait until it has."""
    from roofmon.counters.hold import holders, is_counters_worker

    held = holders()
    if not held:
        print("no roofmon of this user holds counters")
        return ExitCode.OK
    for uuid, pid in held.items():
        if not is_counters_worker(pid):
            what = f"the counters of {uuid} are held by process {pid or 'unknown'}, which is no roofmon"
            raise RoofmonError(what, "end it")
        os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + _PATIENCE_S
    while left := {uuid: pid for uuid, pid in holders().items() if held.get(uuid) == pid}:
        if time.monotonic() > deadline:
            uuid, pid = next(iter(left.items()))
            what = f"process {pid} has not freed the counters of {uuid} in {_PATIENCE_S:.0f} s"
            raise RoofmonError(what, f"end it: kill {pid}")
        time.sleep(0.02)
    for uuid, pid in held.items():
        print(f"freed the counters of {uuid} (held by process {pid})")
    return ExitCode.OK
