"""Where each part of the main screen goes, as a pure function of the window's size.

Two questions decide it: is there room for frames (each costs two lines), and for a second column. A panel
that has no place of its own takes turns with the chart in the upper slot (`Tab`), or the whole window
(`z`).
"""

from typing import Literal, NamedTuple

PanelName = Literal["chart", "device", "checklist", "kernels", "devices", "output"]
PANELS: tuple[PanelName, ...] = ("chart", "kernels", "checklist", "device", "devices", "output")
"""In the order of their number keys and of `Tab`."""

LEAST_WIDTH, LEAST_HEIGHT = 40, 12
_FRAMED_FROM = 30  # lines
_SIDE_FROM = 100  # columns
_OUTPUT_FROM, _OUTPUT_LINES = 36, 7
"""From this height on a program's output has a place of its own, of so many lines."""


class Place(NamedTuple):
    """A rectangle of cells."""

    x: int
    y: int
    width: int
    height: int


class Arrangement(NamedTuple):
    """The places of what is shown; what is missing from `places` is hidden."""

    places: dict[str, Place]
    framed: bool


def arrange(
    width: int,
    height: int,
    focus: PanelName,
    *,
    full: bool = False,
    notice: bool = False,
    output: bool = False,
) -> Arrangement:
    """Places of `status`, the panels, `check`, `notice` and `keys` in a window.

    `notice` asks for a line of its own, given only where frames fit too, and `output` for a place for the
    program's output, given only where the window is high. A window that is too small
    gets the one place `message`.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Arrangement({"message": Place(0, 0, width, height)}, False)
    framed = height >= _FRAMED_FROM
    side = width >= _SIDE_FROM
    places = {"status": Place(0, 0, width, 1), "keys": Place(0, height - 1, width, 1)}
    bottom = height - 1
    if notice and framed:
        bottom -= 1
        places["notice"] = Place(0, bottom, width, 1)
    if full:
        places[focus] = Place(0, 1, width, bottom - 1)
        return Arrangement(places, framed)
    if output and height >= _OUTPUT_FROM:
        bottom -= _OUTPUT_LINES
        places["output"] = Place(0, bottom, width, _OUTPUT_LINES)
    if not side:
        check_height = 7 if framed else 1
        bottom -= check_height
        places["checklist" if framed else "check"] = Place(0, bottom, width, check_height)
    upper = _upper_height(bottom - 1, framed)
    places["kernels"] = Place(0, 1 + upper, width, bottom - 1 - upper)
    if side:
        right = min(58, max(36, width * 29 // 100))
        left = width - right
        device = max(min(8 if framed else 6, upper // 2), upper // 3)
        in_turn = focus in ("devices", "output") and focus not in places
        places[focus if in_turn else "chart"] = Place(0, 1, left, upper)
        places["device"] = Place(left, 1, right, device)
        places["checklist"] = Place(left, 1 + device, right, upper - device)
    else:
        shown = focus if focus != "kernels" and focus not in places else "chart"
        places[shown] = Place(0, 1, width, upper)
    return Arrangement(places, framed)


def _upper_height(lines: int, framed: bool) -> int:
    """Lines of the upper slot: about 60 %, and at 80×24 15 of 21 (header and five rows below)."""
    if framed:
        return round(lines * 0.6)
    rows = max(3, round(lines * 5 / 21))
    return lines - rows - 1
