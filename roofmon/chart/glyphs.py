"""The characters that the chart is written with, in Unicode and in 7-bit ASCII.

Every character here takes one cell. Names from outside are made to: a chart whose rows are not
exactly as many characters as cells cannot be laid out.
"""

import math
import unicodedata
from typing import NamedTuple

from roofmon import units

CIRCLED = "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳"
ASCII_MARKS = "123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
SI_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
TRANSLITERATED = {
    "…": "...",
    "·": ".",
    "×": "x",
    "µ": "u",
    "–": "-",
    "—": "-",
    "≤": "<=",
    "≥": ">=",
    "±": "+-",
    "▸": ">",
    "◂": "<",
    "●": "@",
    "◉": "@",
}


class Glyphs(NamedTuple):
    """One set of the characters around and on the plane."""

    vertical: str
    horizontal: str
    corner: str
    y_tick: str
    x_tick: str
    ridge_tick: str
    crossing: str
    ridge_line: str
    many: str
    other: str
    before: str
    left: str
    right: str
    heads: str
    """Arrow heads for the eight directions, from east against the clock."""


UNICODE_GLYPHS = Glyphs("│", "─", "└", "┤", "┬", "┴", "┼", "┊", "◆", "•", "○", "▸", "◂", "→↗↑↖←↙↓↘")
ASCII_GLYPHS = Glyphs("|", "-", "+", "+", "+", "^", "^", ":", "*", "#", "o", ">", "<", ">^^^<vvv")


def glyphs(unicode: bool) -> Glyphs:
    """The set for this kind of terminal."""
    return UNICODE_GLYPHS if unicode else ASCII_GLYPHS


def mark(label: str, unicode: bool = True) -> str:
    """The one character that stands for a point: "1" is ① or 1, "12" is ⑫ or c.

    Numbers over 20 (over 61 in ASCII) share one character. A label of one narrow character is its
    own mark. A table that lists the points shows the same marks by calling this.
    """
    if label.isascii() and label.isdigit() and len(label) <= 3:
        index = int(label) - 1
        marks = CIRCLED if unicode else ASCII_MARKS
        return marks[index] if 0 <= index < len(marks) else glyphs(unicode).other
    text = clean(label, unicode)
    return text if len(text) == 1 and text not in " ?" else glyphs(unicode).other


def clean(text: str, unicode: bool) -> str:
    """The text in characters of one cell each: no control characters, "?" for wide ones."""
    if text.isascii() and text.isprintable():
        return text
    if not unicode:
        text = "".join(TRANSLITERATED.get(character, character) for character in text)
    return "".join(_one_cell(character, unicode) for character in units.clean(text))


def _one_cell(character: str, unicode: bool) -> str:
    category = unicodedata.category(character)
    if category[0] == "Z":
        return " "
    if category[0] == "M":
        return ""
    wide = unicodedata.east_asian_width(character) in "WF"
    return "?" if wide or not (unicode or character.isascii()) else character


def short_number(value: float) -> str:
    """A finite positive number in three digits: 0.05, 7.5, 172, 1.72k, 753T, 1e-5."""
    value = float(f"{value:.3g}")
    exponent = math.floor(math.log10(value)) if value > 0 else 0
    # log10 of a power of ten may land just below it.
    if value >= 10.0 ** (exponent + 1):
        exponent += 1
    if -3 <= exponent < 0:
        return f"{value:.{2 - exponent}f}".rstrip("0")
    prefix = exponent // 3
    if 0 <= prefix < len(SI_PREFIXES):
        return f"{value / 1000.0**prefix:.3g}{SI_PREFIXES[prefix]}"
    mantissa, _, power = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"


def braille_to_ascii(row: str) -> str:
    """A row of braille cells in ASCII that keeps a line's height within each cell."""
    return row.translate(_BRAILLE_TO_ASCII)


def _ascii_of(code: int) -> str:
    # Unicode numbers the dots 1-2-3-7 down the left column and 4-5-6-8 down the right one.
    left = [row for row, bit in enumerate((0, 1, 2, 6)) if code >> bit & 1]
    right = [row for row, bit in enumerate((3, 4, 5, 7)) if code >> bit & 1]
    rows = left + right
    if not rows:
        return " "
    left_height = sum(left) / len(left) if left else sum(right) / len(right)
    right_height = sum(right) / len(right) if right else left_height
    if set(rows) == {0, 1, 2, 3}:
        return "/" if left_height > right_height else "\\" if left_height < right_height else "|"
    # Two lines in one cell, or one heavy and flat.
    if max(rows) - min(rows) == 3 or (left == right and len(left) == 2):
        return "="
    height = sum(rows) / len(rows)
    return "'" if height < 0.75 else "-" if height <= 1.5 else "." if height < 2.75 else "_"


_BRAILLE_TO_ASCII = {0x2800 + code: _ascii_of(code) for code in range(256)}
