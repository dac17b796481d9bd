"""A recording of the hard mix: samples, launches and truth in a small file, and its offline attribution.

counter_recording.py UUID INTERVAL_US FILE    samples a GPU until its standard input ends
"""

import contextlib
import math
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "counters"))
sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from asked_program import ProgramError
from counter_accuracy import Mixed, Sampled
from counter_watch import Loads
from recording import BESIDE_NS, packed, rebinned, unpacked
from traced_gpu_program import CountingMonitor

from roofmon.counters.attribution import Attributor
from roofmon.counters.failures import CountersLostError
from roofmon.counters.metric_sets import DRAM_READ, DRAM_WRITE, L2
from roofmon.counters.overlap import Cells, Launches
from roofmon.counters.sampler import Sampler
from roofmon.counters.samples import Samples, usable
from roofmon.counters.weights import FMA_HEAVY
from roofmon.model.stats import Z95
from roofmon.tracing.endpoints import find_endpoints

WINDOW_NS = 1_000_000_000
METRICS = (DRAM_READ, DRAM_WRITE, L2, FMA_HEAVY)  # those that the mix moves; others only take room


@dataclass(frozen=True, eq=False)
class Recorded:
    """`kernels` are "name, grid, block" by number. Each of `phases` has name, start_ns and end_ns.

    A solo phase (with `iterations`) has the `kernel` that it ran, the `bytes` that one launch must move and
    those that it did, `solo`: all that was counted over its launches. A mix has the `launches` of each by
    name, and `foreign`: whether another process moved data beside it.
    """

    samples: Samples
    launches: Launches
    kernels: list[str]
    phases: list[dict[str, Any]]


def record(
    program: Loads, beside: Loads, names: list[str], seconds: float, interval_us: int
) -> Recorded:
    """Each kernel for 0.1 s, then mixes of `seconds`: one stream, two, one beside another process.

    Raises ProgramError, RoofmonError.
    """
    monitor = attach(program.process.pid, lambda: program.run("add", 0.05))
    try:
        with sampling(monitor.devices[0].uuid, interval_us) as sampled:
            answers = list(_phases(program, beside, names, seconds))
            time.sleep(0.1)
        monitor.settle()
    finally:
        monitor.detach()
    if monitor.drops:
        raise ProgramError(f"{monitor.drops} records of launches were lost")
    return _cut(sampled[0], *launches_of(monitor), answers)


def write(path: Path, recorded: Recorded) -> int:
    """Writes a file; its size."""
    arrays = packed(recorded.samples, recorded.launches, recorded.phases, recorded.kernels)
    with path.open("wb") as file:  # savez would add .npz to a name without it
        np.savez_compressed(file, **arrays)
    return path.stat().st_size


def read(path: Path) -> Recorded:
    """What `write` wrote."""
    with np.load(path, allow_pickle=False) as file:
        samples, launches, phases, kernels = unpacked(file)
    return Recorded(samples, launches, kernels, phases)


def replay(recorded: Recorded, factor: int = 1) -> dict[str, list[Mixed]]:
    """Mix → its kernels as attribution tells them, from samples `factor` times as long."""
    solo = {p["name"]: p for p in recorded.phases if "solo" in p}
    return {
        phase["name"]: _attributed(recorded, phase, solo, factor)
        for phase in recorded.phases
        if "launches" in phase
    }


