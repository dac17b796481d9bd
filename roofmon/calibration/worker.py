"""The calibration of a device: cached roofs are sent at once, else roofs as they are measured.

What measures runs in processes of its own (`supervisor`); here is what must outlive them: the lock, the
cache and the stream. The main thread only waits for the end; the work runs in another.
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

from roofmon.calibration.cache import load_best, store
from roofmon.calibration.gather import Gathered
from roofmon.calibration.lock import device_lock
from roofmon.calibration.manifest import load_probes
from roofmon.calibration.probe import MODES, Mode, Probe, probes_of_mode
from roofmon.calibration.results import CalibrationResult
from roofmon.calibration.supervisor import PROBE_LIMIT_S, measure_in_processes
from roofmon.calibration.targets import Target, find_target
from roofmon.errors import ExitCode, RoofmonError
from roofmon.lifetime import Lifetime
from roofmon.model.session import Notice, Progress
from roofmon.resources import log_path, write_private
from roofmon.stream.messages import Message, NoticeMessage, ProgressMessage, Roofs
from roofmon.stream.writer import MessageWriter, private_output

_LAST_WORDS_S = 0.1  # for the work to notice that it should stop, before the process ends anyway


class Options(argparse.Namespace):
    """The command line of a worker."""

    device: str
    mode: Mode
    scale: float
    probe: list[str]
    cache: bool
    cached_only: bool
    refresh: bool
    while_idle: bool
    probe_limit: float | None
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
        except RoofmonError as error:
            _say_failure(writer, error.what, error.fix)
            outcome.append(error.exit_code)
        except Exception as error:  # the reader must learn why there are no roofs
            traceback.print_exc()
            _say_failure(writer, f"the calibration failed: {error}", "see the log")
            outcome.append(ExitCode.ERROR)
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
    parser.add_argument(
        "--device", default="cpu", help="cpu, an index, a UUID, a PCI id, or auto for the first GPU"
    )
    parser.add_argument("--probe", action="append", default=[], metavar="NAME", help="only these")
    parser.add_argument("--refresh", action="store_true", help="measure even with valid roofs")
    parser.add_argument(
        "--no-cache", dest="cache", action="store_false", help="neither read nor keep roofs"
    )
    parser.add_argument("--cached-only", action="store_true", help="measure nothing")
    parser.add_argument(
        "--while-idle", action="store_true", help="give up when somebody else uses the device"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="shrink CPU sets and time limits, for tests"
    )
    parser.add_argument(
        "--probe-limit", type=float, metavar="SECONDS", help="end a probe that takes longer"
    )
    parser.add_argument("--output", type=Path, help="write the whole result to this JSON file")
    mode = parser.add_mutually_exclusive_group()
    for name in MODES:
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parser.set_defaults(mode="full")
    options = parser.parse_args(arguments, Options())
    if not 0 < options.scale <= 1:
        parser.error("--scale must be above 0 and at most 1")
    return options


def _calibrate(options: Options, emit: Callable[[Message], None], stop: Callable[[], bool]) -> int:
    def notify(notice: Notice) -> None:
        emit(NoticeMessage(notice=notice))

    def progress(done: int, total: int, text: str = "") -> None:
        now = Progress(task="calibration", device=target.uuid, done=done, total=total, text=text)
        emit(ProgressMessage(progress=now))

    def publish(result: CalibrationResult) -> int:
        if options.output:
            write_private(options.output, msgspec.json.encode(result))
        if not result.roofline.ceilings:
            why = [
                f"{n}: {w}" for n, w in [*result.failures.items(), *result.not_applicable.items()]
            ]
            raise RoofmonError("; ".join(["no probe gave a roof", *why[:1]]), "see the log")
        return ExitCode.OK

    def from_cache() -> CalibrationResult | None:
        good_enough = reversed(MODES[MODES.index(options.mode) :])
        result = load_best(target.conditions_of, good_enough, notify)
        if result:
            emit(Roofs(device=target.uuid, roofline=result.roofline))
            progress(1, 1)
        return result

    def waiting(pid: int | None) -> None:
        progress(0, len(probes), f"waiting for process {pid or '?'}, which is calibrating")

    everything, problems = load_probes()
    for problem in problems:
        notify(Notice(severity="warning", what=problem.what, fix=problem.fix))
    target = find_target(options.device, everything, options.scale, notify)
    use_cache = options.cache and not options.probe
    if use_cache and not options.refresh and (result := from_cache()):
        return publish(result)
    if options.cached_only:
        return ExitCode.OK
    probes = _chosen(target, options)
    with device_lock(target.uuid, waiting, stop) as waited:
        # Whoever we waited for has most likely measured what we want.
        if use_cache and waited and (result := from_cache()):
            return publish(result)
        result = _measure(target, probes, options, emit, stop)
        if use_cache:
            store(target.conditions_of(options.mode), result, notify)
    return publish(result)


def _measure(
    target: Target,
    probes: list[Probe],
    options: Options,
    emit: Callable[[Message], None],
    stop: Callable[[], bool],
) -> CalibrationResult:
    hastier = reversed(MODES[: MODES.index(options.mode)])
    before = load_best(target.conditions_of, hastier) if options.cache else None
    kept = before.roofline.ceilings if before else ()
    conditions = target.conditions_of(options.mode)
    not_applicable = dict(target.not_applicable)
    peer = None
    if linked := [probe.name for probe in probes if probe.level == "nvlink"]:
        peer, why_not = target.find_peer()
        not_applicable |= {} if peer else dict.fromkeys(linked, why_not)
        probes = [probe for probe in probes if probe.name not in not_applicable]
    gathered = Gathered(target.uuid, probes, conditions, emit, kept)
    measure_in_processes(
        target.batches(probes, peer, options.mode, options.scale),
        gathered,
        options.probe_limit or PROBE_LIMIT_S[options.mode],
        lambda: stop() or (options.while_idle and gathered.disturbed),
    )
    result = gathered.finish(options.mode, target.bounds, not_applicable)
    phases = ", ".join(f"{name} {seconds:.3f}" for name, seconds in result.phases.items())
    print(f"roofmon: calibration took {result.seconds:.3f} s: {phases}", file=sys.stderr)
    return result


def _chosen(target: Target, options: Options) -> list[Probe]:
    """The probes to run. Raises RoofmonError for a name that no probe of the device has."""
    possible = [probe for probe in target.probes if probe.name not in target.not_applicable]
    if not options.probe:
        return probes_of_mode(possible, options.mode)
    known = [probe.name for probe in target.probes]
    for name in options.probe:
        if why_not := target.not_applicable.get(name):
            raise RoofmonError(f"probe {name} is not applicable: {why_not}", "", ExitCode.USAGE)
        if name not in known:
            fix = f"choose from: {', '.join(known)}"
            raise RoofmonError(f"there is no probe {name!r}", fix, ExitCode.USAGE)
    return [probe for probe in possible if probe.name in options.probe]


def _say_failure(writer: MessageWriter, what: str, fix: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        writer.send(NoticeMessage(notice=Notice(severity="error", what=what, fix=fix)))


if __name__ == "__main__":
    sys.exit(main())
