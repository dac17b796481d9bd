"""The process that measures, and may die of it: opens the device, runs the probes it is told, and exits.

It ends by itself, by SIGKILL from the process that watches it, or with that one. What it says goes to
stdout in frames (`bench_messages`).
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from roofmon.calibration.bench_messages import BenchMessage, Phase, Refused, Said
from roofmon.calibration.manifest import load_probes
from roofmon.calibration.probe import MODES, Mode, Probe
from roofmon.calibration.run import Bench, Load, measure_all
from roofmon.errors import ExitCode, RoofmonError
from roofmon.lifetime import die_with_parent
from roofmon.model.session import Notice
from roofmon.resources import log_path
from roofmon.stream.writer import MessageWriter, private_output

if TYPE_CHECKING:
    from roofmon.calibration.gpu_meter import CounterMeter

Say = Callable[[BenchMessage], None]


class _Phases:
    """Says how long each step took, from when it is made on."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._since = time.monotonic()

    def __call__(self, name: str) -> None:
        now = time.monotonic()
        self._say(Phase(name, now - self._since))
        self._since = now


def main(arguments: list[str] | None = None) -> int:
    """Measure. Returns 0 where all probes had their turn, 1 where somebody must start again."""
    parser = argparse.ArgumentParser(
        prog="python -m roofmon.calibration.bench_worker", description=__doc__
    )
    parser.add_argument("--device", default="cpu", metavar="UUID")
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--probe", action="append", default=[], metavar="NAME")
    options = parser.parse_args(arguments)
    if not die_with_parent():
        return ExitCode.ERROR
    say = MessageWriter(private_output(log_path())).send
    try:
        probes = {probe.name: probe for probe in load_probes()[0]}
        chosen = [probes[name] for name in options.probe]
        finished = _measure(options.device, options.mode, options.scale, chosen, say)
    except RoofmonError as error:
        say(Refused(error.what, error.fix, error.exit_code))
        finished = False
    except Exception as error:
        traceback.print_exc()
        say(Refused(f"the calibration failed: {error}", "see the log", ExitCode.ERROR))
        finished = False
    sys.stderr.flush()
    # Not sys.exit: tearing down CuPy and threads takes time, and the system does it anyway.
    os._exit(ExitCode.OK if finished else ExitCode.ERROR)


def _measure(device: str, mode: Mode, scale: float, probes: list[Probe], say: Say) -> bool:
    if device == "cpu":
        bench, load = _open_cpu(mode, scale, say)
    else:
        bench, load = _open_gpu(device, mode, probes, say)
    return measure_all(bench, load, probes, say)


def _open_cpu(mode: Mode, scale: float, say: Say) -> tuple[Bench, Load]:
    from roofmon.calibration.cpu_load import CpuLoad

    load = (
        CpuLoad()
    )  # from here on others are watched: importing numpy is time enough for a first look
    phase = _Phases(say)
    from roofmon.calibration.cpu_bench import CpuBench
    from roofmon.telemetry.host import read_host

    bench = CpuBench(read_host(), mode, scale)
    phase("import of NumPy")
    return bench, load


def _open_gpu(device: str, mode: Mode, probes: list[Probe], say: Say) -> tuple[Bench, Load]:
    meter = _open_meter(device, probes)  # it has time to load its libraries until its turn
    from roofmon.calibration.gpu_load import GpuLoad, HeldClocks
    from roofmon.telemetry.nvidia.calibration_readings import CalibrationReadings

    def notify(notice: Notice) -> None:
        say(Said(notice))

    phase = _Phases(say)
    readings = CalibrationReadings(device)
    load, clocks = GpuLoad(readings), HeldClocks(readings)
    phase("NVML")
    from roofmon.calibration.gpu_bench import GpuBench
    from roofmon.calibration.gpu_device import Gpu

    gpu = Gpu(device, notify, phase)
    load.look()
    bench = GpuBench(gpu, mode, clocks, readings.limits(), meter)
    bench.warm_up()
    phase("warm-up")
    load.begin()
    if meter is not None:
        meter.prepare()
    return bench, load


def _open_meter(device: str, probes: list[Probe]) -> "CounterMeter | None":
    counters = [probe.counter for probe in probes if probe.counter]
    if not counters:
        return None
    from roofmon.calibration.gpu_meter import CounterMeter

    return CounterMeter(device, counters[0])


if __name__ == "__main__":
    sys.exit(main())