def _attributed(
    recorded: Recorded, phase: dict[str, Any], solo: dict[str, dict[str, Any]], factor: int
) -> list[Mixed]:
    samples = rebinned(_within(recorded.samples, phase["start_ns"], phase["end_ns"]), factor)
    attributor, found = Attributor(samples.metrics), None
    for start in range(phase["start_ns"], phase["end_ns"], WINDOW_NS):
        part = _within(samples, start, start + WINDOW_NS)
        found = attributor.window(part, recorded.launches, foreign=phase["foreign"]) or found
    mixed = []
    for name, launches in phase["launches"].items():
        sampled = Sampled()
        if found is not None and solo[name]["kernel"] in found.kernels:
            row = found.kernels.tolist().index(solo[name]["kernel"])
            dram = [found.metrics.index(m) for m in (DRAM_READ, DRAM_WRITE)]
            moved, error = (float(x[row, dram].sum()) for x in (found.amounts, found.errors))
            note, contended = "", "contended" if found.contended[row] else ""
            if (found.groups[row, dram] >= 0).any():
                moved, note = math.nan, "known only together with others"
            relative = Z95 * error / moved if moved > 0 else math.nan
            sampled = Sampled(moved, relative, {}, note, contended)
        mixed.append(Mixed(name, solo[name]["solo"], launches, sampled))
    return mixed


@contextlib.contextmanager
def sampling(uuid: str, interval_us: int) -> Iterator[list[Samples]]:
    """Meanwhile a process samples, by itself, since reading must not wait for records; what it sampled."""
    sampled: list[Samples] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "samples.npz")
        command = [sys.executable, "-P", __file__, uuid, str(interval_us), str(path)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                assert process.stdout is not None
                if process.stdout.readline() == "ready\n":
                    yield sampled
                _, said = process.communicate(timeout=20)
            finally:
                process.kill()
        if process.returncode != 0:
            raise ProgramError(f"the GPU was not sampled: {said[-600:]}")
        with np.load(path) as file:
            metrics = tuple(str(name) for name in file["metrics"])
            sampled.append(Samples(metrics, file["start_ns"], file["end_ns"], file["values"]))


def _sample(uuid: str, interval_us: int, path: Path) -> None:
    """Until standard input ends; says `ready` when it samples."""
    sampler = _sampler(uuid, interval_us)
    parts = [sampler.read()]
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], sampler.read_s / 2)[0]:
        parts.append(sampler.read())
    time.sleep(0.1)
    parts.append(sampler.read())
    sampler.close()
    if sampler.overflows:
        sys.exit(f"{sampler.overflows} overflows: samples of {interval_us} µs are too short here")
    samples = _joined(parts)
    columns = {name: getattr(samples, name) for name in ("start_ns", "end_ns", "values")}
    with path.open("wb") as file:
        np.savez(file, metrics=np.array(samples.metrics), **columns)


def _sampler(uuid: str, interval_us: int) -> Sampler:
    """A sampler, where need be when whoever had the counters just now has given them back."""
    for _ in range(4):
        try:
            return Sampler(uuid, interval_us, interval_us)
        except CountersLostError as error:
            if not error.busy:
                raise
            time.sleep(1.0)
    return Sampler(uuid, interval_us, interval_us)


def attach(pid: int, launch: Callable[[], object] = lambda: None) -> CountingMonitor:
    """A monitor that traces the program and knows its device; `launch` makes it launch a kernel.

    Raises ProgramError.
    """
    deadline = time.monotonic() + 10
    while True:
        found = next((e for e in find_endpoints("trace") if e.pid == pid), None)
        if found is not None:
            break
        if time.monotonic() > deadline:
            raise ProgramError("the tracing library does not listen in the program")
        time.sleep(0.05)
    monitor = CountingMonitor(found)
    try:
        monitor.wait(lambda: monitor.state in ("tracing", "failed"), 20)
    except (AssertionError, EOFError) as error:
        raise ProgramError(f"the program is not traced: {error}") from None
    if monitor.state != "tracing":
        raise ProgramError(f"the program is not traced: {monitor.states[-1:]}")
    launch()
    try:
        monitor.wait(lambda: bool(monitor.devices), 20)
    except (AssertionError, EOFError) as error:
        raise ProgramError(f"no device was named: {error}") from None
    return monitor


