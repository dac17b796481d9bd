"""Windows, zoom and ticks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmon.chart import Point, Roof, Scene, Window, auto_window, zoom
from roofmon.chart.glyphs import short_number
from roofmon.chart.window import bounds_of, steady, ticks

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


def test_auto_window_of_known_roofs_and_points() -> None:
    roofs = (Roof("bandwidth", 20e9, "", ""), Roof("compute", 150e9, "", ""))
    window = auto_window(roofs, (Point(0.08, 1.5e9, "1"), Point(200, 140e9, "2")))
    # x: 0.08 less 0.2 decades is 0.05, down to a half decade; 200 and 0.3 decades is 400, up.
    assert window.x_min == pytest.approx(10**-1.5)
    assert window.x_max == pytest.approx(1000)
    # y: the DRAM roof at x_min is 632 MFLOP/s, down to a quarter decade; 168 GFLOP/s, up.
    assert window.y_min == pytest.approx(10**8.75)
    assert window.y_max == pytest.approx(10**11.25)


def test_auto_window_holds_every_ridge(h200: Scene) -> None:
    window = auto_window(h200.roofs, ())
    for bandwidth in (9.6e12, 4.39e12):
        for compute in (1.355e15, 753e12, 366e12, 51.9e12, 62e12):
            assert window.x_min < compute / bandwidth < window.x_max
            assert window.y_min < compute < window.y_max


def test_small_moves_leave_the_window_alone() -> None:
    roofs = (Roof("bandwidth", 20e9, "", ""), Roof("compute", 150e9, "", ""))
    before = auto_window(roofs, (Point(0.08, 1.5e9, "1"),))
    assert auto_window(roofs, (Point(0.081, 1.45e9, "1"),)) == before


def test_one_kind_of_roof_alone_is_in_its_window() -> None:
    compute = auto_window((Roof("compute", 753e12, "", ""),), ())
    assert compute.y_min < 753e12 < compute.y_max
    bandwidth = auto_window((Roof("bandwidth", 4.39e12, "", ""),), ())
    assert bandwidth.y_min < 4.39e12 * bandwidth.x_max
    assert bandwidth.y_max > 4.39e12 * bandwidth.x_min


@given(
    st.lists(NUMBERS, max_size=4),
    st.lists(NUMBERS, max_size=4),
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4),
)
def test_auto_window_is_usable_for_any_numbers(
    bandwidths: list[float], computes: list[float], places: list[tuple[float, float]]
) -> None:
    roofs = [Roof("bandwidth", value, "", "") for value in bandwidths]
    roofs += [Roof("compute", value, "", "") for value in computes]
    points = [Point(x, y, "1") for x, y in places]
    window = auto_window(roofs, points)
    assert all(0 < edge < math.inf for edge in (window.x_min, window.x_max))
    assert all(0 < edge < math.inf for edge in (window.y_min, window.y_max))


def test_zoom_halves_the_decades_about_its_centre() -> None:
    window = Window(0.01, 100, 1e9, 1e13)
    # Four decades become two about the middle (1 FLOP/byte, 1e11 FLOP/s).
    assert _rounded(zoom(window, 2)) == (-1, 1, 10, 12)
    # A quarter of the way in stays a quarter of the way in.
    assert _rounded(zoom(window, 2, (0.1, 1e12))) == (-1.5, 0.5, 10.5, 12.5)
    assert _rounded(zoom(zoom(window, 2, (0.1, 1e12)), 0.5, (0.1, 1e12))) == (-2, 2, 9, 13)


def test_zoom_has_limits_and_ignores_nonsense() -> None:
    window = Window(0.01, 100, 1e9, 1e13)
    close, far = bounds_of(zoom(window, 1e300)), bounds_of(zoom(window, 1e-300))
    assert close is not None
    assert far is not None
    assert close.x_high - close.x_low == pytest.approx(0.5)
    assert far.y_high - far.y_low == pytest.approx(12)
    for factor in (0, -1, math.nan, math.inf):
        assert zoom(window, factor) == window
    assert zoom(window, 2, (math.nan, 0)) == zoom(window, 2)
    assert zoom(Window(1, 1, 1, 1), 2) == Window(1, 1, 1, 1)


def test_ticks_thin_out_and_refine_with_the_room() -> None:
    # Five decades in 50 cells: each decade. In 10 cells, at least 7 apart: every fourth.
    assert [text for _, text in ticks(-2, 3, 50, 7)] == ["0.01", "0.1", "1", "10", "100", "1k"]
    assert [text for _, text in ticks(-2, 3, 10, 7)] == ["1"]
    # One decade in 50 cells has room for 2 and 5; in 20 cells, 2 would be 6 from 1.
    assert [text for _, text in ticks(0, 1, 50, 7)] == ["1", "2", "5", "10"]
    assert [text for _, text in ticks(0, 1, 20, 7)] == ["1", "10"]
    assert [log for log, _ in ticks(0, 1, 50, 7)] == pytest.approx([0, 0.30103, 0.69897, 1])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (172.4, "172"),
        (7.5, "7.5"),
        (0.05, "0.05"),
        (0.001, "0.001"),
        (1e-5, "1e-5"),
        (1.25e-7, "1.25e-7"),
        (999.6, "1k"),
        (1720, "1.72k"),
        (1e12, "1T"),
        (2e20, "200E"),
        (5e24, "5e24"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short_number(value) == text


def _rounded(window: Window) -> tuple[float, ...]:
    bounds = bounds_of(window)
    assert bounds is not None
    return tuple(round(edge, 6) for edge in bounds)


def test_a_window_stays_while_it_holds_what_is_wanted() -> None:
    before = Window(0.1, 100.0, 1e9, 1e12)
    assert steady(None, before) == before
    assert steady(before, Window(0.3, 100.0, 2e9, 1e12)) == before
    wider = Window(0.03, 100.0, 1e9, 1e12)
    assert steady(before, wider) == wider
    small = Window(0.1, 100.0, 2e10, 1e12)  # 1.3 decades would be empty
    assert steady(before, small) == small
