"""Rules on where a kernel stands: its class, its distance from the roof, and what that class calls for."""

import numpy as np

from roofmon.diagnosis.finding import Case, Finding
from roofmon.diagnosis.roofs import hard_limit, why_passed
from roofmon.model.position import KernelClass
from roofmon.model.roofline import Ceiling, Pipe, bandwidth_label, pipe_label
from roofmon.model.table import Column
from roofmon.units import duration, mebibytes, percent, si, significant
from roofmon.view.cells import AT_ROOF
from roofmon.view.facts import (
    called,
    headroom,
    is_over_roof,
    main_pipe,
    missing_work,
    of_roof,
    roofless_levels,
    unknown_time,
)

_DISTANCE_ADVICE = {
    KernelClass.MEMORY: "contiguous accesses, whole cache lines, more bytes in flight",
    KernelClass.COMPUTE: "keep the pipe fed: larger tiles, fewer other instructions",
    KernelClass.LATENCY: "see what it waits for: parallelism, launches, dependencies",
    KernelClass.UNKNOWN: "declare the rest of its work to learn what limits it",
}


def position_known(case: Case) -> Finding:
    """Is it known what limits the kernel?"""
    if case.kernel_class is KernelClass.UNKNOWN:
        return Finding(
            rule="position",
            status="unknown",
            title="what limits it is unknown",
            evidence=_why_unknown(case),
            advice="see the checks on work and roofs",
        )
    return Finding(
        rule="position",
        status="pass",
        title=case.kernel_class.value,
        evidence=_side_of_ridge(case),
    )


def _why_unknown(case: Case) -> str:
    if reason := unknown_time(case.table, case.row):
        return f"its time is not known: {reason}"
    if missing := missing_work(case.table, case.row):
        return f"its {' and '.join(missing)} are not known"
    if roofless := roofless_levels(case.roofline, case.table, case.row):
        return "; ".join(roofless.values())
    return "no roof is measured for the pipe or the memory level it uses"


def _side_of_ridge(case: Case) -> str:
    """The kernel's intensity against the ridge, or the roofs it stays away from."""
    level = case.positions.main_level(case.row)
    pipe = main_pipe(case.table, case.row)
    ridge = _ridge(case, level, pipe)
    intensity = float(case.positions.levels[level].intensity[case.row]) if level else np.nan
    if ridge is None or pipe is None or level is None or not np.isfinite(intensity):
        roof = case.roof
        return f"{percent(case.fraction)} of the {called(roof)}" if roof else ""
    memory = bandwidth_label(level, case.table.bytes[level].counts_of(case.row))
    return (
        f"{significant(intensity)} FLOP/byte; ridge {memory}, {pipe_label(pipe)} at "
        f"{significant(ridge)}"
    )


def _ridge(case: Case, level: str | None, pipe: Pipe | None) -> float | None:
    """Of a pipe and of the roof that counts what the kernel's bytes at a level count."""
    if level is None or pipe is None:
        return None
    return case.roofline.ridge(level, pipe, case.table.bytes[level].counts_of(case.row))


def distance(case: Case) -> Finding | None:
    """How far is it from the roof that binds, and what would reaching that gain?"""
    roof, fraction = case.roof, case.fraction
    if roof is None or not np.isfinite(fraction):
        return None
    near = fraction >= AT_ROOF
    typical = float(case.table.typical_ns[case.row])
    evidence, advice = of_roof(fraction, roof), _DISTANCE_ADVICE[case.kernel_class]
    if case.saving and not near:
        evidence += f"; headroom {headroom(fraction)}, {duration(case.saving * typical)} a launch, "
        evidence += f"{duration(case.gain_ns)} in all"
    elif not near:
        evidence += f"; its {duration(typical)} are what any launch takes, however little it does"
        advice = "fewer, larger launches"
    floor, serial = (
        float(floors[case.row])
        for floors in (case.positions.floor_ns, case.positions.serial_floor_ns)
    )
    if serial > 1.05 * floor:
        evidence += f"; floor {duration(serial)} if its pipes do not overlap"
    return Finding(
        rule="distance",
        status="pass" if near else "fail",
        severity="warning" if case.saving and not near else "info",
        title=f"{percent(fraction)} of the {called(roof)}",
        evidence=evidence,
        advice="" if near else advice,
        gain_ns=0.0 if near else case.gain_ns,
    )


