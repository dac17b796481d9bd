"""How good the roofs of a GPU are, and what measuring them costs.

    python tests/gpu/bench_calibration.py [--only SECTION …] [--tune NAME …]

Every number has its goal beside it. Sections:
    roofs   ten full calibrations, in fresh processes; before and after each of the first five the same is
            measured with torch, in a process of its own. Ratios are of medians over these rounds, and a
            peer's spread is how far its two measurements in a round differ. The ten together give the
            repeatability of each roof, and how often its stated interval holds.
    times   how long calibrations take, the start of the process included.
    tune    not among the default ones: other launch parameters for the CUDA probes (see tune_probes.py),
            of those whose names hold one of --tune.
Needs a GPU and CuPy, and torch for the peers; says so and ends well where one is missing.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from roofmon.calibration.ceilings import share_of_bound
from roofmon.calibration.client import run_worker
from roofmon.calibration.gpu_driver import Driver
from roofmon.calibration.gpu_library import prepare_environment
from roofmon.calibration.results import CalibrationResult
from roofmon.errors import RoofmonError
from roofmon.model.roofline import Ceiling
from roofmon.stream.messages import Message, NoticeMessage

RUNS, ROUNDS, QUICK_RUNS = 10, 5, 5
SETTLE_S = 2.2
"""After a peer: the driver's samples of who used the GPU reach back so far, and a calibration that finds
the peer there calls itself contended."""

PEERS = {
    "gpu-dram-triad": "add",
    **{f"gpu-gemm-{precision}": precision for precision in ("bf16", "fp16", "tf32", "fp64")},
}
H200_STREAM = 4393e9  # BabelStream 5.0 triad, 2^28 doubles
H200_L2 = (9.5e12, 9.8e12)  # gpu-l2-cache of gpu-benches, sets of 10 to 40 MB


class Peers(AbstractContextManager["Peers"]):
    """The process that measures with torch; without torch nothing is known."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        if importlib.util.find_spec("torch") is None:
            print("torch is not installed: no peers")
            return
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("calibration_peers.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            print(f"peers: {self._ask('versions')}")
        except (RoofmonError, BrokenPipeError) as error:
            print(f"no peers: {error}")
            self._process.communicate()
            self._process = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.communicate()

    def measure(self) -> dict[str, float]:
        """byte/s or FLOP/s by our probe's name; empty without torch."""
        if self._process is None:
            return {}
        return {name: float(str(self._ask(peer)["value"])) for name, peer in PEERS.items()}

    def _ask(self, name: str) -> dict[str, object]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RoofmonError(f"the peers' process ended at {name!r}", "see its traceback above")
        answer: dict[str, object] = json.loads(line)
        return answer


class Table:
    """Rows of what was measured beside its goal."""

    def __init__(self) -> None:
        self._missed: list[str] = []
        print(f"\n{'':44}{'measured':>21}  {'goal':16}{'peer ±':>8}{'n':>5}{'clock':>10}  reasons")

    def row(
        self,
        what: str,
        measured: str,
        goal: str,
        met: bool | None,
        spread: float | None = None,
        ceilings: Sequence[Ceiling] = (),
    ) -> None:
        """Print one row; `met` is None where there is no goal."""
        clocks = [ceiling.clock_hz for ceiling in ceilings if ceiling.clock_hz]
        clock = f"{statistics.median(clocks) / 1e6:.0f} MHz" if clocks else ""
        n = str(min(ceiling.n for ceiling in ceilings)) if ceilings else ""
        words = sorted({word for c in ceilings for word in (*c.event_reasons, *c.flags)})
        peer = "" if spread is None else f"{spread:.2%}"
        mark = {True: "✓", False: "✗", None: " "}[met]
        print(
            f"{mark} {what:42}{measured:>21}  {goal:16}{peer:>8}{n:>5}{clock:>10}  {', '.join(words)}",
            flush=True,
        )
        if met is False:
            self._missed.append(what)

    def close(self) -> None:
        """Say what was missed."""
        print(f"missed: {', '.join(self._missed) or 'nothing'}")


def calibrate(gpu: str, *arguments: str) -> tuple[CalibrationResult, float]:
    """One calibration and its seconds, from the start of its process to its end."""
    told: list[str] = []

    def take(message: Message) -> None:
        if isinstance(message, NoticeMessage):
            told.append(message.notice.what)

    began = time.perf_counter()
    result = run_worker(["--device", gpu, *arguments, "--refresh"], take)
    seconds = time.perf_counter() - began
    for what in [*told, *(f"{name}: {why}" for name, why in result.failures.items())]:
        print(f"  {what}")
    return result, seconds


def by_probe(results: Iterable[CalibrationResult]) -> dict[str, list[Ceiling]]:
    """Every probe's ceilings, one a calibration."""
    found: dict[str, list[Ceiling]] = {}
    for result in results:
        for ceiling in result.measurements:
            found.setdefault(ceiling.probe, []).append(ceiling)
    return found


def median(ceilings: Iterable[Ceiling]) -> float:
    return statistics.median(ceiling.value for ceiling in ceilings)


def roofs(gpu: str, bounds: Sequence[Ceiling], is_h200: bool) -> None:
    """Roofs against peers and physical bounds, and against each other."""
    results: list[CalibrationResult] = []
    seconds: list[float] = []
    peers: list[tuple[dict[str, float], dict[str, float]]] = []
    with Peers() as torch:
        torch.measure()  # finds the best shapes, and loads what loads
        for number in range(RUNS):
            with_peers = number < ROUNDS
            before = torch.measure() if with_peers else {}
            if before or (peers and number == ROUNDS):
                time.sleep(SETTLE_S)
            result, took = calibrate(gpu, "--full")
            results.append(result)
            seconds.append(took)
            if before:
                peers.append((before, torch.measure()))
            print(f"full calibration {number + 1}/{RUNS}: {took:.2f} s{gemms(result)}", flush=True)
    print(f"the last one: {phases(results[-1])}")
    measured = by_probe(results)
    table = Table()
    against_peers(table, measured, peers)
    against_bounds(table, measured, bounds, is_h200)
    table.row(
        f"full calibration, s, median of {RUNS} (longest)",
        f"{statistics.median(seconds):.2f} ({max(seconds):.2f})",
        "≤ 6",
        statistics.median(seconds) <= 6,
    )
    repeatability(table, measured)
    table.close()


def gemms(result: CalibrationResult) -> str:
    """The tensor roofs in TFLOP/s with their half-widths: those that a power cap moves."""
    return "".join(
        f", {c.pipe.precision} {c.value / 1e12:.4g} ±{(c.ci_high - c.ci_low) / 2 / c.value:.1%}"
        for c in result.roofline.ceilings
        if c.pipe is not None and c.pipe.unit == "tensor"
    )


def against_peers(
    table: Table,
    measured: dict[str, list[Ceiling]],
    peers: list[tuple[dict[str, float], dict[str, float]]],
) -> None:
    """Ours over torch's, which was measured right before and after."""
    for name, peer in PEERS.items():
        own = measured.get(name, [])[:ROUNDS]
        if not own or not peers:
            table.row(f"{name} / torch", "n/a", "≥ 0.99", None)
            continue
        theirs = statistics.median(value for pair in peers for value in (x[name] for x in pair))
        spread = statistics.median(abs(a[name] / b[name] - 1) for a, b in peers)
        ratio = median(own) / theirs
        what = f"{name} / torch {'add' if peer == 'add' else 'mm'} {theirs / 1e12:.4g} T/s"
        table.row(what, f"{ratio:.4f}", "≥ 0.99", ratio >= 0.99, spread, own)


def against_bounds(
    table: Table, measured: dict[str, list[Ceiling]], bounds: Sequence[Ceiling], is_h200: bool
) -> None:
    """What was measured over what is possible at the clock held, or over what others found."""
    if is_h200 and (triad := measured.get("gpu-dram-triad")):
        ratio = median(triad) / H200_STREAM
        table.row("gpu-dram-triad / BabelStream 4.393 T/s", f"{ratio:.4f}", "≥ 0.99", ratio >= 0.99)
    if is_h200 and (l2 := measured.get("gpu-l2-read")):
        low, high = (median(l2) / peer for peer in reversed(H200_L2))
        table.row(
            "gpu-l2-read / 9.8, 9.5 TB/s",
            f"{low:.3f}, {high:.3f}",
            "0.97–1.10",
            low >= 0.97 and high <= 1.10,
            ceilings=l2,
        )
    if (l2 := measured.get("gpu-l2-read")) and (sampled := measured.get("gpu-l2-sampled")):
        ratio = median(sampled) / median(l2)
        table.row("gpu-l2-sampled / gpu-l2-read", f"{ratio:.3f}", "", None, ceilings=sampled)
    goals = {
        "gpu-shared-read": 0.98,
        "gpu-fma-fp64": 0.96,
        "gpu-fma-fp32": 0.96,
        "gpu-fma-fp16": 0.78,
    }
    for name, ceilings in measured.items():
        shares = [
            share for ceiling in ceilings if (share := share_of_bound(ceiling, bounds)) is not None
        ]
        value = f"{median(ceilings) / 1e12:.4g} T/s"
        if not shares:
            table.row(name, value, "", None, ceilings=ceilings)
            continue
        share, goal = statistics.median(shares), goals.get(name)
        table.row(
            f"{name} {value} / bound at clock",
            f"{share:.4f}",
            f"≥ {goal:g}" if goal else "",
            share >= goal if goal else None,
            ceilings=ceilings,
        )


def repeatability(table: Table, measured: dict[str, list[Ceiling]]) -> None:
    """(max − min) / median of the calibrations; in how many the stated interval holds the median of all;
    and the interval's half-width."""
    for name, ceilings in measured.items():
        of_all = median(ceilings)
        values = [ceiling.value for ceiling in ceilings]
        limit = 0.02 if name.startswith("gpu-gemm") else 0.01
        spread = (max(values) - min(values)) / of_all
        holds = sum(ceiling.ci_low <= of_all <= ceiling.ci_high for ceiling in ceilings)
        half = statistics.median((c.ci_high - c.ci_low) / 2 / c.value for c in ceilings)
        wanted = round(0.9 * len(ceilings))
        met = spread <= limit and holds >= wanted and half <= limit
        table.row(
            f"{name}: spread, interval holds, ±",
            f"{spread:.2%}, {holds}/{len(ceilings)}, {half:.2%}",
            f"≤ {limit:.0%}, ≥ {wanted}, ≤ {limit:.0%}",
            met,
        )
        if not met:
            print("    each over the median:", *(f"{value / of_all:.4f}" for value in values))


def times(gpu: str) -> None:
    """How long calibrations take: the very first, and quick ones."""
    with tempfile.TemporaryDirectory() as empty:
        cache = os.environ["XDG_CACHE_HOME"]
        os.environ["XDG_CACHE_HOME"] = empty
        result, first = calibrate(gpu, "--full")
        os.environ["XDG_CACHE_HOME"] = cache
    print(f"very first, full: {phases(result)}")
    calibrate(gpu, "--quick")  # compiles what is not yet there
    quick = []
    for _ in range(QUICK_RUNS):
        result, took = calibrate(gpu, "--quick")
        quick.append(took)
    print(f"quick: {phases(result)}")
    table = Table()
    table.row("full calibration, nothing compiled, s", f"{first:.2f}", "≤ 25", first <= 25)
    middle = statistics.median(quick)
    table.row(
        f"quick calibration, s, median of {QUICK_RUNS} (longest)",
        f"{middle:.2f} ({max(quick):.2f})",
        "≤ 3",
        middle <= 3,
    )
    table.close()


def phases(result: CalibrationResult) -> str:
    """How long each step of a calibration took."""
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in result.phases.items())


