"""How right the live bytes and FLOPs of kernels are, and what counting them costs.

    python tests/gpu/bench_counters.py [--only short|known|ncu|hard|cost …] [--record FILE]

Needs an NVIDIA GPU with permission for its counters, torch and cupti-python; about two minutes, offline.
Says what is missing and ends well. Nothing else should use the GPU meanwhile. The sections:

- short: decoders, whose kernels take 10 µs, sampled at 0.2 ms.
- known: workloads that move known bytes or do known FLOPs, sampled at 1 ms.
- ncu: some of them beside Nsight Compute, which is started while the counters are sampled.
- hard: eight kernels in random order on one stream and two, without and with a process that is not traced.
- cost: throughput of a loop of 24 µs GEMMs with and without sampling, and the worker's part of a core.

`--record FILE` writes samples, launches and truth of the hard kernels, `--replay FILE` attributes those
again and needs no GPU.
"""

import argparse
import importlib.util
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from counter_accuracy import Line, total_bytes
from counter_lines import (
    beside_words,
    bytes_line,
    flops_line,
    gemv_line,
    health_words,
    missed,
    mix_of,
    show,
    show_mix,
)
from counter_ncu import ncu_bytes, ncu_kernels, run_ncu
from counter_recording import read, record, replay, write
from counter_session import Bench, Phase, UnavailableError
from counter_watch import Watch

from roofmon.collector.rungs import nvidia_gpu_present
from roofmon.counters.worker_messages import Health
from roofmon.model.stats import median_with_interval

SECTIONS = ("short", "known", "ncu", "hard", "cost")
BYTES_GOALS = {
    "add": 0.03,
    "sum": 0.03,
    "softmax": 0.03,
    "transpose": 0.03,
    "attention": 0.03,
    "flash": 0.08,
    "decode": 0.03,
    "decode_graph": 0.03,
}
DECODERS = ("decode", "decode_graph")
GEMMS = tuple(f"gemm_{precision}" for precision in ("bf16", "fp16", "tf32", "fp8", "fp32"))
GEMV_GOAL, GEMV_GOAL_SHORT = 0.06, 0.04  # at 1 ms, at 0.2 ms
NCU_WORKLOADS = ("add", "softmax", "gemm_bf16", "gemm_tf32", "gemm_fp32")
NCU_GOAL = 0.03
SOLO_S, MIX_S, DUTY, SEED = 0.6, 6.0, 0.3, 11
PAIRS, SWITCH_S, SETTLE_S, SLICE_S = 12, 0.4, 0.15, 0.3
RATIO_GOAL, RATIO_LOW_GOAL, COST_GOAL = 0.995, 0.98, 0.25
MOST_BYTES = 2 * 10**6


def print_health(watch: Watch, phases: dict[str, Phase]) -> None:
    """How sampling went while the last of some workloads ran."""
    if phases:
        last_ns = max(phase.answer["end_ns"] for phase in phases.values())
        during = [seen for seen in watch.history if seen.time_ns <= last_ns]
        print(f"  {health_words((during or watch.history)[-1])}", flush=True)


def not_measured(name: str) -> Line:
    return Line(name, math.nan, math.nan, goal=0.0, note="not measured, see above")


def short(bench: Bench) -> list[Line]:
    watch = bench.watch(200)
    phases = bench.run(watch, list(DECODERS), bench.seconds)
    used = [h.interval_us for h in watch.history[-1].health.values()]
    as_asked = bool(used) and max(used) <= 200
    lines = []
    for name in (n for n in DECODERS if n in phases):
        lines.append(bytes_line(phases[name], BYTES_GOALS[name]))
        lines.append(gemv_line(phases[name], GEMV_GOAL_SHORT if as_asked else GEMV_GOAL))
    lines += [not_measured(name) for name in DECODERS if name not in phases]
    show("short: an iteration at 0.2 ms", lines)
    print_health(watch, phases)
    if not as_asked:
        print(f"  reading cost too much at 0.2 ms: it became {used} µs, with the goals of 1 ms")
    return lines


