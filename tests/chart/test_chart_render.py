"""What holds for every chart: its shape, its key, its imports, and that it never fails.

A wrong number handed to plotext aborts the whole process: in these tests that would end pytest.
"""

import math
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmon.chart import (
    Arrow,
    Canvas,
    Point,
    Region,
    Roof,
    Scene,
    Trail,
    Window,
    auto_window,
    cell_key,
    render,
    zoom,
)

T = TypeVar("T")
SIZES = st.tuples(st.integers(1, 130), st.integers(1, 45))
SPECIAL = [0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 1e-300, 1e300, 5e-324, 1.0, 10**400]
TEXTS = [
    "",
    "1",
    "12",
    "25",
    "x",
    "DRAM 4.39T",
    "漢字 T",
    "e\u0301",
    "\x1b[2J",
    "\ud800",
    "a" * 200,
]


def any_scene(random: Random) -> Scene:
    """A scene of hostile numbers and texts among ordinary ones."""

    def number() -> float:
        if random.random() < 0.3:
            return random.choice(SPECIAL)
        return 10 ** random.uniform(*random.choice([(-3, 4), (9, 16), (-320, 308)]))

    def number_or_none() -> float | None:
        return number() if random.random() < 0.8 else None

    def text() -> str:
        return random.choice(TEXTS) if random.random() < 0.7 else chr(random.randrange(0x110000))

    def several(most: int, make: Callable[[], T]) -> tuple[T, ...]:
        return tuple(make() for _ in range(random.randint(0, most)))

    def roof() -> Roof:
        return Roof(
            random.choice(["bandwidth", "compute"]),
            number(),
            text(),
            random.choice(["roof.memory", "", "\x1b[31m"]),
            text(),
            random.choice(["solid", "dashed", "dotted"]),
            random.random() < 0.4,
            number_or_none(),
            number_or_none(),
        )

    def point() -> Point:
        selected = random.random() < 0.2
        return Point(number_or_none(), number_or_none(), text(), "p", selected)

    def place() -> tuple[float, float]:
        return number(), number()

    return Scene(
        several(6, roof),
        several(10, point),
        several(1, lambda: Trail(several(8, place))),
        several(2, lambda: Arrow(place(), place())),
        several(1, lambda: Region(number(), text())),
        Window(number(), number(), number(), number()) if random.random() < 0.5 else None,
        text() if random.random() < 0.2 else None,
        random.random() < 0.7,
    )


def assert_well_formed(canvas: Canvas, width: int, height: int, unicode: bool) -> None:
    assert (canvas.width, canvas.height) == (width, height)
    assert len(canvas.characters) == len(canvas.roles) == height
    for row, runs in zip(canvas.characters, canvas.roles, strict=True):
        assert len(row) == width
        assert row.isprintable()
        assert unicode or row.isascii()
        assert [start for start, _, _ in runs] == [0] + [stop for _, stop, _ in runs[:-1]]
        assert runs[-1][1] == width
    for cell in canvas.point_cells.values():
        assert 0 <= cell[0] < height
        assert 0 <= cell[1] < width


def assert_renders(random: Random, size: tuple[int, int]) -> None:
    scene = any_scene(random)
    assert_well_formed(render(scene, *size), *size, scene.unicode)


@settings(max_examples=250, deadline=None)
@given(st.randoms(use_true_random=True), SIZES)
def test_any_scene_renders(random: Random, size: tuple[int, int]) -> None:
    assert_renders(random, size)


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False), SIZES)
def test_any_scene_renders_or_is_shrunk_to_its_cause(random: Random, size: tuple[int, int]) -> None:
    assert_renders(random, size)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=20_000, deadline=None)
@given(st.randoms(use_true_random=True), SIZES)
def test_twenty_thousand_scenes_render(random: Random, size: tuple[int, int]) -> None:
    assert_renders(random, size)


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (500, 1), (20, 5), (19, 5), (300, 120), (0, 0)])
def test_every_size_renders(size: tuple[int, int], h200: Scene) -> None:
    canvas = render(h200, *size)
    assert [len(row) for row in canvas.characters] == [size[0]] * size[1]


def test_every_zoom_renders(h200: Scene) -> None:
    window = auto_window(h200.roofs, h200.points)
    first = render(msgspec.structs.replace(h200, window=window), 80, 15).point_cells["1"]
    for _ in range(12):
        window = zoom(window, 1.5, (118, 417e12))
        canvas = render(msgspec.structs.replace(h200, window=window), 80, 15)
        # The centre keeps its place: but for rounding it stays in its cell.
        assert canvas.point_cells["1"] == pytest.approx(first, abs=1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1.9, 2.9), st.floats(9.1, 12.9)), min_size=1, max_size=4),
    st.floats(-0.03, 0.03),
)
def test_equal_keys_mean_equal_pictures(places: list[tuple[float, float]], step: float) -> None:
    roofs = (Roof("bandwidth", 1e11, "DRAM", "a"), Roof("compute", 1e12, "fp32", "b"))

    def scene(shift: float) -> Scene:
        points = tuple(
            Point(10 ** (x + shift), 10 ** (y + shift), str(index), "p")
            for index, (x, y) in enumerate(places)
        )
        return Scene(roofs, points, window=Window(0.01, 1000, 1e9, 1e13))

    before, after = scene(0), scene(step)
    same_picture = render(before, 60, 15) == render(after, 60, 15)
    assert (cell_key(before, 60, 15) == cell_key(after, 60, 15)) == same_picture
    assert hash(cell_key(before, 60, 15)) == hash(cell_key(scene(0), 60, 15))


def test_key_changes_with_whatever_is_seen(h200: Scene) -> None:
    replace = msgspec.structs.replace
    key = cell_key(h200, 80, 15)
    first, *others = h200.points
    assert key == cell_key(replace(h200, points=(replace(first, flops=417.1e12), *others)), 80, 15)
    changed = [
        replace(h200, points=(replace(first, flops=4e12), *others)),
        replace(h200, points=(replace(first, selected=True), *others)),
        replace(h200, points=(replace(first, role="point.latency"), *others)),
        replace(h200, roofs=h200.roofs[1:]),
        replace(h200, roofs=(replace(h200.roofs[0], label="L2 9.7T"), *h200.roofs[1:])),
        replace(h200, message="paused"),
        replace(h200, unicode=False),
    ]
    assert key not in [cell_key(scene, 80, 15) for scene in changed]
    assert key != cell_key(h200, 81, 15)


def test_threads_do_not_disturb_each_other(h200: Scene, cpu: Scene) -> None:
    scenes = [h200, cpu] * 12
    alone = [render(scene, 90, 20) for scene in scenes]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda scene: render(scene, 90, 20), scenes)) == alone


def test_importing_and_keys_need_no_plotext_or_numpy() -> None:
    code = (
        "import sys; from roofmon.chart import Roof, Scene, cell_key;"
        "cell_key(Scene((Roof('compute', 1e12, 'fp32', 'r'),)), 80, 15);"
        "print({'plotext', 'numpy', 'textual', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "set()"