def tune(gpu: str, names: list[str]) -> None:
    """In a process of its own, which sees this GPU alone."""
    script = Path(__file__).with_name("tune_probes.py")
    subprocess.run(
        [sys.executable, str(script), gpu, *names], env=prepare_environment(gpu), check=True
    )


def conditions(gpu: str) -> tuple[tuple[Ceiling, ...], str]:
    """(physical bounds, name) of the GPU, with everything that a reader wants to know printed."""
    from roofmon.telemetry.nvidia.calibration_readings import CalibrationReadings

    readings = CalibrationReadings(gpu)
    limits, name = readings.limits(), readings.description.name
    held = limits.conditions
    power = f", {held.power_limit_w:.0f} W" if held and held.power_limit_w else ""
    packages = sorted(
        f"{found.metadata['Name']} {found.version}"
        for found in importlib.metadata.distributions()
        if str(found.metadata["Name"]).startswith("cupy")
    )
    print(
        f"{time.strftime('%Y-%m-%d')}, {name}, driver {held.driver if held else '?'}{power}, "
        f"{', '.join(packages)}, Python {sys.version.split()[0]}"
    )
    return limits.ceilings, name


def main() -> int:
    """Run the sections that can run here."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    sections = ("roofs", "times", "tune")
    parser.add_argument("--only", action="append", choices=sections, help="default: roofs, times")
    parser.add_argument("--tune", nargs="*", metavar="NAME", help="tune; only these probes")
    arguments = parser.parse_args()
    chosen = arguments.only or (["tune"] if arguments.tune is not None else ["roofs", "times"])
    if importlib.util.find_spec("cupy") is None:
        print("skipped: CuPy is not installed")
        return 0
    try:
        gpu = f"GPU-{Driver().uuid(0)}"
    except RoofmonError as error:
        print(f"skipped: {error}")
        return 0
    with tempfile.TemporaryDirectory() as own:
        # Neither the user's calibrations nor their own probes.
        for name in ("CONFIG", "CACHE", "STATE", "DATA"):
            os.environ[f"XDG_{name}_HOME"] = f"{own}/{name.lower()}"
        bounds, name = conditions(gpu)
        if "times" in chosen:
            times(gpu)
        if "roofs" in chosen:
            roofs(gpu, bounds, "H200" in name)
        if "tune" in chosen:
            tune(gpu, arguments.tune or [])
    return 0


if __name__ == "__main__":
    sys.exit(main())
