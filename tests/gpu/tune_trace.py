"""How CUPTI behaves under other settings of the injected library: what decides them.

    python tests/gpu/tune_trace.py [times] [left] [late]

times: graph records until CUPTI has no device buffers left and their times go bad. A similar library had
nothing but bad times once its buffers had been filled once; with four buffers of 1 MiB that would be seen
after 160,000 records. left: what a launch costs dormant, attached and after the detach, by
what was switched on (half a minute). late: how long records take to arrive from a program that never waits
for the GPU, with few launches and with many (half a minute). Each variant is the library's source with some
text replaced. Needs a GPU and torch.
"""

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from asked_program import core_apart
from traced_gpu_program import CountingMonitor, TracedLoops, start_together

from roofmon.tracing.inject import build

Change = tuple[str, str, str]
"""File, the text in it, and what stands in its place."""

KINDS = "{KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMCPY2, KIND_MEMSET}"
REGISTER = "    if (!CUPTI_WORKED(ActivityRegisterCallbacks, "
FLUSHED = "    size_t lost = 0;\n    if (session.state != TRACING) return 0;\n"
LEAST = "LEAST_BYTES = 2 << 10,"
FUNCTIONS = "    X(ActivityFlushAll, (uint32_t))"


def buffers(count: int) -> Change:
    return ("cupti.c", "DEVICE_BUFFERS = 32;", f"DEVICE_BUFFERS = {count};")


def least(bits: int) -> Change:
    """Host buffers of at least 2^bits KiB."""
    return ("records.c", LEAST, f"LEAST_BYTES = {1 << bits} << 10,")


def largest(bits: int) -> Change:
    """Host buffers of at most 2^bits KiB."""
    return ("records.c", "BUFFER_BYTES = 128 << 10,", f"BUFFER_BYTES = {1 << bits} << 10,")


def kinds(*names: str) -> Change:
    return ("cupti.c", KINDS, "{" + ", ".join(names) + "}")


def every(flushes: int, code: str) -> Change:
    """Does something with every so many flushes, 40 ms apart."""
    counted = f"    static int flushes;\n    if (++flushes % {flushes} == 0) {{ {code} }}\n"
    return ("cupti.c", FLUSHED, FLUSHED + counted)


PINNED = (
    "cupti.c",
    REGISTER,
    "    { uint8_t one = 1; size_t w = 1; cupti.ActivitySetAttribute(8, &w, &one); }\n" + REGISTER,
)
PERIOD = (
    ("cupti_types.h", FUNCTIONS, "    X(ActivityFlushPeriod, (uint32_t)) \\\n" + FUNCTIONS),
    ("cupti.c", REGISTER, "    cupti.ActivityFlushPeriod(20);\n" + REGISTER),
)
OFF_AND_ON = (
    "disable(KIND_COUNT); for (int i = 0; i < KIND_COUNT; i++) cupti.ActivityEnable(KINDS[i]);"
)
FORCED = "cupti.ActivityFlushAll(FLUSH_FORCED);"
KERNEL = "KIND_CONCURRENT_KERNEL"

TIMES: dict[str, tuple[Change, ...]] = {
    "as it is: 32 buffers": (),
    "4 buffers": (buffers(4),),
    "4, kernels only": (buffers(4), kinds(KERNEL)),
    "4, pinned host memory": (buffers(4), PINNED),
    "4, worker flushes": (buffers(4), *PERIOD),
    "4, all flushes forced": (buffers(4), every(1, FORCED)),
    "4, driver records too": (
        buffers(4),
        kinds(KERNEL, "KIND_MEMCPY", "KIND_MEMCPY2", "KIND_MEMSET", "4"),
    ),
    "4, off and on each second": (buffers(4), every(25, OFF_AND_ON)),
    "4, the same, forced flush": (
        buffers(4),
        every(25, f"disable(KIND_COUNT); {FORCED} {OFF_AND_ON}"),
    ),
    "250 buffers": (buffers(250),),
}
LATE: dict[str, tuple[Change, ...]] = {
    "as it is: 2 to 128 KiB": (),
    "all of 128 KiB": (least(7),),
    "all of 16 KiB": (least(4), largest(4)),
    "from 512 bytes on": (("records.c", LEAST, "LEAST_BYTES = 512,"),),
    "16 fill in a flush": (("records.c", "PART_OF_FLUSH = 4,", "PART_OF_FLUSH = 16,"),),
}
LEFT: dict[str, tuple[Change, ...]] = {
    "as it is": (),
    "kernels only": (kinds(KERNEL),),
    "copies and fills only": (kinds("KIND_MEMCPY", "KIND_MEMSET"),),
    "nothing that is launched": (kinds("KIND_DEVICE"),),
    "no question for devices": (("cupti.c", "    ask();\n    /* Else", "    /* Else"),),
    "serialised kernels": (kinds("3 /* KIND_KERNEL */"),),
}
REPLAYS = 4000  # of 100 kernels
ROUNDS = 3
LEFT_ROUNDS, LEFT_S = 12, 0.05
LATE_S = 2


