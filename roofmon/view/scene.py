"""The chart of a view: roofs, the device's own point, the numbered kernels, and in difference mode where
they came from."""

import numpy as np

from roofmon.chart.glyphs import short_number
from roofmon.chart.scene import Arrow, LineKind, Point, Region, Roof, Scene, Trail
from roofmon.chart.window import auto_window, zoom
from roofmon.compare import places
from roofmon.model.position import KernelClass
from roofmon.model.roofline import LEVELS, REQUESTED, Ceiling, Pipe, Roofline, launch_limited_flops
from roofmon.view.device_point import MARK, device_point
from roofmon.view.facts import how_to_measure, main_pipe
from roofmon.view.state import View

_CLASS_ROLE = {
    KernelClass.MEMORY: "point.memory",
    KernelClass.COMPUTE: "point.compute",
    KernelClass.LATENCY: "point.latency",
    KernelClass.UNKNOWN: "point.unknown",
}
_UNNUMBERED = "●"
_ON_REQUEST = ("pcie_h2d", "pcie_d2h", "nvlink")

_ALWAYS_BOUND = tuple(map(Pipe.parse, ("vector/fp64", "vector/fp32", "tensor/bf16", "tensor/fp8")))
"""Pipes whose physical bound is drawn without their being used: all of them would not be readable."""

_ACTIVE = 0.05
"""Of its roof; below it a pipe counts as unused: counters move a little in any kernel."""


def scene(view: View, unicode: bool = True) -> Scene:
    """What the chart shows of a view, each kernel at `view.state.level` or at its own main level."""
    roofs = _roofs(view)
    points = (*_points(view), *_device_points(view))
    state = view.state
    window = None
    if state.zoom != 1.0:
        window = zoom(auto_window(roofs, points), state.zoom, state.centre)
    return Scene(
        roofs=roofs,
        points=points,
        trails=_trails(view),
        arrows=_arrows(view),
        regions=_regions(view),
        window=window,
        message=_message(view),
        unicode=unicode,
    )


def _message(view: View) -> str | None:
    if view.device is None:
        return view.message
    if view.device.roofline.ceilings:
        return None
    progress = view.device.progress
    if progress is not None:
        return f"{progress.task} {progress.done}/{progress.total}: {progress.text}"
    return f"no roofs: {how_to_measure(view.device)}"


def _roofs(view: View) -> tuple[Roof, ...]:
    if view.device is None:
        return ()
    roofline = view.device.roofline
    level, pipe = _emphasised(view)
    roofs = [
        _roof(ceiling, name == level and _counts_the_same(view, ceiling))
        for name in LEVELS
        for ceiling in _bandwidths(view, roofline, name)
        if _is_drawn(view, ceiling, level)
    ]
    used = {Pipe.parse(key) for key in view.table.flops} | _active(view)
    pipes = _pipes(roofline, used)
    at_clock = pipes if view.state.show_current_clock else []
    # Where some pipes are in use the lines of the others would only crowd the chart.
    at_clock = [p for p in at_clock if p in used] or at_clock
    for known in pipes:
        chosen = roofline.compute(known)
        issue = roofline.compute(known, "issue")
        if chosen is not None:
            roofs.append(_roof(chosen, known == pipe))
        if issue is not None and issue is not chosen:
            roofs.append(_roof(issue, False, "dotted"))
        if known in at_clock:
            bound = roofline.compute(known, "bound")
            roofs += _at_present_clock(view, roofline, issue or bound or chosen, bound)
    return tuple(roofs)


def _is_drawn(view: View, ceiling: Ceiling, level: str | None) -> bool:
    """Links, and bounds of caches, are roofs only of kernels that use them: drawn always, they would
    stretch the chart."""
    name = ceiling.level
    on_request = name in _ON_REQUEST or (ceiling.regime == "bound" and name != "dram")
    at_level = view.positions.levels.get(name) if name else None
    # Copies have bytes there but no place on the chart.
    placed = at_level is not None and bool(np.isfinite(at_level.intensity).any())
    return not on_request or name == level or placed


def _active(view: View) -> set[Pipe]:
    """The pipes that the device's own counters see at work."""
    point = device_point(view.device) if view.device else None
    if view.device is None or point is None:
        return set()
    roofs = ((pipe, view.device.roofline.compute(pipe)) for pipe in point.rates)
    return {pipe for pipe, roof in roofs if roof and point.rates[pipe] >= _ACTIVE * roof.value}


def _pipes(roofline: Roofline, used: set[Pipe]) -> list[Pipe]:
    """The pipes to draw: all that were measured; of those with a bound alone the ones that matter."""
    return sorted(
        {
            c.pipe
            for c in roofline.ceilings
            if c.pipe is not None
            and (c.regime != "bound" or c.pipe in _ALWAYS_BOUND or c.pipe in used)
        }
    )


