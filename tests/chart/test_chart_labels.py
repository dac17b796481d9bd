"""Labels: present, whole, apart from each other, and told without colour."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmon.chart import Canvas, Point, Roof, Scene, mark, render
from roofmon.chart.glyphs import braille_to_ascii, clean


def test_all_labels_are_there_at_60_by_12(h200: Scene, cpu: Scene) -> None:
    for scene in (h200, cpu):
        canvas = render(scene, 60, 12)
        text = "\n".join(canvas.characters)
        assert [roof.label for roof in scene.roofs if roof.label not in text] == []
        assert "ridge" in text


def test_compute_roofs_are_labelled_at_their_right_end(h200: Scene) -> None:
    canvas = render(h200, 120, 25)
    for label in ("fp8 1.36P", "bf16 753T", "tf32 366T"):
        (row,) = (row for row in canvas.characters if label in row)
        assert row.endswith(f" {label} ")
        assert row[: -len(label) - 2].rstrip()[-1] >= "\u2800"


def test_of_two_roofs_in_one_row_the_lower_is_labelled_lower(h200: Scene) -> None:
    for size in ((80, 15), (100, 22), (100, 24), (120, 25), (160, 40)):
        rows = render(h200, *size).characters
        fp64 = next(index for index, row in enumerate(rows) if "fp64 62T" in row)
        fp32 = next(index for index, row in enumerate(rows) if "fp32 51.9T" in row)
        assert fp64 < fp32, size


def test_label_without_room_is_shortened_then_listed() -> None:
    roof = Roof("compute", 1e12, "single precision 1T", "roof.compute", "fp32")
    assert any("fp32" in row for row in render(Scene((roof,)), 24, 8).characters)
    nameless = msgspec.structs.replace(roof, name="")
    assert render(Scene((nameless,)), 24, 8).undrawn == (
        ("single precision 1T", "no room for its label"),
    )


def test_what_cannot_be_placed_is_listed_with_the_reason() -> None:
    roofs = (Roof("bandwidth", 1e12, "DRAM", ""), Roof("compute", 0.0, "fp8", ""))
    points = (
        Point(None, 1e12, "1"),
        Point(1, None, "2"),
        Point(1e-300, 1e12, "3"),
        Point(1, 1e12, "4"),
    )
    canvas = render(Scene(roofs, points), 60, 15)
    assert canvas.undrawn == (
        ("fp8", "its value is unknown"),
        ("1", "its intensity is unknown"),
        ("2", "its FLOP/s is unknown"),
        ("3", "outside the window"),
    )
    assert list(canvas.point_cells) == ["4"]


def test_marks() -> None:
    assert [mark(label) for label in ("1", "20", "21", "0", "GPU", "●")] == list("①⑳•••●")
    assert [mark(label, unicode=False) for label in ("1", "10", "61", "62", "●", "–")] == list(
        "1aZ#@-"
    )


def test_ascii_mode_is_seven_bit(h200: Scene, comparison: Scene) -> None:
    for scene in (h200, comparison):
        text = msgspec.structs.replace(scene, unicode=False, message="measuring … ①")
        assert all(row.isascii() for row in render(text, 100, 25).characters)


def test_braille_becomes_strokes() -> None:
    assert braille_to_ascii("⣀⡠⠒⠊⠉ ⡇⡜⢣⠶⠤") == "_.-'' |/\\=."


def test_names_from_outside_take_one_cell_a_character() -> None:
    assert clean("a\x1b[31mb\u202ec漢e\u0301", unicode=True) == "a [31mb c?e"
    assert clean("4×2 µs…", unicode=False) == "4x2 us..."
    roof = Roof("compute", 1e12, "漢\x1b[0m\n", "r")
    canvas = render(Scene((roof,)), 60, 12)
    assert all(len(row) == 60 and row.isprintable() for row in canvas.characters)


def test_message_is_written_across_the_plane(h200: Scene) -> None:
    canvas = render(msgspec.structs.replace(h200, message="measuring roofs …"), 80, 15)
    assert any(" measuring roofs … " in row for row in canvas.characters)
    for size in ((30, 4), (19, 9)):
        small = render(Scene(message="measuring"), *size)
        assert sum("measuring" in row for row in small.characters) == 1
    assert "chart needs 20×5" in "".join(render(Scene(), 30, 4).characters)
    assert set("".join(render(Scene(), 3, 1).characters)) == {" "}


@settings(max_examples=50, deadline=None)
@given(
    bandwidths=st.lists(st.floats(10, 13), max_size=4),
    computes=st.lists(st.floats(12, 15.5), max_size=8),
    places=st.lists(st.tuples(st.floats(-2, 4), st.floats(9, 15)), max_size=30),
    emphasised=st.integers(0, 11),
    width=st.integers(20, 130),
    height=st.integers(5, 40),
)
def test_labels_are_whole_or_listed_and_points_are_on_top(
    bandwidths: list[float],
    computes: list[float],
    places: list[tuple[float, float]],
    emphasised: int,
    width: int,
    height: int,
) -> None:
    logs = bandwidths + computes
    roofs = tuple(
        Roof(
            "bandwidth" if index < len(bandwidths) else "compute",
            10**log,
            f"<{index}|roof>",
            f"roof.{index}",
            f"<{index}>",
            emphasised=index == emphasised,
        )
        for index, log in enumerate(logs)
    )
    points = tuple(
        Point(10**x, 10**y, str(index), "point", selected=index == 3)
        for index, (x, y) in enumerate(places)
    )
    canvas = render(Scene(roofs, points), width, height)
    text = "\n".join(canvas.characters)
    listed = {undrawn.label for undrawn in canvas.undrawn}
    for roof in roofs:
        assert (roof.label in listed) != (roof.label in text or roof.name in text)
    for point in points:
        assert (point.label in listed) != (point.label in canvas.point_cells)
    for label, (row, column) in canvas.point_cells.items():
        assert canvas.characters[row][column] in {mark(label), "◆", mark("3")}
        assert _role_at(canvas, row, column) in {"point", "point.selected"}


def _role_at(canvas: Canvas, row: int, column: int) -> str:
    return next(role for start, stop, role in canvas.roles[row] if start <= column < stop)
