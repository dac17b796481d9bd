"""The last line: how far the access ladder carries, or what is being asked or said; and the keys."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from roofmon.actions import ACTIONS, key_label
from roofmon.tui.frame import Frame
from roofmon.tui.palette import Palette
from roofmon.tui.strips import Line, Piece, cells, fitted, width_of
from roofmon.tui.widgets.lines import Lines
from roofmon.units import age

if TYPE_CHECKING:
    from roofmon.model.session import Notice
    from roofmon.model.snapshot import Device, Snapshot

RUNG_MARKS = {
    "active": ("✓", "pass"),
    "waiting": ("…", "muted"),
    "off": ("–", "muted"),
    "unavailable": ("✗", "fail"),
}
_WIDE = 100
_LEAST_KEYS = 2
_SEVERITY = {"info": "accent", "warning": "warning", "error": "error"}


class BottomLine(Lines):
    """Sources on the left, keys on the right; keys give way first, the last of them first."""

    def __init__(
        self, palette: Palette, frame: Frame, keymap: Mapping[str, tuple[str, ...]], *, id: str
    ) -> None:
        super().__init__(palette, frame, id=id)
        self.own_notice_line = False
        self._keys = footer_keys(keymap)

    def lines(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """The line."""
        choices = frame.choices
        if choices.question:
            return [[(f" {choices.question} ", "warning"), ("  y yes  n no", "key")]]
        if choices.typing is not None:
            hint = "   Enter keeps it, Esc clears it, ! begins a regular expression"
            return [[(" /", "key"), (choices.typing, ""), ("▏", "key"), (hint, "muted")]]
        left: list[Piece] = []
        if choices.said:
            left = [(f" {choices.said}", "accent")]
        elif frame.notice and not self.own_notice_line:
            left = [(f" {text}", role) for text, role in notice_pieces(frame)]
        elif frame.view is not None and frame.view.state.filter:
            left = _filter(frame)
        elif frame.view is not None:
            room = width - _keys_width(self._keys[:_LEAST_KEYS]) - 1
            left = _sources(frame.view.snapshot, frame.view.device, width, room)
        return [_with_keys(left, self._keys, width)]


class NoticeLine(Lines):
    """The newest notice, in a line of its own where the window is high."""

    def lines(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """The line."""
        return [[(" ", ""), *notice_pieces(frame)]] if frame.notice else []


def notice_pieces(frame: Frame) -> list[Piece]:
    """The newest notice with what to do about it, and how many there are."""
    notice = frame.notice
    if notice is None:
        return []
    count = f" (1 of {frame.notices})" if frame.notices > 1 else ""
    return [(f"{_words(notice)}{count} · Esc hides it", _SEVERITY[notice.severity])]


def _words(notice: "Notice") -> str:
    return f"{notice.severity}: {notice.what}" + (f"; {notice.fix}" if notice.fix else "")


def footer_keys(keymap: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The footer's entries in their order, `? help`, for actions that have a key."""
    shown = sorted((a for a in ACTIONS if a.footer is not None), key=lambda a: a.footer or 0)
    return [
        f"{key_label(keys[0])} {action.title}"
        for action in shown
        if (keys := keymap.get(action.id, ()))
    ]


def _with_keys(left: list[Piece], keys: Sequence[str], width: int) -> Line:
    """`left` whole, then as many keys as fit; at least the first two, for which `left` is cut."""
    count = len(keys)
    while count > _LEAST_KEYS and width_of(left) + 2 + _keys_width(keys[:count]) > width:
        count -= 1
    room = width - _keys_width(keys[:count]) - 1
    pieces: list[Piece] = []
    for text, role in left:
        piece = fitted(text, min(room, cells(text)))
        pieces.append((piece, role))
        room -= cells(piece)
    pieces.append((" " * room, ""))
    for key in keys[:count]:
        label, _, word = key.partition(" ")
        pieces += [("  ", ""), (label, "key"), (f" {word}", "muted")]
    return pieces


def _keys_width(keys: Sequence[str]) -> int:
    return sum(2 + len(key) for key in keys)


def _filter(frame: Frame) -> list[Piece]:
    view = frame.view
    assert view is not None
    counted = f"{len(view.order)} of {len(view.table)} kernels, Esc clears it"
    return [(" filter: ", "muted"), (view.state.filter, "accent"), (f"  {counted}", "muted")]


def _sources(snapshot: "Snapshot", device: "Device | None", width: int, room: int) -> list[Piece]:
    """The rungs with their marks; where the window is wide the roofs' age, and the rungs' details as far as
    `room` goes, the last rungs' first."""
    wide = width >= _WIDE
    measured = roofs_age(snapshot, device) if wide and device else ""
    for first in range(len(snapshot.rungs) + 1):
        pieces: list[Piece] = [(" sources: " if wide else " ", "muted")]
        for number, rung in enumerate(snapshot.rungs):
            mark, role = RUNG_MARKS[rung.state]
            told = wide and number >= first and rung.state == "active" and rung.reason
            detail = f" {rung.reason}" if told else ""
            pieces += [(f"{rung.rung} ", ""), (mark, role), (f"{detail}  ", "muted")]
        if not snapshot.rungs:
            pieces.append(("no source of data yet  ", "muted"))
        pieces.append((measured, "muted"))
        if width_of(pieces) <= room:
            break
    return pieces


def roofs_age(snapshot: "Snapshot", device: "Device") -> str:
    """`roofs measured 3 h ago`, by the oldest, or that they are bounds; "" where that is not known."""
    from roofmon.diagnosis.roofs import oldest_s

    ceilings = device.roofline.ceilings
    if ceilings and all(c.regime == "bound" for c in ceilings):
        return "roofs: bounds, not measured"
    oldest = oldest_s(device, snapshot)
    return "" if oldest is None else f"roofs measured {age(oldest)} ago"
