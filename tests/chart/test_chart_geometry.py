"""Where things fall, worked out by hand.

The window spans five decades each way; 50 columns and 25 rows of plane make that 10 columns (20
dots) and 5 rows (20 dots) a decade, so a bandwidth roof rises one dot a dot. The plane begins at
column 6, after "100T │".
"""

import msgspec
import pytest

from roofmon.chart import Arrow, Canvas, Point, Roof, Scene, Trail, Window, render

WINDOW = Window(0.01, 1e3, 1e9, 1e14)
SIZE = (56, 27)
LEFT = 6

# log10(1.02) is 0.0086, 0.17 dots: the roof leaves the left edge in dot row 79 (of 0…99).
BANDWIDTH = Roof("bandwidth", 1.02e12, "", "roof.memory")
# log10(9.8e12) is 12.9912: 1.0088 decades below the top, dot row 20, row 5 of cells.
COMPUTE = Roof("compute", 9.8e12, "", "roof.compute")


def chart(*roofs: Roof, **more: object) -> Canvas:
    return render(Scene(roofs, window=WINDOW, **more), *SIZE)  # type: ignore[arg-type]


def cells_of(canvas: Canvas, role: str) -> set[tuple[int, int]]:
    """Cells of the plane (row, column) that carry `role`."""
    return {
        (row, column - LEFT)
        for row, runs in enumerate(canvas.roles)
        for start, stop, of in runs
        for column in range(start, stop)
        if of == role
    }


def test_bandwidth_roof_rises_one_row_in_two_columns() -> None:
    canvas = chart(BANDWIDTH, COMPUTE)
    # Dots (0, 79), (1, 78) … (59, 20): row 19-k holds columns 2k and 2k+1, up to the ridge.
    assert cells_of(canvas, "roof.memory") == {
        (19 - k, 2 * k + side) for k in range(15) for side in (0, 1)
    } - cells_of(canvas, "roof.compute")
    assert canvas.characters[19][LEFT : LEFT + 2] == "⡠⠊"


def test_compute_roof_begins_at_the_ridge() -> None:
    canvas = chart(BANDWIDTH, COMPUTE)
    # 9.8/1.02 = 9.61 FLOP/byte: 2.983 decades from the left, dot 59, column 29.
    assert cells_of(canvas, "roof.compute") == {(5, column) for column in range(29, 50)}


def test_ridge_is_labelled_and_marked_on_the_axis() -> None:
    canvas = chart(BANDWIDTH, msgspec.structs.replace(COMPUTE, name="fp32"))
    assert canvas.characters[25][LEFT + 29] == "┴"
    assert any("ridge fp32 9.61 FLOP/b" in row for row in canvas.characters) or any(
        "ridge 9.61 F/B" in row for row in canvas.characters
    )


def test_roofs_end_where_they_cannot_bind() -> None:
    slow = Roof("bandwidth", 1.02e11, "", "slow")
    low = Roof("compute", 9.8e11, "", "low")
    canvas = chart(BANDWIDTH, COMPUTE, slow, low)
    # A tenth of the bandwidth reaches the compute roof a decade, ten columns, further right.
    assert max(column for _, column in cells_of(canvas, "slow")) in (38, 39)
    # A tenth of the FLOP/s meets the fast bandwidth roof a decade further left, 5 rows below.
    assert {row for row, _ in cells_of(canvas, "low")} == {10}
    assert min(column for _, column in cells_of(canvas, "low")) == 19


@pytest.mark.parametrize(
    ("intensity", "flops", "cell"),
    [
        (0.0102, 9.8e13, (0, 0)),  # the top left corner
        (980, 1.02e9, (24, 49)),  # the bottom right corner
        (1.01, 1.01e12, (9, 20)),  # 2.004 decades → 20.04 columns; 1.996 → 9.98 rows
        (31.6, 3.2e10, (17, 34)),  # 3.4997 → 34.997; 3.495 → 17.47
    ],
)
def test_points_fall_in_their_cells(intensity: float, flops: float, cell: tuple[int, int]) -> None:
    canvas = chart(points=(Point(intensity, flops, "3", "point.memory"),))
    assert canvas.point_cells == {"3": (cell[0], cell[1] + LEFT)}
    assert canvas.characters[cell[0]][cell[1] + LEFT] == "③"
    assert (cell[0], cell[1]) in cells_of(canvas, "point.memory")


