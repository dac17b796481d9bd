"""Rules on what traced kernels and copies tell of a device, and on how tracing itself is doing."""

from collections.abc import Iterator

from roofmon.diagnosis.finding import Case, Finding
from roofmon.model.activity import Activity, TracedProgram
from roofmon.model.device import DeviceSample
from roofmon.model.position import KernelClass
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.tracing_cost import EAGER, IN_GRAPH, about
from roofmon.units import duration, percent
from roofmon.view.facts import device_called

BUSY = 0.5
"""From this share of time on a device is busy enough for kernels to be missed."""
_SEEN = 0.02
"""Under this share of traced time a busy device does something else."""

MUCH_LAUNCH_BOUND = 0.2
MOSTLY_TINY = 0.5
_MANY_PER_S = 1000.0
_IDLE = 0.5
_MUCH_COPYING = 0.05
_COSTLY = 0.05
_NAMED = 3


def tracing_rules(snapshot: Snapshot, device: Device, has_rows: bool) -> Iterator[Finding]:
    """What the rules say about one device; `has_rows` says that kernels or regions of it are known."""
    activity = snapshot.activity.get(device.description.uuid)
    unseen = _unseen(snapshot, device, activity, has_rows)
    if unseen is not None:
        yield unseen
    if activity is None or not activity.launches:
        return
    yield _launch_bound(device, activity)
    if activity.launch_bound < MUCH_LAUNCH_BOUND:
        yield _busy(device, activity)
    yield _tiny(device, activity)
    if activity.copies_ns > _MUCH_COPYING * activity.length_ns:
        yield _copies(device, activity)
    if activity.streams > 1:
        yield _streams(device, activity)


def program_rules(snapshot: Snapshot) -> Iterator[Finding]:
    """What the rules say about the traced programs."""
    for program in snapshot.traced:
        if program.state in ("failed", "yielded"):
            gone = "its own profiler took over" if program.state == "yielded" else "not traced"
            yield Finding(
                rule="tracing",
                status="fail",
                severity="warning",
                title=f"{program.name}: {gone}",
                evidence=f"{program.name} {program.pid}: {program.reason or 'no reason was told'}",
                advice="a attaches again",
            )
            continue
        if program.state == "attached" and program.reason:
            yield Finding(
                rule="tracing",
                status="unknown",
                title=f"{program.name}: not all is seen",
                evidence=f"{program.name} {program.pid}: {program.reason}",
            )
        if program.cost > _COSTLY:
            rate = f"{program.records_per_s:,.0f} records/s"
            yield Finding(
                rule="tracing-cost",
                status="fail",
                title=f"tracing takes about {percent(program.cost)}",
                evidence=f"{program.name} {program.pid}: {rate}, about {about(EAGER.attached_s)} "
                f"a launch, {about(IN_GRAPH.attached_s)} in a graph",
                advice=f"D detaches; about {about(EAGER.left_s)} a launch stay until the program ends, "
                f"{about(IN_GRAPH.left_s)} in a graph",
            )


def _unseen(
    snapshot: Snapshot, device: Device, activity: Activity | None, has_rows: bool
) -> Finding | None:
    """Is a GPU busy with something that is not seen?"""
    sample, uuid = device.sample, device.description.uuid
    if sample is None or device.description.kind != "cuda":
        return None
    busy = sample.load if sample.sm_busy is None else sample.sm_busy
    if busy is None or busy < BUSY:
        return None
    if activity is not None:
        if activity.busy >= _SEEN:
            return None
        seen = f"; traced kernels {percent(activity.busy)} of the time"
    elif has_rows:
        return None
    else:
        seen = ""
    return Finding(
        rule="kernels-unseen",
        status="fail",
        title="busy, but no kernels are seen" if seen else "busy, but no kernels are known",
        evidence=f"{device_called(device)} is {percent(busy)} busy{seen}{_using(sample)}",
        advice=_why_unseen(snapshot),
        device=uuid,
    )


def _using(sample: DeviceSample) -> str:
    using = [p.name or f"process {p.pid}" for p in sample.processes or ()]
    more = f" and {len(using) - _NAMED} more" if using[_NAMED:] else ""
    return f": {', '.join(using[:_NAMED])}{more}" if using else ""


def _why_unseen(snapshot: Snapshot) -> str:
    """The likely causes, the likeliest first."""
    states: dict[str, list[TracedProgram]] = {}
    for program in snapshot.traced:
        states.setdefault(program.state, []).append(program)
    if dormant := states.get("dormant"):
        return f"{_listed(dormant)} can be traced: a attaches"
    if lost := [*states.get("yielded", ()), *states.get("failed", ())]:
        return f"{_listed(lost)} is not traced any more: a attaches again"
    if starting := states.get("starting"):
        return f"{_listed(starting)} has yet to start CUPTI: it does with its first CUDA call"
    if "attached" in states:
        return "another process keeps it busy, or the program's own profiler took its records"
    return (
        'start the program with roofmon run -- …, or after eval "$(roofmon env)" in its shell '
        "(same user, same container); or wrap code in region(…)"
    )