def _phases(
    program: Loads, beside: Loads, names: list[str], seconds: float
) -> Iterator[dict[str, Any]]:
    def asked(command: str, length: float) -> dict[str, Any]:
        program.start(command)
        answer = program.result(length)
        if "error" in answer:
            raise ProgramError(f"{answer['name']}: {answer['error']}")
        return answer

    for name in names:
        yield asked(f"run {name} 0.1", 0.1)
    for number, (streams, foreign) in enumerate(((1, False), (2, False), (1, True))):
        if foreign:
            beside.start(f"beside {seconds + 0.5} 0.3")
            time.sleep(0.2)
        answer = asked(f"mix {streams} {seconds} {number + 1}", seconds)
        if foreign:
            beside.result(seconds + 0.5)
            answer["name"] += ", beside"
        yield answer | {"foreign": foreign}


def launches_of(monitor: CountingMonitor) -> tuple[Launches, list[str]]:
    """What was traced, and the "name, grid, block" of each kernel."""
    records = monitor.records
    shape = np.column_stack([records["name"], records["grid"], records["block"]]).astype(np.int64)
    rows, kernel = np.unique(shape, axis=0, return_inverse=True)
    kernels = [
        "\t".join(
            [monitor.names.get(row[0], ""), *("x".join(map(str, row[i : i + 3])) for i in (1, 4))]
        )
        for row in rows.tolist()
    ]
    start, end = (records[name].astype(np.int64) for name in ("start_ns", "end_ns"))
    return Launches(kernel.ravel().astype(np.int64), start, end), kernels


def _cut(
    samples: Samples, launches: Launches, kernels: list[str], answers: list[dict[str, Any]]
) -> Recorded:
    """Only what belongs to a phase, and what each kernel moved by itself."""
    keep_samples = np.zeros(len(samples), dtype=bool)
    keep_launches = np.zeros(len(launches), dtype=bool)
    phases = []
    for phase in answers:
        begin, end = phase["start_ns"] - BESIDE_NS, phase["end_ns"] + BESIDE_NS
        inside = (samples.end_ns > begin) & (samples.start_ns < end)
        ran = (launches.end_ns > begin) & (launches.start_ns < end)
        keep_samples |= inside
        keep_launches |= ran
        solo = {}
        if "iterations" in phase:
            number = np.bincount(launches.kernel[ran], minlength=len(kernels))
            counted = usable(_within(samples, phase["start_ns"], phase["end_ns"]))
            dram = [samples.metrics.index(m) for m in (DRAM_READ, DRAM_WRITE)]
            of_it = launches.kernel == number.argmax()
            done = float(_inside(launches.take(of_it), counted))
            solo = {
                "kernel": int(number.argmax()),
                "solo": float(counted.values[:, dram].sum()) / done if done else math.nan,
            }
        phases.append(phase | solo)
    columns = [samples.metrics.index(name) for name in METRICS if name in samples.metrics]
    kept = samples.take(keep_samples)
    metrics = tuple(samples.metrics[column] for column in columns)
    return Recorded(
        Samples(metrics, kept.start_ns, kept.end_ns, kept.values[:, columns]),
        launches.take(keep_launches),
        kernels,
        phases,
    )


def _inside(launches: Launches, samples: Samples) -> float:
    """How many launches lie in the samples, parts of them counted as parts."""
    shares = Cells.of(samples).overlaps(
        np.zeros(len(launches), dtype=np.int64),
        1,
        launches.start_ns,
        launches.end_ns,
        1.0 / np.maximum(launches.end_ns - launches.start_ns, 1),
    )
    return float(shares.sum())


def _within(samples: Samples, start_ns: int, end_ns: int) -> Samples:
    return samples.take((samples.start_ns >= start_ns) & (samples.end_ns <= end_ns))


def _joined(parts: list[Samples]) -> Samples:
    start, end, values = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("start_ns", "end_ns", "values")
    )
    return Samples(parts[0].metrics, start, end, values)


if __name__ == "__main__":
    _sample(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