def known(bench: Bench) -> list[Line]:
    names = [*BYTES_GOALS, *GEMMS]
    watch = bench.watch(1000)
    phases = bench.run(watch, names, bench.seconds)
    bench.phases |= phases
    lines = [bytes_line(phases[n], goal) for n, goal in BYTES_GOALS.items() if n in phases]
    lines += [gemv_line(phases[name], GEMV_GOAL) for name in DECODERS if name in phases]
    lines += [flops_line(phases[name]) for name in GEMMS if name in phases]
    lines += [bytes_line(phases[name], None) for name in GEMMS if name in phases]
    lines += [not_measured(name) for name in names if name not in phases]
    show("known: an iteration at 1 ms, beside the least that it can move (GEMMs move more)", lines)
    print_health(watch, phases)
    return lines


def against_ncu(bench: Bench) -> list[Line]:
    ncu = shutil.which("ncu")
    if ncu is None:
        raise UnavailableError("ncu is not on the PATH")
    watch = bench.watch(1000)
    if left := [name for name in NCU_WORKLOADS if name not in bench.phases]:
        bench.phases |= bench.run(watch, left, bench.seconds)
    first = len(watch.history)
    code, text, said = run_ncu(ncu, NCU_WORKLOADS)
    back = watch.wait_state("active", 20) and watch.history[-1].rung.state == "active"
    kernels = ncu_kernels(text)
    states: list[str] = []
    for rung in (seen.rung for seen in watch.history[max(0, first - 1) :]):
        words = f"{rung.state} ({rung.reason})" if rung.state == "off" else rung.state
        if not states or states[-1] != words:
            states.append(words)
    lines = []
    for phase in (bench.phases[n] for n in NCU_WORKLOADS if n in bench.phases):
        total = total_bytes(phase.parts)
        counted = ncu_bytes(kernels, phase.parts)
        note = "" if math.isfinite(counted) else "ncu did not list its kernel"
        label = f"{phase.answer['name']}, MB"
        lines.append(Line(label, counted, total.value, total.error, NCU_GOAL, note))
    show("ncu: DRAM bytes of an iteration, beside what Nsight Compute counts (must)", lines)
    let_go = any(state.startswith("off") for state in states)
    print(f"  ncu beside an open roofmon: exit code {code}, {len(kernels)} kernels")
    print(
        f"  the counters meanwhile: {' → '.join(states)}: {'ok' if let_go and back else 'MISSED'}"
    )
    if code != 0 or not kernels:
        print(f"  ncu said: {(said or text)[-800:]}")
    return lines


def hard(bench: Bench) -> bool:
    names = bench_names(bench)
    watch = bench.watch(1000)
    solo = bench.run(watch, names, SOLO_S)
    lines = [bytes_line(phase, None) for phase in solo.values()]
    show("hard: each kernel by itself, a launch, beside what it must move", lines)
    good = len(solo) == len(names)
    for streams in (1, 2):
        for beside in (False, True):
            good &= hard_case(bench, solo, streams, beside)
    return good


def bench_names(bench: Bench) -> list[str]:
    bench.program.start("list")
    names: list[str] = bench.program.result(1.0)["hard"]
    return names


def hard_case(bench: Bench, solo: dict[str, Phase], streams: int, beside: bool) -> bool:
    """One mix, attributed by a worker that knows nothing of the kernels by themselves."""
    watch = bench.watch(1000, fresh=True)
    other = bench.beside if beside else None
    first = len(watch.history)
    if other is not None:
        other.start(f"beside {MIX_S} {DUTY}")
    bench.program.start(f"mix {streams} {MIX_S} {SEED + streams}")
    answer = bench.program.result(MIX_S)
    seen = watch.history[-1]
    moved = other.result(MIX_S) if other is not None else None
    bench.costs += costs_since(watch, first)
    title = f"hard: {streams} stream{'s' if streams > 1 else ''}, "
    title += "beside a process that is not traced" if beside else "alone"
    if "error" in answer:
        print(f"\n{title}: n/a, {answer['error']}")
        return False
    mixed = mix_of(seen, solo, answer["launches"])
    return show_mix(title, mixed, [health_words(seen), *beside_words(moved)])