def test_points_that_share_a_cell_show_a_shared_mark_and_are_both_found() -> None:
    both = (Point(1.01, 1.01e12, "1", "a"), Point(1.02, 1.02e12, "2", "b"))
    canvas = chart(points=both)
    assert canvas.point_cells == {"1": (9, 26), "2": (9, 26)}
    assert canvas.characters[9][26] == "◆"
    chosen = chart(points=(both[0], msgspec.structs.replace(both[1], selected=True)))
    assert chosen.characters[9][25:28] == "▸②◂"
    assert cells_of(chosen, "point.selected") == {(9, 19), (9, 20), (9, 21)}


def test_emphasised_flat_roof_is_two_dots_high() -> None:
    heavy = msgspec.structs.replace(COMPUTE, emphasised=True)
    # Dot rows 20 and 21 are the upper two of row 5; thin is dot row 20 alone.
    assert chart(BANDWIDTH, heavy).characters[5][LEFT + 40] == "⠛"
    assert chart(BANDWIDTH, COMPUTE).characters[5][LEFT + 40] == "⠉"


def test_line_kinds_differ_in_shape() -> None:
    rows = [
        chart(msgspec.structs.replace(COMPUTE, line=kind)).characters[5][LEFT:]
        for kind in ("solid", "dashed", "dotted")
    ]
    # On a line of its own: all 50 cells; 6 of 10 dots; 1 dot of 4.
    assert rows[0] == "⠉" * 50
    assert rows[1][:5] == "⠉⠉⠉  "
    assert rows[2][:4] == "⠁ ⠁ "


def test_wide_interval_is_drawn_and_a_narrow_one_is_not() -> None:
    # ±26 % is ±0.1 decades, two dots; ±2 % is not a dot.
    wide = msgspec.structs.replace(COMPUTE, low=9.8e12 / 1.27, high=9.8e12 * 1.27)
    narrow = msgspec.structs.replace(COMPUTE, low=9.8e12 / 1.02, high=9.8e12 * 1.02)
    assert {row for row, _ in cells_of(chart(wide), "roof.compute")} == {4, 5}
    assert {row for row, _ in cells_of(chart(narrow), "roof.compute")} == {5}


def test_arrow_runs_from_its_baseline_to_the_point() -> None:
    # Straight up a decade: from row 14 (1.01e11) to row 9 (1.01e12).
    canvas = chart(
        points=(Point(1.01, 1.01e12, "1", "point.memory"),),
        arrows=(Arrow((1.01, 1.01e11), (1.01, 1.01e12)),),
    )
    column = [row[LEFT + 20] for row in canvas.characters[9:15]]
    assert column[0] == "①"
    assert column[1] == "↑"
    assert column[5] == "○"
    assert cells_of(canvas, "arrow") == {(row, 20) for row in range(10, 15)}


def test_trail_leaves_dots() -> None:
    canvas = chart(trails=(Trail(((1.01, 1.01e12), (10.1, 1.01e12), (0.0, 1e12))),))
    assert cells_of(canvas, "trail") == {(9, 20), (9, 30)}


def test_ticks_are_at_decades() -> None:
    canvas = chart()
    gutters = [row[:6] for row in canvas.characters[:25]]
    # Each decade is 5 rows and the last one is on the lower edge.
    assert {row: gutter for row, gutter in enumerate(gutters) if "┤" in gutter} == {
        0: "100T ┤",
        5: " 10T ┤",
        10: "  1T ┤",
        15: "100G ┤",
        20: " 10G ┤",
        24: "  1G ┤",
    }
    axis, numbers = canvas.characters[25:]
    signs = [column - LEFT for column, sign in enumerate(axis) if sign == "┬"]
    assert signs == [0, 10, 20, 30, 40, 49]
    # The unit takes the place of the number at the very edge.
    assert numbers.split() == ["0.01", "0.1", "1", "10", "100", "F/B"]
