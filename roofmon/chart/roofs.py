"""The lines and labels of the roofs: which part of each belongs to the envelope that can bind.

A bandwidth roof ends where it meets the highest compute roof, and a compute roof begins where it
meets the fastest bandwidth roof: beyond that neither can limit a kernel.
"""

from typing import Literal, NamedTuple

from roofmon.chart.canvas import Undrawn
from roofmon.chart.glyphs import clean, short_number
from roofmon.chart.labels import Label
from roofmon.chart.plane import DOT_ROWS, Line
from roofmon.chart.scale import Scale
from roofmon.chart.scene import Roof, Scene
from roofmon.chart.window import known_logs, log10_or_none

_LEAST_INTERVAL_DOTS = 2.0
"""An interval narrower than this cannot be told from its roof."""


class RoofLayout(NamedTuple):
    """What the roofs and regions put on the plane.

    `lines` come in the order of drawing, `labels` most important first; `ridge` leads from the
    labelled ridge point down to the intensity axis.
    """

    lines: list[Line]
    labels: list[Label]
    undrawn: list[Undrawn]
    ridge: Line | None


class _Known(NamedTuple):
    """A roof and its value as log10."""

    value: float
    roof: Roof


def lay_roofs(scene: Scene, scale: Scale) -> RoofLayout:
    """Lines and labels of the roofs, their intervals, the latency limits and the ridge point."""
    bandwidths, computes = _known(scene, "bandwidth"), _known(scene, "compute")
    fastest = max((known.value for known in bandwidths), default=None)
    highest = max((known.value for known in computes), default=None)
    # The pair whose ridge point is labelled: the emphasised roofs, else the outermost.
    bandwidth = min(
        bandwidths, key=lambda known: (not known.roof.emphasised, known.value), default=None
    )
    compute = min(
        computes, key=lambda known: (not known.roof.emphasised, -known.value), default=None
    )
    limits = [
        Roof("compute", region.flops, region.label, region.role, line="dotted")
        for region in scene.regions
    ]
    intervals: list[Line] = []
    lines: list[Line] = []
    labels: list[tuple[float, Label]] = []
    undrawn: list[Undrawn] = []
    # Emphasised roofs are drawn last, over the others.
    for roof in [*limits, *sorted(scene.roofs, key=lambda roof: roof.emphasised)]:
        text, name = clean(roof.label, scene.unicode), clean(roof.name, scene.unicode)
        texts = tuple(filter(None, (text, name)))
        value = log10_or_none(roof.value)
        if value is None:
            undrawn.append(Undrawn(text or name, "its value is unknown"))
            continue
        slanted = roof.kind == "bandwidth"
        limit, chief = (highest, bandwidth) if slanted else (fastest, compute)
        line = _line(roof, value, limit, scale, scene.unicode)
        if line is None:
            undrawn.append(Undrawn(text or name, "outside the window"))
            continue
        lines.append(line)
        for bound in known_logs((roof.low, roof.high)):
            edge = _line(roof, bound, limit, scale, scene.unicode)
            if edge and scale.dot_rows(abs(bound - value)) >= _LEAST_INTERVAL_DOTS:
                intervals.append(edge._replace(kind="dotted", heavy=False))
        # Labels crowd outwards from the chief roof of their kind.
        distance = value - chief.value if chief else 0.0
        kind: Literal["slanted", "flat"] = "slanted" if slanted else "flat"
        labels.append((abs(distance), Label(kind, texts, roof.role, line, distance > 0)))
    labels.sort(key=lambda label: label[0])
    ridge = _ridge(bandwidth, compute, scale, scene.unicode) if bandwidth and compute else None
    return RoofLayout(
        intervals + lines,
        [label for _, label in labels] + ([ridge] if ridge else []),
        undrawn,
        ridge.line if ridge else None,
    )


def _known(scene: Scene, kind: Literal["bandwidth", "compute"]) -> list[_Known]:
    return [
        _Known(value, roof)
        for roof in scene.roofs
        if roof.kind == kind and (value := log10_or_none(roof.value)) is not None
    ]


def _line(
    roof: Roof, value: float, limit: float | None, scale: Scale, unicode: bool
) -> Line | None:
    """The part of a roof inside the window, up to or from where it meets the `limit` (log10)."""
    start, end = scale.bounds.x_low, scale.bounds.x_high
    if roof.kind == "bandwidth":
        end = end if limit is None else min(end, limit - value)
        part = scale.clip(start, start + value, end, end + value) if start <= end else None
    else:
        start = start if limit is None else max(start, value - limit)
        part = scale.clip(start, value, end, value) if start <= end else None
    if part is None:
        return None
    (x0, y0), (x1, y1) = scale.dot(*part[:2]), scale.dot(*part[2:])
    if roof.kind == "compute" and not unicode:
        # In the middle of its cells, where ASCII draws every flat line with the same character.
        y0 = y1 = y0 // DOT_ROWS * DOT_ROWS + 1
    return Line(x0, y0, x1, y1, roof.line, roof.role, roof.emphasised)


def _ridge(bandwidth: _Known, compute: _Known, scale: Scale, unicode: bool) -> Label | None:
    """A label for the ridge point (compute / bandwidth) where that is inside the window."""
    x, y = compute.value - bandwidth.value, compute.value
    if not scale.holds(x, y):
        return None
    x_dot, y_dot = scale.dot(x, y)
    intensity = short_number(10.0**x)
    name = clean(compute.roof.name, unicode)
    texts = (
        f"ridge {name} {intensity} FLOP/byte" if name else f"ridge {intensity} FLOP/byte",
        f"ridge {intensity} F/B",
    )
    foot = scale.rows * DOT_ROWS - 1
    return Label("ridge", texts, "ridge", Line(x_dot, y_dot, x_dot, foot, "dotted", "ridge"))
