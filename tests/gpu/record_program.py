"""Records a program as counters and trace see it: samples and launches, in a small file for tests.

    python tests/gpu/record_program.py FILE.npz [--after 8] [--seconds 1.5] [-- COMMAND]

Without a command it is train.py beside it: the training step that the tests of attribution know.
Needs an NVIDIA GPU with permission for its counters, cupti-python, and what the command needs.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "counters"))
sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from asked_program import ProgramError
from counter_recording import attach, launches_of, sampling
from recording import BESIDE_NS, packed

from roofmon.collector.rungs import nvidia_gpu_present
from roofmon.errors import RoofmonError
from roofmon.program.environment import tracing_variables

TRAIN = Path(__file__).with_name("train.py")
LATE_S = 2.5  # until the record of a kernel is here


def record(path: Path, command: list[str], after_s: float, seconds: float, interval_us: int) -> str:
    """Raises ProgramError, RoofmonError."""
    environment = {**os.environ, **tracing_variables(os.environ, region=False)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            time.sleep(after_s)
            monitor = attach(process.pid)
            with sampling(monitor.devices[0].uuid, interval_us) as sampled:
                time.sleep(seconds)
            time.sleep(LATE_S)
            monitor.detach()
        finally:
            process.kill()
    if monitor.drops:
        raise ProgramError(f"{monitor.drops} records of launches were lost")
    launches, kernels = launches_of(monitor)
    samples = sampled[0]
    inside = (launches.end_ns > samples.start_ns[0] - BESIDE_NS) & (
        launches.start_ns < samples.end_ns[-1] + BESIDE_NS
    )
    launches = launches.take(inside)
    np.savez_compressed(path, **packed(samples, launches, [], kernels))
    size = path.stat().st_size / 1e6
    return f"{path}: {size:.2f} MB, {len(samples):,} samples, {len(launches):,} launches"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path)
    parser.add_argument("--after", type=float, default=8.0, help="seconds after the start")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long")
    parser.add_argument("--interval-us", type=int, default=1000)
    given = [*sys.argv[1:], "--"]
    at = given.index("--")
    arguments, command = parser.parse_args(given[:at]), given[at + 1 : -1]
    if not nvidia_gpu_present() or not importlib.util.find_spec("cupti"):
        print("skipped: this needs an NVIDIA GPU and cupti-python")
        return
    command = command or [sys.executable, str(TRAIN)]
    try:
        print(
            record(
                arguments.file, command, arguments.after, arguments.seconds, arguments.interval_us
            )
        )
    except (ProgramError, RoofmonError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
