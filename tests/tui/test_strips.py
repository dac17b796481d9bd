"""Lines to strips, and what changed between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.strip import Strip

from roofmon.resources import themes_dir
from roofmon.themes import load_themes
from roofmon.tui.palette import Palette
from roofmon.tui.strips import (
    bar,
    cells,
    changed_regions,
    fitted,
    sparkline,
    spread,
    strip_of,
    wrapped,
)

THEMES = load_themes(themes_dir())[0]
PALETTE = Palette(THEMES["roofmon-dark"])
PLAIN = Palette(THEMES["roofmon-dark"], colour=False, unicode=False)
ANY_LINE = st.lists(st.tuples(st.text(max_size=12), st.sampled_from(["", "fail", "muted"])))


def strip(*pieces: tuple[str, str], width: int = 10) -> Strip:
    """A strip in the default theme."""
    return strip_of(pieces, width, PALETTE)


@given(ANY_LINE, st.integers(1, 40))
def test_a_strip_is_as_wide_as_asked_and_free_of_control_characters(
    line: list[tuple[str, str]], width: int
) -> None:
    for palette in (PALETTE, PLAIN):
        made = strip_of(line, width, palette)
        assert made.cell_length == width
        assert cells(made.text) == width
        assert made.text.isprintable()
    assert made.text.isascii()


def test_neighbours_of_one_style_are_one_segment() -> None:
    assert len(list(strip(("ab", ""), ("cd", ""), ("e", "")))) == 1
    assert [s.text for s in strip(("ab", ""), ("cd", "fail"))] == ["ab", "cd", "      "]


def test_without_colour_no_style_has_one() -> None:
    for role in ("", "fail", "muted", "point.memory", "alert", "focus", "@selection"):
        style = PLAIN.style(role)
        assert style.color is None
        assert style.bgcolor is None
    # What colour told is told by attributes.
    assert PLAIN.style("@selection").reverse
    assert PLAIN.style("alert").reverse
    assert PLAIN.style("fail").bold


def test_default_colours_of_an_ansi_theme_stay_the_terminals() -> None:
    ansi = Palette(THEMES["roofmon-ansi"])
    assert ansi.plain.color is None
    assert ansi.plain.bgcolor is None
    assert ansi.style("@selection").reverse
    assert ansi.style("fail").color is not None


def test_only_changed_lines_are_repainted_up_to_the_last_change() -> None:
    old = [strip(("time  12 ms", "")), strip(("same", "")), strip(("ab", "fail"), ("cd", ""))]
    new = [strip(("time  13 ms", "")), strip(("same", "")), strip(("ax", "fail"), ("cd", ""))]
    assert [(r.y, r.x, r.width) for r in changed_regions(old, new, 10)] == [(0, 0, 8), (2, 0, 2)]
    assert changed_regions(new, new, 10) == []
    assert [r.y for r in changed_regions([], new, 10)] == [0, 1, 2]


def test_a_change_of_style_alone_is_a_change() -> None:
    old, new = [strip(("ab", "fail"), ("cd", ""))], [strip(("ab", "pass"), ("cd", ""))]
    assert [(r.x, r.width) for r in changed_regions(old, new, 10)] == [(0, 2)]


@given(st.text(max_size=30), st.integers(0, 20))
def test_fitted_takes_exactly_its_width(text: str, width: int) -> None:
    assert cells(fitted(text, width)) == width


def test_fitted_says_that_it_cut() -> None:
    assert fitted("softmax", 5) == "softm"[:4] + "…"
    assert fitted("行列積", 4) == "行 …"
    assert fitted("ab", 4) == "ab  "


def test_spread_leaves_the_right_end_out_where_it_does_not_fit() -> None:
    assert spread([("ab", "")], [("cd", "")], 6) == [("ab", ""), ("  ", ""), ("cd", "")]
    assert spread([("ab", "")], [("cd", "")], 4) == [("ab", "")]


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [(0.0, "    "), (0.5, "██  "), (1.0, "████"), (2.0, "████"), (0.28, "█▏  "), (-1.0, "    ")],
)
def test_bar(fraction: float, expected: str) -> None:
    assert bar(fraction, 4) == expected


def test_sparkline_keeps_small_values_visible() -> None:
    assert sparkline([0, 1, 500, 1000]) == " ▁▄█"
    assert sparkline([0, 0]) == ""
    assert sparkline([]) == ""


def test_wrapped_begins_and_indents() -> None:
    lines = wrapped("fuse it with its neighbours", 16, "", "   ", " → ")
    assert [line[0][0] for line in lines] == [" → fuse it with", "   its", "   neighbours"]


def test_a_changed_number_among_other_characters_ends_the_repaint() -> None:
    old, new = [strip(("① 12 µs …", ""))], [strip(("① 13 µs …", ""))]
    assert [(r.x, r.width) for r in changed_regions(old, new, 10)] == [(0, 4)]
    wide_old, wide_new = [strip(("行1列", ""))], [strip(("行2列", ""))]
    assert [(r.x, r.width) for r in changed_regions(wide_old, wide_new, 10)] == [(0, 10)]