def costs_since(watch: Watch, first: int) -> list[float]:
    """The worker's parts of a core, from two seconds after the first moment on: then it has all to do."""
    return [health.cost for health in healths_since(watch, first + 8)]


def healths_since(watch: Watch, first: int) -> set[Health]:
    """What the worker said of itself from a moment on."""
    return {health for seen in watch.history[first:] for health in seen.health.values()}


def cost_ratios(bench: Bench, watch: Watch) -> list[float]:
    """Throughput of a loop of GEMMs with sampling over without, of adjacent slices in the order ABBA.

    The loop never rests: the power cap lets a GPU that has rested run faster for a while.
    """
    longest_s = 1.0 + PAIRS * 2 * (SWITCH_S + SETTLE_S + SLICE_S)
    bench.program.start(f"run gemm_2048 {longest_s}")
    slices: list[tuple[bool, int, int]] = []
    time.sleep(1.0)
    try:
        for number in range(PAIRS):
            for on in (True, False) if number % 2 else (False, True):
                watch.pause(not on)
                if not watch.wait_state("active" if on else "off"):
                    raise UnavailableError(f"the counters do not become {'on' if on else 'off'}")
                time.sleep(SETTLE_S)
                begin = time.time_ns()
                time.sleep(SLICE_S)
                slices.append((on, begin, time.time_ns()))
    finally:
        watch.pause(False)
        answer = bench.program.result(longest_s)
    watch.wait(lambda seen: seen.counted_ns > answer["end_ns"], 15)
    ratios = []
    for pair in zip(slices[::2], slices[1::2], strict=True):
        (on, off) = sorted(pair, reverse=True)
        rates = [
            sum(watch.launches(begin, end).values()) / (end - begin) for _, begin, end in (on, off)
        ]
        if max(on[2], off[2]) < answer["end_ns"]:
            ratios.append(rates[0] / rates[1])
    return ratios