def over_roof(case: Case) -> Finding | None:
    """Is it faster than its roof allows, by more than both intervals explain?

    A sustained roof may be passed honestly; the physical bound at the clock held may not.
    """
    roof, fraction = case.roof, case.fraction
    if roof is None or not np.isfinite(fraction) or fraction <= 1:
        return None
    low = float(case.positions.low[case.row])
    evidence = f"{percent(fraction)} of the {called(roof)}, {of_roof(fraction, roof)}"
    if not is_over_roof(case.positions, case.row):
        return Finding(
            rule="over-roof",
            status="pass",
            title="at its roof within the error",
            evidence=f"{evidence}; from {percent(low)} on with both intervals",
        )
    evidence += f"; still {percent(low)} at the low end of both intervals"
    bound = hard_limit(case.device, roof) if case.device else None
    if bound is not None and low * roof.value > bound:
        limit = si(bound, roof.unit)
        return Finding(
            rule="over-roof",
            status="fail",
            severity="error",
            title="impossible: over its bound",
            evidence=f"{evidence}; nothing passes {limit}, the physical bound at this clock",
            advice=_wrong_work(case, roof),
        )
    why = why_passed(case.device, roof) if case.device else ""
    return Finding(
        rule="over-roof",
        status="fail",
        severity="info" if why else "error",
        title=f"over the {called(roof)}",
        evidence=evidence,
        advice=why or _wrong_work(case, roof, "; else measure the roofs again, undisturbed"),
    )


def _wrong_work(case: Case, roof: Ceiling, otherwise: str = "") -> str:
    """What may be wrong with the work of a kernel that is too fast; `otherwise` is added to a question."""
    if roof.kind == "compute":
        return f"does it do all the FLOPs declared?{otherwise}"
    moved = case.table.bytes[roof.level or "dram"].values[case.row]
    cache = case.device.description.cache_bytes if case.device else None
    if roof.level == "dram" and cache and moved < cache:
        return (
            f"its {mebibytes(float(moved))} fit in the {mebibytes(cache)} cache: "
            "declare that level instead of dram"
        )
    return f"are the declared bytes too many, or in a cache?{otherwise}"


def low_intensity(case: Case) -> Finding | None:
    """Memory-bound: would fewer bytes for the same FLOPs help?"""
    if case.kernel_class is not KernelClass.MEMORY:
        return None
    level, pipe = case.positions.main_level(case.row), main_pipe(case.table, case.row)
    ridge = _ridge(case, level, pipe)
    if level is None or pipe is None or ridge is None:
        return None
    intensity = float(case.positions.levels[level].intensity[case.row])
    if not 0 < intensity < ridge:
        return None
    return Finding(
        rule="low-intensity",
        status="fail",
        title=f"few FLOPs a byte: {significant(intensity, 2)}",
        evidence=f"{pipe_label(pipe)} could do {significant(ridge / intensity, 2)}× the work on "
        f"the same bytes; ridge at {significant(ridge)} FLOP/byte",
        advice="fuse it with its neighbours, do not store intermediates, use a smaller type",
    )


def faster_pipe(case: Case) -> Finding | None:
    """Compute-bound: is there a pipe with a higher roof?"""
    roof = case.roof
    if case.kernel_class is not KernelClass.COMPUTE or roof is None or roof.pipe is None:
        return None
    mine = roof.pipe
    found = [
        other
        for precision in _SMALLER.get(mine.precision, ())
        for unit in ("tensor", "vector")
        if (other := case.roofline.compute(Pipe(unit, precision))) is not None
        and other.value > 1.5 * roof.value
        and other.pipe != mine
    ]
    if not found:
        return None
    return Finding(
        rule="faster-pipe",
        status="fail",
        title=f"the {found[0].name} roof is higher",
        evidence=f"{si(found[0].value, found[0].unit)}, {significant(found[0].value / roof.value, 2)}× "
        f"that of {roof.name}",
        advice="would that precision be enough?"
        if found[0].pipe and found[0].pipe.precision != mine.precision
        else "the same precision on the tensor pipe: a library GEMM uses it",
    )


_SMALLER = {
    "fp64": ("fp64", "fp32"),
    "fp32": ("tf32", "bf16", "fp16"),
    "tf32": ("bf16", "fp16"),
    "bf16": ("bf16", "fp8"),
    "fp16": ("fp16", "fp8"),
}
"""Precisions to try, the nearest first."""


def latency(case: Case) -> Finding | None:
    """Far from every roof: what else could limit it?"""
    if case.kernel_class is not KernelClass.LATENCY:
        return None
    near = [
        f"{percent(float(p.achieved[case.row]) / roof.value)} of {roof.name}"
        for level, p in case.positions.levels.items()
        if np.isfinite(p.achieved[case.row])
        and (roof := case.roofline.bandwidth(level, case.table.bytes[level].counts_of(case.row)))
    ]
    if (pipe := main_pipe(case.table, case.row)) and (peak := case.roofline.compute(pipe)):
        near.append(f"{percent(float(case.positions.flops[case.row]) / peak.value)} of {peak.name}")
    launch_s = case.roofline.latency.launch_s
    typical = float(case.table.typical_ns[case.row])
    if launch_s and typical < 3e9 * launch_s:
        advice = f"a launch alone takes {duration(launch_s * 1e9)}: fewer, larger launches"
    elif not case.saving:
        advice = "fewer, larger launches"
    else:
        advice = "more parallelism: larger grids or batches, more in flight, shorter dependencies"
    return Finding(
        rule="latency",
        status="fail",
        severity="warning" if case.saving else "info",
        title="far from every roof: latency?",
        evidence=f"{', '.join(near)}; {duration(typical)} a launch, "
        f"{case.stat(Column.LAUNCHES):,.0f} launches",
        advice=advice,
    )
