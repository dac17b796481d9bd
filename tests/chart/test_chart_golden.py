"""Whole charts as text. After a deliberate change: `UPDATE_GOLDEN=1 pytest tests/chart`."""

import os
from pathlib import Path

import msgspec
import pytest

from roofmon.chart import Scene, render

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("name", "scene_name", "size", "unicode"),
    [
        ("h200_120x25", "h200", (120, 25), True),
        ("cpu_80x15", "cpu", (80, 15), True),
        ("cpu_80x15_ascii", "cpu", (80, 15), False),
        ("comparison_80x18", "comparison", (80, 18), True),
    ],
)
def test_chart_looks_as_recorded(
    name: str,
    scene_name: str,
    size: tuple[int, int],
    unicode: bool,
    request: pytest.FixtureRequest,
) -> None:
    scene: Scene = msgspec.structs.replace(request.getfixturevalue(scene_name), unicode=unicode)
    text = "\n".join(row.rstrip() for row in render(scene, *size).characters) + "\n"
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