def cost(bench: Bench) -> bool:
    if not bench.costs:
        watch = bench.watch(1000)
        first = len(watch.history)
        bench.program.start(f"mix 1 {MIX_S} {SEED}")
        bench.program.result(MIX_S)
        bench.costs += costs_since(watch, first)
    watch = bench.watch(1000)
    began = len(watch.history)
    ratios = cost_ratios(bench, watch)
    median, low, high = median_with_interval(np.array(ratios))
    reached = median >= RATIO_GOAL and low >= RATIO_LOW_GOAL
    print("\ncost: a loop of 24 µs GEMMs, traced, with counters sampled at 1 ms over without")
    print(
        f"  throughput {median:.4f} [{low:.4f}, {high:.4f}], {min(ratios):.3f} … {max(ratios):.3f}, "
        f"{len(ratios)} pairs; goal ≥ {RATIO_GOAL}, lower bound ≥ {RATIO_LOW_GOAL}: "
        f"{'ok' if reached else 'MISSED'}"
    )
    healths = [health for health in healths_since(watch, began) if health.interval_us]
    told = sorted((health.cost, health.interval_us) for health in healths)
    if told:
        part, interval_us = told[len(told) // 2]
        print(
            f"  the worker beside these GEMMs: {part:.1%} of a core, samples of {interval_us:.0f} µs"
        )
    typical = statistics.median(bench.costs) if bench.costs else math.nan
    cheap = typical <= COST_GOAL
    print(
        f"  the worker at 1 ms beside the mix: {typical:.1%} of a core (median of {len(bench.costs)} "
        f"seconds, at most {max(bench.costs, default=math.nan):.1%}); goal ≤ {COST_GOAL:.0%}: "
        f"{'ok' if cheap else 'MISSED'}"
    )
    return reached and cheap


def make_recording(bench: Bench, path: Path, seconds: float, interval_us: int) -> bool:
    bench.unwatch()
    recorded = record(bench.program, bench.beside, bench_names(bench), seconds, interval_us)
    size = write(path, recorded)
    fits = size <= MOST_BYTES
    print(
        f"\nrecording: {path}, {size / 1e6:.2f} MB (goal ≤ {MOST_BYTES / 1e6:.0f} MB: "
        f"{'ok' if fits else 'MISSED'}), {len(recorded.samples):,} samples of {interval_us} µs, "
        f"{len(recorded.launches):,} launches"
    )
    return show_replay(path) and fits


def show_replay(path: Path) -> bool:
    """The offline attribution of a recording, at its own samples and at those of 1 ms."""
    recorded = read(path)
    samples = recorded.samples
    own_us = float(np.median(samples.end_ns - samples.start_ns)) / 1e3
    good = True
    for factor in dict.fromkeys((1, max(1, round(1000 / own_us)))):
        for name, mixed in replay(recorded, factor).items():
            title = f"recorded {name}, samples of {factor * own_us:.0f} µs"
            good &= show_mix(title, mixed, [])
    return good


def run_section(name: str, bench: Bench, arguments: argparse.Namespace) -> bool:
    """Whether its goals were reached; True where it cannot run here."""
    sections = {
        "short": lambda: not missed(short(bench)),
        "known": lambda: not missed(known(bench)),
        "ncu": lambda: not missed(against_ncu(bench)),
        "hard": lambda: hard(bench),
        "cost": lambda: cost(bench),
        "record": lambda: make_recording(
            bench, arguments.record, arguments.record_seconds, arguments.record_interval_us
        ),
    }
    began = time.monotonic()
    try:
        return sections[name]()
    except UnavailableError as reason:
        print(f"\n{name}: skipped, {reason}")
        return True
    except Exception:
        # A run on a GPU is dear: the other sections still say what they can, with programs of their own.
        print(f"\n{name}: FAILED\n{traceback.format_exc()}", flush=True)
        bench.restart()
        return False
    finally:
        print(f"  ({name} took {time.monotonic() - began:.0f} s)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="only this section")
    parser.add_argument("--seconds", type=float, default=1.3, help="of each known workload")
    parser.add_argument("--record", type=Path, metavar="FILE")
    parser.add_argument("--record-seconds", type=float, default=0.8, help="of each mix")
    parser.add_argument("--record-interval-us", type=int, default=200)
    parser.add_argument("--replay", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        return 0 if show_replay(arguments.replay) else 1
    if not nvidia_gpu_present() or not importlib.util.find_spec("torch"):
        print("skipped: this needs an NVIDIA GPU and torch")
        return 0
    sections = arguments.only or ([] if arguments.record else list(SECTIONS))
    sections += ["record"] if arguments.record else []
    began = time.monotonic()
    runtime = tempfile.mkdtemp(prefix="roofmon-bench-", dir="/tmp")  # a socket's path is short
    os.environ["XDG_RUNTIME_DIR"] = runtime  # other roofmons and their programs are not seen
    bench = Bench(arguments.seconds, with_beside=bool({"hard", "record"} & set(sections)))
    try:
        bench.restart()
        print(f"the programs were ready after {time.monotonic() - began:.0f} s", flush=True)
        reached = [run_section(name, bench, arguments) for name in sections]
    finally:
        bench.close()
        shutil.rmtree(runtime, ignore_errors=True)
    print(f"\n{'all goals were reached' if all(reached) else 'some goals were MISSED'}", end="")
    print(f", {time.monotonic() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
