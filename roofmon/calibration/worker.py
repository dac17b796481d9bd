"""The calibration process: sends cached roofs at once, or measures and sends them as they grow.

A process of its own, so that what crashes or hangs costs no more than the roofs, and so that all the
memory it took is given back. The main thread only waits for the end; the work runs in another, whose
library calls must not delay that.
"""

import argparse
import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from roofmon.calibration.cache import MODES, Mode, cpu_conditions, load_best, probes_of_mode, store
from roofmon.calibration.lock import device_lock
from roofmon.calibration.manifest import Probe, load_probes
from roofmon.calibration.results import CalibrationResult
from roofmon.errors import ExitCode, RoofmonError
from roofmon.lifetime import Lifetime
from roofmon.model.session import Notice, Progress
from roofmon.resources import log_path, write_private
from roofmon.stream.messages import Message, NoticeMessage, ProgressMessage, Roofs
from roofmon.stream.writer import MessageWriter, private_output
from roofmon.telemetry.contention import ForeignLoad, own_family
from roofmon.telemetry.host import ASSUMED_LLC_BYTES, read_host
from roofmon.units import mebibytes

_LAST_WORDS_S = 0.1  # for the work to notice that it should stop, before the process ends anyway


class Options(argparse.Namespace):
    """The command line of a worker."""

    mode: Mode
    scale: float
    probe: list[str]
    cache: bool
    cached_only: bool
    refresh: bool
    output: Path | None


def main(arguments: list[str] | None = None) -> int:
    """Calibrate. Returns 0 when done or no longer wanted, 1 without any roof, 2 for a wrong probe."""
    options = _parse(arguments)
    lifetime = Lifetime()
    writer = MessageWriter(private_output(log_path()))
    outcome: list[int] = []

    def work() -> None:
        try:
            outcome.append(_calibrate(options, writer.send, lambda: lifetime.ended is not None))
        except (BrokenPipeError, InterruptedError):
            pass  # nobody listens any more, or we were asked to stop
        except Exception as error:  # the reader must learn why there are no roofs
            traceback.print_exc()
            _say_failure(writer, error)
            outcome.append(error.exit_code if isinstance(error, RoofmonError) else ExitCode.ERROR)
        lifetime.finish()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    if lifetime.wait() != "finished":
        thread.join(_LAST_WORDS_S)
    sys.stderr.flush()
    # Not sys.exit: it would wait for library calls that are still running.
    os._exit(outcome[0] if outcome else ExitCode.OK)


def _parse(arguments: list[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m roofmon.calibration.worker", description=__doc__
    )
    parser.add_argument("--device", choices=["cpu"], default="cpu")
    parser.add_argument("--probe", action="append", default=[], metavar="NAME", help="only these")
    parser.add_argument("--refresh", action="store_true", help="measure even with valid roofs")
    parser.add_argument(
        "--no-cache", dest="cache", action="store_false", help="neither read nor keep roofs"
    )
    parser.add_argument("--cached-only", action="store_true", help="measure nothing")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="shrink sizes and time limits, for tests"
    )
    parser.add_argument("--output", type=Path, help="write the whole result to this JSON file")
    mode = parser.add_mutually_exclusive_group()
    for name in MODES[::2]:
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parser.set_defaults(mode="default")
    options = parser.parse_args(arguments, Options())
    if not 0 < options.scale <= 1:
        parser.error("--scale must be above 0 and at most 1")
    return options


def _calibrate(options: Options, emit: Callable[[Message], None], stop: Callable[[], bool]) -> int:
    def notify(notice: Notice) -> None:
        emit(NoticeMessage(notice=notice))

    def progress(done: int, total: int, text: str = "") -> None:
        now = Progress(task="calibration", device=host.uuid, done=done, total=total, text=text)
        emit(ProgressMessage(progress=now))

    def publish(result: CalibrationResult) -> int:
        if options.output:
            write_private(options.output, msgspec.json.encode(result))
        return ExitCode.OK if result.roofline.ceilings else ExitCode.ERROR

    def from_cache() -> CalibrationResult | None:
        result = load_best(host, everything, options.mode, options.scale, notify)
        if result:
            emit(Roofs(device=host.uuid, roofline=result.roofline))
            progress(1, 1)
        return result

    def waiting(pid: int | None) -> None:
        progress(0, len(probes), f"waiting for process {pid or '?'}, which is calibrating")

    # From here on others are watched: importing numpy below is time enough for a first look.
    load = ForeignLoad(own_family())
    host = read_host()
    everything, problems = load_probes()
    for problem in problems:
        notify(Notice(severity="warning", what=problem.what, fix=problem.fix))
    use_cache = options.cache and not options.probe
    if use_cache and not options.refresh and (result := from_cache()):
        return publish(result)
    if options.cached_only:
        return ExitCode.OK
    probes = _chosen(everything, options)
    if host.caches.llc_bytes is None:
        probes = [probe for probe in probes if probe.level != "llc"]
        assumed = f"{mebibytes(ASSUMED_LLC_BYTES)} are assumed to size the sets for DRAM"
        what = f"the system does not tell the last-level cache: it gets no roof, and {assumed}"
        notify(Notice(severity="info", what=what))
    with device_lock(host.uuid, waiting, stop) as waited:
        # Whoever we waited for has most likely measured what we want.
        if use_cache and waited and (result := from_cache()):
            return publish(result)
        # numpy, and what needs it, only when something is measured.
        from roofmon.calibration.run import calibrate

        conditions = cpu_conditions(host, everything, options.mode, options.scale)
        result = calibrate(host, probes, conditions, options.mode, load, emit, stop, options.scale)
        if use_cache:
            store(conditions, result, notify)
    return publish(result)


def _chosen(probes: list[Probe], options: Options) -> list[Probe]:
    """The probes to run. Raises RoofmonError for a name that no probe has."""
    if not options.probe:
        return probes_of_mode(probes, options.mode)
    known = [probe.name for probe in probes]
    for name in options.probe:
        if name not in known:
            fix = f"choose from: {', '.join(known)}"
            raise RoofmonError(f"there is no probe {name!r}", fix, ExitCode.USAGE)
    return [probe for probe in probes if probe.name in options.probe]


def _say_failure(writer: MessageWriter, error: Exception) -> None:
    what, fix = f"the calibration failed: {error}", "see the log"
    if isinstance(error, RoofmonError):
        what, fix = error.what, error.fix
    with contextlib.suppress(BrokenPipeError):
        writer.send(NoticeMessage(notice=Notice(severity="error", what=what, fix=fix)))


if __name__ == "__main__":
    sys.exit(main())
