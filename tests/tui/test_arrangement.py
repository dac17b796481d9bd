"""Places of the main screen: inside the window, without overlap, nothing left over."""

from hypothesis import given
from hypothesis import strategies as st

from roofmon.tui.arrangement import PANELS, arrange

SIZES = st.tuples(st.integers(1, 250), st.integers(1, 80))


@given(SIZES, st.sampled_from(PANELS), st.booleans(), st.booleans(), st.booleans())
def test_places_tile_the_window(
    size: tuple[int, int], focus: str, full: bool, notice: bool, output: bool
) -> None:
    width, height = size
    arranged = arrange(width, height, focus, full=full, notice=notice, output=output)  # type: ignore[arg-type]
    places = arranged.places
    covered: set[tuple[int, int]] = set()
    for place in places.values():
        assert place.width > 0
        assert place.height > 0
        cells = {
            (x, y)
            for x in range(place.x, place.x + place.width)
            for y in range(place.y, place.y + place.height)
        }
        assert not covered & cells
        covered |= cells
    assert covered == {(x, y) for x in range(width) for y in range(height)}


def test_at_80x24() -> None:
    places = arrange(80, 24, "kernels").places
    heights = {name: place.height for name, place in places.items()}
    assert heights == {"status": 1, "chart": 15, "kernels": 6, "check": 1, "keys": 1}


def test_focused_panel_takes_the_upper_slot_where_it_has_no_place() -> None:
    assert "device" in arrange(80, 24, "device").places
    assert "chart" not in arrange(80, 24, "device").places
    assert {"chart", "device", "checklist"} <= arrange(120, 36, "device").places.keys()


def test_too_small() -> None:
    assert arrange(39, 12, "kernels").places.keys() == {"message"}
    assert arrange(40, 11, "kernels").places.keys() == {"message"}
    assert "kernels" in arrange(40, 12, "kernels").places


def test_the_output_of_a_program_has_a_place_in_a_high_window_and_else_takes_turns() -> None:
    assert "output" in arrange(120, 40, "kernels", output=True).places
    assert "output" not in arrange(120, 30, "kernels", output=True).places
    for size in ((80, 24), (120, 30)):
        places = arrange(*size, "output", output=True).places
        assert "output" in places
        assert "chart" not in places
    assert "output" not in arrange(120, 40, "kernels").places
