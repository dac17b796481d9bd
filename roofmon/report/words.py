"""Texts made fit for a terminal: without control characters, in ASCII if need be, of a given width."""

from typing import Literal

from rich.cells import cell_len, set_cell_size

from roofmon.units import clean

_ASCII = str.maketrans(
    {
        "✓": "+",
        "✗": "x",
        "→": "->",
        "▲": "^",
        "▼": "v",
        "−": "-",
        "–": "-",
        "≠": "!=",
        "≤": "<=",
        "≈": "~",
        "×": "x",
        "µ": "u",
        "°": " ",
        "·": "|",
        "…": "...",
        "↳": ">",
    }
)


def tidy(text: str, unicode: bool) -> str:
    """`text` without control characters, and where the terminal needs that in ASCII."""
    text = clean(text)
    if unicode or text.isascii():
        return text
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def fitted(
    text: str, width: int, align: Literal["left", "right"] = "left", ellipsis: str = "…"
) -> str:
    """`text` in exactly `width` cells: padded, or cut with an ellipsis."""
    size = cell_len(text)
    if size > width:
        room = width - len(ellipsis)
        return set_cell_size(text, room) + ellipsis if room > 0 else set_cell_size(text, width)
    return " " * (width - size) + text if align == "right" else text + " " * (width - size)
