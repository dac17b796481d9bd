"""What is printed of the sections of the benchmark of the counters, and whether its goals were reached."""

import math
import sys
from typing import Any

from counter_accuracy import (
    Line,
    Mixed,
    Part,
    Sampled,
    heading,
    sampled_rows,
    text_of,
    total_bytes,
    total_flops,
    verdict_of_mix,
)
from counter_session import Phase
from counter_watch import Seen

FLOPS_GOAL = 0.01
GEMV_BYTES = 2.0 * 4096 * 4096
LARGE_SHARE, HARD_GOAL = 0.05, 0.03


def show(title: str, lines: list[Line]) -> None:
    print(heading(title))
    for line in lines:
        print(text_of(line))
    sys.stdout.flush()


def health_words(seen: Seen) -> str:
    words = [
        f"samples of {h.interval_us:.0f} µs, {h.samples_per_s:.0f}/s, {h.cost:.1%} of a core, "
        f"{h.overflows} overflows, {h.gaps} gaps, {h.dropped} dropped"
        for h in seen.health.values()
    ]
    words += [f"{part:.1%} of DRAM traffic explained" for part in seen.explained]
    return "; ".join([*words, f"{seen.dropped} records lost"])


def _of_kernels(parts: list[Part], missing: int) -> str:
    """How many kernels a line is of, and which have no value."""
    words = f"{len(parts)} kernel{'s' if len(parts) != 1 else ''}"
    if missing:
        without = [p for p in parts if not math.isfinite(p.sampled.bytes)]
        words += f", {missing} without bytes: " + ", ".join(p.description.name for p in without)
    marks = [p.sampled.mark for p in parts if p.sampled.mark]
    return words + (f"; {marks[0]}" if marks else "")


def bytes_line(phase: Phase, goal: float | None) -> Line:
    total = total_bytes(phase.parts)
    note = _of_kernels(phase.parts, total.missing)
    must = phase.answer["bytes"]
    return Line(f"{phase.answer['name']}, MB", must, total.value, total.error, goal, note)


def flops_line(phase: Phase) -> Line:
    pipe = phase.answer["pipe"]
    total = total_flops(phase.parts, pipe)
    note = pipe
    if not math.isfinite(total.value):
        reasons = [p.description.reasons.get("flops", "") for p in phase.parts]
        others = sorted({key for p in phase.parts for key in p.sampled.flops})
        note += f": n/a, {'; '.join(filter(None, reasons))}, found {others}"
    label = f"{phase.answer['name']}, MFLOP"
    return Line(label, phase.answer["flops"], total.value, goal=FLOPS_GOAL, note=note)


def gemv_line(phase: Phase, goal: float) -> Line:
    label = f"{phase.answer['name']}, each GEMV, MB"
    if not phase.parts:
        return Line(label, GEMV_BYTES, math.nan, goal=goal, note="no kernel was launched often")
    gemv = phase.parts[0]
    note = f"{gemv.per_iteration:.2f} launches an iteration of {gemv.description.name}"
    return Line(label, GEMV_BYTES, gemv.sampled.bytes, gemv.sampled.error, goal, note)


def mix_of(seen: Seen, solo: dict[str, Phase], launches: dict[str, int]) -> list[Mixed]:
    """The kernels of a mix, by what they are called and how they are launched."""
    by_id = sampled_rows(seen.snapshot)
    rows = {
        (d.full_name, d.grid, d.block): by_id[d.id]
        for d in seen.snapshot.kernels.descriptions
        if d.id in by_id
    }
    mixed = []
    for name, phase in solo.items():
        if not phase.parts:
            continue
        about = phase.parts[0].description
        found = rows.get((about.full_name, about.grid, about.block), Sampled())
        alone = phase.parts[0].sampled.bytes
        mixed.append(Mixed(name.removeprefix("hard_"), alone, launches[name], found))
    return mixed


def beside_words(moved: dict[str, Any] | None) -> list[str]:
    if moved is None:
        return []
    if "error" in moved:
        return [f"beside: {moved['error']}"]
    rate = moved["moved"] / moved["seconds"]
    return [f"the process beside moved {moved['moved'] / 1e9:.1f} GB, {rate / 1e12:.2f} TB/s"]


def show_mix(title: str, mixed: list[Mixed], more: list[str]) -> bool:
    words, good = verdict_of_mix(mixed, LARGE_SHARE, HARD_GOAL)
    print(f"\n{title}: {words}")
    whole = sum(m.solo * m.launches for m in mixed if math.isfinite(m.solo))
    for m in mixed:
        share = m.solo * m.launches / whole if whole else math.nan
        print(
            f"  {m.name:14}{share:6.1%} of the traffic, {m.launches:6} launches, solo "
            f"{m.solo / 1e6:8.2f} MB, mixed {m.sampled.bytes / 1e6:8.2f} MB, ratio {m.ratio:.4f} "
            f"± {m.sampled.error:.4f} stated  {m.sampled.mark}".rstrip()
        )
    for line in more:
        print(f"  {line}")
    sys.stdout.flush()
    return good


def missed(lines: list[Line]) -> bool:
    return any(line.verdict.startswith("MISSED") for line in lines)