def compile_variant(folder: Path, changes: tuple[Change, ...]) -> Path:
    """Our library with these changes. Raises AssertionError where a text is not there exactly once."""
    folder.mkdir()
    for source in (*build.sources(), *build.sources()[0].parent.glob("*.h")):
        shutil.copy(source, folder)
    for name, text, other in changes:
        path = folder / name
        assert path.read_text().count(text) == 1, (name, text)
        path.write_text(path.read_text().replace(text, other))
    library = folder / "libroofmon_trace.so"
    command = ["cc", *build.FLAGS, "-o", library, *folder.glob("*.c"), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


def tell_times(library: Path) -> str:
    program = TracedLoops(library=library)
    try:
        program.run("tiny 100")
        monitor = program.attach()
        program.run("tiny 1")
        held = program.held_bytes()
        told = []
        for _ in range(ROUNDS):
            monitor.settle()
            before = monitor.graph_kernels
            wanted = program.run(f"tiny {REPLAYS}")["kernels"]
            monitor.settle()
            told.append(f"{(monitor.graph_kernels - before) / wanted:8.2%}")
        grown = (program.held_bytes() - held) / 2**20
        monitor.detach()
        time.sleep(0.1)
        monitor = program.attach()
        wanted = program.run("tiny 500")["kernels"]
        monitor.settle()
        again = f"{monitor.graph_kernels / wanted:.2%}"
        return f"{' '.join(told)}  attached anew {again:>8}  GPU memory {grown:+.0f} MiB"
    finally:
        program.close()


def run_times(folder: Path) -> None:
    print(f"times: records with good times, of each {REPLAYS * 100:,}")
    for number, (label, changes) in enumerate(TIMES.items()):
        try:
            told = tell_times(compile_variant(folder / str(number), changes))
        except AssertionError as error:
            told = f"failed: {str(error)[-600:]}"
        print(f"  {label:28}{told}", flush=True)


def costs(programs: dict[str, TracedLoops], gone: dict[str, str]) -> dict[str, str]:
    """µs a launch, eager and in a graph, of each program; they take turns, each round one run."""
    spent: dict[tuple[str, str], list[float]] = {}
    for loop in ("eager", "tiny"):
        for _ in range(1 + LEFT_ROUNDS):
            for label in [label for label in programs if label not in gone]:
                try:
                    run = programs[label].run(f"{loop} {LEFT_S} s")
                    each_us = 1e6 * run["seconds"] / run["kernels"]
                    spent.setdefault((label, loop), []).append(each_us)
                except AssertionError as error:
                    gone[label] = f"failed: {str(error)[-600:]}"
    return {
        label: "{:6.2f} {:5.2f}".format(
            *(statistics.median(spent[label, loop][1:]) for loop in ("eager", "tiny"))
        )
        for label in programs
        if label not in gone
    }


def run_left(folder: Path) -> None:
    """All programs are started at once; dormant, attached and after are measured of all in turns."""
    libraries = {
        label: compile_variant(folder / f"left{number}", changes)
        for number, (label, changes) in enumerate(LEFT.items())
    }
    core = core_apart()
    options = {label: {"library": path, "core": core} for label, path in libraries.items()}
    started = start_together(**options)
    programs = {label: one for label, one in started.items() if isinstance(one, TracedLoops)}
    gone = {label: one for label, one in started.items() if isinstance(one, str)}
    try:
        stages = [costs(programs, gone)]
        monitors: list[CountingMonitor] = []
        for label in [label for label in programs if label not in gone]:
            try:
                monitors.append(programs[label].attach())
                monitors[-1].keep = False
            except AssertionError as error:
                gone[label] = f"failed: {str(error)[-600:]}"
        stages.append(costs(programs, gone))
        for monitor in monitors:
            monitor.detach()
        time.sleep(0.3)  # they leave with their next flush
        stages.append(costs(programs, gone))
    finally:
        for program in programs.values():
            program.close()
    print("left: µs a launch, eager and in a graph")
    for label in LEFT:
        told = gone.get(label) or "   ".join(
            f"{name} {stage[label]}"
            for name, stage in zip(("dormant", "attached", "after"), stages, strict=True)
        )
        print(f"  {label:28}{told}", flush=True)


def run_late(folder: Path) -> None:
    """All programs are started at once, and run one after the other."""
    libraries = {
        label: compile_variant(folder / f"late{number}", changes)
        for number, (label, changes) in enumerate(LATE.items())
    }
    started = start_together(**{label: {"library": path} for label, path in libraries.items()})
    print("late: longest time from a kernel's end to its record, by loop; about 2 s each")
    try:
        for label, program in started.items():
            try:
                told = program if isinstance(program, str) else tell_late(program)
            except AssertionError as error:
                told = f"failed: {str(error)[-600:]}"
            print(f"  {label:28}{told}", flush=True)
    finally:
        for program in started.values():
            if isinstance(program, TracedLoops):
                program.close()


def tell_late(program: TracedLoops) -> str:
    told = []
    for loop, amount in (
        ("gemm16384", "150"),
        ("gemm8192", f"{LATE_S} s"),
        ("eager", f"{LATE_S} s"),
    ):
        program.run(f"{loop} 10")
        monitor = program.attach()
        time.sleep(0.2)
        before = monitor.kernels + monitor.drops
        monitor.longest_wait_ns = 0
        found = program.run(f"unwaited-{loop} {amount}")
        monitor.settle()
        seen = monitor.kernels + monitor.drops - before
        told.append(
            f"{loop} {monitor.longest_wait_ns / 1e9:6.2f} s ({seen / found['kernels']:.0%} of "
            f"{found['kernels'] / found['seconds']:,.0f}/s, {monitor.drops} drops)"
        )
        monitor.detach()
    return "   ".join(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", default=["times", "left", "late"])
    parts = parser.parse_args().parts
    with tempfile.TemporaryDirectory() as folder:
        if "left" in parts:
            run_left(Path(folder))
        if "late" in parts:
            run_late(Path(folder))
        if "times" in parts:
            run_times(Path(folder))


if __name__ == "__main__":
    main()
