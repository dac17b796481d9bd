"""What a roofline chart shows: the values that `render` takes.

They know nothing of the model, the stream or the screen, so that the terminal screen, the text
report and the picture export can all fill them, and so that equal scenes are equal values. A
`role` names what a thing is ("roof.memory", "point.selected"); colours are the reader's business.
"""

from typing import Literal

import msgspec

LineKind = Literal["solid", "dashed", "dotted"]
Place = tuple[float, float]
"""Arithmetic intensity in FLOP/byte, then FLOP/s."""


class Roof(msgspec.Struct, frozen=True):
    """A ceiling: `value` is in byte/s where `kind` is "bandwidth" and in FLOP/s where "compute".

    `label` is the whole text beside the line ("bf16 753T"); `name` ("bf16") stands in where that
    does not fit, and in the label of the ridge point. `low` and `high` bound `value` and are drawn
    where they are wide enough to be told from it.
    """

    kind: Literal["bandwidth", "compute"]
    value: float
    label: str
    role: str
    name: str = ""
    line: LineKind = "solid"
    emphasised: bool = False
    low: float | None = None
    high: float | None = None


class Point(msgspec.Struct, frozen=True):
    """A kernel, or the device as a whole, at FLOP/byte and FLOP/s.

    Where either is unknown (None) it has no place in the plane and is listed in `Canvas.undrawn`.
    """

    intensity: float | None
    flops: float | None
    label: str
    role: str = "point.unknown"
    selected: bool = False


class Trail(msgspec.Struct, frozen=True):
    """Where a point has been, oldest first."""

    points: tuple[Place, ...]
    role: str = "trail"


class Arrow(msgspec.Struct, frozen=True):
    """A kernel's way from its baseline to its present place."""

    start: Place
    end: Place
    role: str = "arrow"


class Region(msgspec.Struct, frozen=True):
    """The latency-limited region: a kernel cannot rise above `flops` FLOP/s."""

    flops: float
    label: str
    role: str = "region"


class Window(msgspec.Struct, frozen=True):
    """The part of the plane that is shown: x in FLOP/byte, y in FLOP/s, both on log scales."""

    x_min: float
    x_max: float
    y_min: float
    y_max: float


class Scene(msgspec.Struct, frozen=True):
    """All that one chart shows; `window` None asks for one that holds everything.

    `message` ("measuring roofs …") is written across the plane; `unicode` False draws with 7-bit
    characters only.
    """

    roofs: tuple[Roof, ...] = ()
    points: tuple[Point, ...] = ()
    trails: tuple[Trail, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    regions: tuple[Region, ...] = ()
    window: Window | None = None
    message: str | None = None
    unicode: bool = True