def _bandwidths(view: View, roofline: Roofline, level: str) -> list[Ceiling]:
    """The roofs of a level: one for each way of counting that the kernels' bytes there come in. Where that
    gives none, one for requested bytes, else for whatever is counted there; a bound at last."""
    chosen = view.table.bytes.get(level)
    used = {chosen.columns[i].counts for i in set(chosen.source.tolist()) - {-1}} if chosen else ()
    if found := [roof for counts in sorted(used) if (roof := roofline.bandwidth(level, counts))]:
        return found
    counts = dict.fromkeys(c.counts for c in roofline.ceilings if c.level == level)
    others = (roofline.bandwidth(level, counted) for counted in (REQUESTED, *counts))
    known = [c for c in others if c is not None]
    measured = (c for c in known if c.regime != "bound")
    first = next(measured, next(iter(known), None))
    return [first] if first else []


def _counts_the_same(view: View, ceiling: Ceiling) -> bool:
    """Whether the selected kernel's bytes may be compared with a memory roof; without any nothing is."""
    row = view.selected_row
    chosen = view.table.bytes.get(ceiling.level or "")
    return row is None or chosen is None or chosen.counts_of(row) == ceiling.counts


def _emphasised(view: View) -> tuple[str | None, Pipe | None]:
    """The level and the pipe of the selected kernel, without one those of the device as a whole."""
    row = view.selected_row
    level: str | None = view.state.level
    point = device_point(view.device) if view.device else None
    pipe = point.main_pipe if point else None
    if row is not None:
        level = level or view.positions.main_level(row)
        roof = view.positions.roof_of(row)
        pipe = (roof.pipe if roof else None) or main_pipe(view.table, row)
    return level or "dram", pipe


def _roof(ceiling: Ceiling, emphasised: bool, line: LineKind = "solid") -> Roof:
    bound = ceiling.regime == "bound"
    return Roof(
        kind=ceiling.kind,
        value=ceiling.value,
        label=f"{ceiling.name} {short_number(ceiling.value)}{' bound' if bound else ''}",
        role=_roof_role(ceiling, emphasised),
        name=ceiling.name,
        line="dashed" if bound else line,
        emphasised=emphasised,
        low=ceiling.ci_low,
        high=ceiling.ci_high,
    )


def _roof_role(ceiling: Ceiling, emphasised: bool) -> str:
    if emphasised:
        return "roof.selected"
    if ceiling.regime == "bound":
        return "roof.bound"
    return "roof.memory" if ceiling.kind == "bandwidth" else "roof.compute"


def _at_present_clock(
    view: View, roofline: Roofline, ceiling: Ceiling | None, bound: Ceiling | None
) -> list[Roof]:
    """The most a pipe can do at the clock of this moment."""
    sample = view.device.sample if view.device else None
    if ceiling is None or sample is None or not sample.clock_hz:
        return []
    value = roofline.at_clock(ceiling, sample.clock_hz, bound.value if bound else None)
    if value is None:
        return []
    clock = f"{sample.clock_hz / 1e6:.0f} MHz"
    label = f"{ceiling.name} {short_number(value)} at {clock}"
    return [Roof("compute", value, label, "roof.compute", f"{ceiling.name} now", "dotted")]


def _device_points(view: View) -> tuple[Point, ...]:
    """The device as a whole, where it has a place."""
    point = device_point(view.device) if view.device else None
    if point is None or point.place is None:
        return ()
    return (Point(*point.place, label=MARK, role="accent"),)


def _trails(view: View) -> tuple[Trail, ...]:
    places = view.history.trail(view.device.description.uuid) if view.device else ()
    return (Trail(places),) if len(places) > 1 else ()


def _points(view: View) -> tuple[Point, ...]:
    labels = {id_: str(number) for id_, number in sorted(view.marks.items(), key=lambda m: m[1])}
    if view.selected is not None:
        labels.setdefault(view.selected, _UNNUMBERED)
    found = []
    for id_, label in labels.items():
        row = view.table.row_by_id[id_]
        found.append(
            Point(
                intensity=_known(view.at_level.intensity[row]),
                flops=_known(view.positions.flops[row]),
                label=label,
                role=_CLASS_ROLE[view.positions.class_of(row)],
                selected=id_ == view.selected,
            )
        )
    return tuple(found)


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _regions(view: View) -> tuple[Region, ...]:
    """What launch latency leaves to a kernel of the selected one's size."""
    row = view.selected_row
    launch_s = view.device.roofline.latency.launch_s if view.device else None
    if row is None or not launch_s:
        return ()
    amounts = [float(c.values[row]) for c in view.table.flops.values()]
    per_launch = sum(a for a in amounts if np.isfinite(a))
    if per_launch <= 0:
        return ()
    limit = launch_limited_flops(per_launch, launch_s)
    return (Region(limit, f"launch latency {short_number(limit)}"),)


def _arrows(view: View) -> tuple[Arrow, ...]:
    """From the baseline to the present place of the numbered kernels, where both are known."""
    if view.comparison is None:
        return ()
    intensity, flops = places(view.comparison.before, view.state.level)
    arrows = []
    for id_ in view.marks:
        row = view.table.row_by_id[id_]
        was = int(view.comparison.match[view.comparison_rows[row]])
        if was < 0:
            continue
        start = (float(intensity[was]), float(flops[was]))
        end = (float(view.at_level.intensity[row]), float(view.positions.flops[row]))
        if np.isfinite((*start, *end)).all() and start != end:
            arrows.append(Arrow(start, end))
    return tuple(arrows)