def _listed(programs: list[TracedProgram]) -> str:
    named = ", ".join(f"{p.name} {p.pid}" for p in programs[:_NAMED])
    return f"{named} and {len(programs) - _NAMED} more" if programs[_NAMED:] else named


def _launch_bound(device: Device, activity: Activity) -> Finding:
    """Does it wait for launches?"""
    much = activity.launch_bound >= MUCH_LAUNCH_BOUND
    mean = activity.kernels_ns / activity.launches
    return Finding(
        rule="launch-bound",
        status="fail" if much else "pass",
        severity="warning" if much else "info",
        title=f"launch-bound {percent(activity.launch_bound)} of the time"
        if much
        else "launches keep ahead of the GPU",
        evidence=f"{device_called(device)}: kernels of {duration(mean)} on average, "
        f"busy {percent(activity.busy)}",
        advice="replay them as a CUDA graph, fuse them, or give each more to do" if much else "",
        device=activity.device,
    )


def _busy(device: Device, activity: Activity) -> Finding:
    """Does it wait for the host?"""
    idle = activity.busy < _IDLE
    late = f"; {activity.late:,} records came late, busy is too low" if activity.late else ""
    return Finding(
        rule="idle",
        status="fail" if idle else "pass",
        severity="warning" if idle else "info",
        title=f"{'idle' if idle else 'busy'} "
        f"{percent(activity.idle if idle else activity.busy)} of the time",
        evidence=f"{device_called(device)}: no traced kernel in {percent(activity.idle)} "
        f"of {duration(activity.length_ns)}{late}",
        advice="find what the host does meanwhile: input, synchronisation, its own work"
        if idle
        else "",
        device=activity.device,
    )


def _tiny(device: Device, activity: Activity) -> Finding:
    """Are most of its kernels too short to be worth a launch?"""
    share = activity.tiny / activity.launches
    many = activity.launches * 1e9 / activity.length_ns >= _MANY_PER_S
    much = share >= MOSTLY_TINY and many
    return Finding(
        rule="tiny",
        status="fail" if much else "pass",
        severity="warning" if much else "info",
        title=f"{percent(share)} of the kernels under 10 µs" if much else "few tiny kernels",
        evidence=f"{device_called(device)}: {activity.tiny:,} of {activity.launches:,} launches, "
        f"{percent(activity.tiny_ns / max(activity.kernels_ns, 1))} of the kernels' time",
        advice="fuse them: a launch costs as much as such a kernel" if much else "",
        device=activity.device,
    )


def _copies(device: Device, activity: Activity) -> Finding:
    """Do copies run beside kernels?"""
    hidden = activity.hidden_ns / activity.copies_ns
    bare = (activity.copies_ns - activity.hidden_ns) / activity.length_ns
    exposed = bare > _MUCH_COPYING
    return Finding(
        rule="copies",
        status="fail" if exposed else "pass",
        severity="warning" if exposed else "info",
        title=f"{percent(bare)} of the time is bare copying" if exposed else "copies are hidden",
        evidence=f"{device_called(device)}: copies {percent(activity.copies_ns / activity.length_ns)} "
        f"of the time, {percent(hidden)} of that beside kernels",
        advice="copy from pinned memory in another stream, or ahead of time" if exposed else "",
        device=activity.device,
    )


def _streams(device: Device, activity: Activity) -> Finding:
    """Do its streams overlap?"""
    share = activity.overlap_ns / max(activity.busy_ns, 1)
    return Finding(
        rule="streams",
        status="pass",
        title=f"{activity.streams} streams, {percent(share)} overlap",
        evidence=f"{device_called(device)}: two kernels or more in {duration(activity.overlap_ns)} "
        f"of {duration(activity.busy_ns)}",
        device=activity.device,
    )


def occupancy(case: Case) -> Finding | None:
    """Are there enough warps to hide latency?"""
    kernel = case.description
    if kernel.occupancy is None:
        return None
    low = kernel.occupancy < 0.5 and case.kernel_class is KernelClass.LATENCY
    limiter = f", limited by {kernel.occupancy_limiter}" if kernel.occupancy_limiter else ""
    return Finding(
        rule="occupancy",
        status="fail" if low else "pass",
        severity="warning" if low else "info",
        title=f"occupancy {percent(kernel.occupancy)}",
        evidence=f"in theory{limiter}",
        advice="more warps hide more latency: see what limits them" if low else "",
    )


def fills_device(case: Case) -> Finding | None:
    """Are there blocks for all multiprocessors?"""
    grid, device = case.description.grid, case.device
    cores = device.description.cores if device and device.description.kind == "cuda" else None
    if grid is None or not cores:
        return None
    blocks = grid[0] * grid[1] * grid[2]
    few = blocks < cores
    return Finding(
        rule="grid",
        status="fail" if few else "pass",
        severity="warning" if few else "info",
        title=f"{blocks:,} blocks for {cores} SMs",
        evidence=f"{percent(1 - blocks / cores)} of the device has nothing to do"
        if few
        else f"{blocks / cores:.1f} blocks for each",
        advice="split the work into more blocks" if few else "",
    )
