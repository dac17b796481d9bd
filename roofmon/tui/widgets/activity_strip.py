"""A strip of what traced kernels did on the device in the last minute: how busy, and how much was gaps."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from roofmon.tui.strips import Line, Piece, cells

if TYPE_CHECKING:
    from roofmon.view import View

_LEVELS = "▁▂▃▄▅▆▇█"
_CELLS = 30  # two seconds each


def strip_line(view: "View", width: int) -> Iterator[Line]:
    """One line of `width` cells; none where no kernel of the device is traced."""
    from roofmon.view import activity_facts, strip

    activity = view.activity
    if activity is None or view.device is None:
        return
    history = view.history.activity.get(view.device.description.uuid, (activity,))
    bar = "".join(_level(share) for share in strip(history, min(_CELLS, width // 3)))
    pieces: list[Piece] = [(" GPU ", "muted"), (f"{bar} ", "bar")]
    room = width - sum(cells(text) for text, _ in pieces)
    text = ""
    for fact in activity_facts(activity):
        longer = f"{text} · {fact}" if text else fact
        if cells(longer) > room:
            break
        text = longer
    yield [*pieces, (text, "")]


def _level(share: float) -> str:
    """A cell as high as the busy share; a blank where nothing is known."""
    if math.isnan(share):
        return " "
    return _LEVELS[min(7, max(0, round(share * 8) - 1))] if share >= 0.01 else "_"
