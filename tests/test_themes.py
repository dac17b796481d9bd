"""Themes: the bundled ones can be read by everybody, and a bad file is named, not fatal."""

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from roofmon.errors import RoofmonError
from roofmon.themes import ANSI_COLOURS, ROLES, Theme, load_themes, theme_named

BUNDLED = Path(__file__).parent.parent / "themes"
NONE = BUNDLED / "none"
THEMES, _ = load_themes(BUNDLED, NONE)
RGB_THEMES = [theme for theme in THEMES.values() if not theme.ansi]
GROUNDS = ("background", "panel")
DRAWN = ("axis", "region", "ridge", "trail", "bar")  # lines and bars: 3:1 is enough
TEXT = [role for role in ROLES if role not in {*GROUNDS, *DRAWN, "border", "selection"}]

# Colour vision without one kind of cone: Machado, Oliveira, Fernandes, "A physiologically-based model for
# simulation of color vision deficiency", IEEE TVCG 15(6), 2009, severity 1.0, on linear RGB.
VISION = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
RGB_TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)
WHITE = np.array([0.9505, 1.0, 1.089])


def linear(colour: str) -> NDArray[np.float64]:
    srgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio, 1 … 21."""
    light = sorted(float(RGB_TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (light[1] + 0.05) / (light[0] + 0.05)


def difference(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """CIE 1976 colour difference of two linear RGB colours; 2.3 is just noticeable."""
    lab = []
    for rgb in (one, other):
        x, y, z = RGB_TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
        fx, fy, fz = (
            v ** (1 / 3) if v > (6 / 29) ** 3 else v / (3 * (6 / 29) ** 2) + 4 / 29
            for v in (x, y, z)
        )
        lab.append((116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)))
    return math.dist(*lab)


def test_the_measures_give_the_values_that_are_known() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert difference(linear("#000000"), linear("#ffffff")) == pytest.approx(100, abs=0.1)
    assert difference(linear("#ff0000"), linear("#00ff00")) == pytest.approx(170.6, abs=0.5)


def test_bundled_themes_are_complete() -> None:
    themes, problems = load_themes(BUNDLED, NONE)
    assert problems == []
    assert set(themes) == {"roofmon-dark", "roofmon-light", "roofmon-contrast", "roofmon-ansi"}
    for theme in themes.values():
        assert set(theme.roles) == set(ROLES)
    assert themes["roofmon-ansi"].ansi
    assert set(themes["roofmon-ansi"].roles.values()) <= set(ANSI_COLOURS)
    assert [t.name for t in themes.values() if not t.dark] == ["roofmon-light"]


@pytest.mark.parametrize("theme", RGB_THEMES, ids=lambda t: t.name)
def test_text_can_be_read_on_every_ground(theme: Theme) -> None:
    for ground in GROUNDS:
        for role in TEXT:
            ratio = contrast(theme.roles[role], theme.roles[ground])
            assert ratio >= 4.5, f"{role} on {ground}: {ratio:.2f}"
        for role in DRAWN:
            assert contrast(theme.roles[role], theme.roles[ground]) >= 3, role
    for role in TEXT:
        ratio = contrast(theme.roles[role], theme.roles["selection"])
        assert ratio >= 4.5, f"{role} on the selection: {ratio:.2f}"


def test_high_contrast_is_high() -> None:
    theme = THEMES["roofmon-contrast"]
    assert min(contrast(theme.roles[role], theme.roles["background"]) for role in TEXT) >= 7


@pytest.mark.parametrize("vision", VISION)
def test_what_must_be_told_apart_can_be_by_every_colour_vision(vision: str) -> None:
    seen = {
        role: np.array(VISION[vision]) @ linear(colour)
        for role, colour in THEMES["roofmon-contrast"].roles.items()
    }
    pairs = [
        *combinations(("pass", "fail", "unknown"), 2),
        *combinations(("point.memory", "point.compute", "point.latency", "point.unknown"), 2),
        ("roof.memory", "roof.compute"),
    ]
    for one, other in pairs:
        assert difference(seen[one], seen[other]) > 20, (one, other)


def theme_file(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def test_a_users_theme_says_only_what_differs(tmp_path: Path) -> None:
    theme_file(tmp_path, "mine", 'base = "roofmon-light"\n[roles]\nroof.memory = "#112233"\n')
    theme_file(tmp_path, "roofmon-dark", 'base = "roofmon-ansi"\n[roles]\naccent = "cyan"\n')
    themes, problems = load_themes(BUNDLED, tmp_path)
    assert problems == []
    mine = themes["mine"]
    assert (mine.dark, mine.ansi) == (False, False)
    assert mine.roles["roof.memory"] == "#112233"
    assert mine.roles["axis"] == themes["roofmon-light"].roles["axis"]
    assert themes["roofmon-dark"].ansi  # the user's own hides the bundled one
    assert themes["roofmon-dark"].roles["accent"] == "cyan"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('base = "roofmon-dark"\n[roles]\nacent = "#123456"', [":3:", '"acent"', '"accent"']),
        ('base = "roofmon-dark"\n[roles]\naxis = "blue"', [":3:", "axis", '"blue"', '"#rrggbb"']),
        ('base = "roofmon-dark"\n\n[roles.roof]\nmemory = 3', [":4:", "roof.memory cannot be 3"]),
        ('base = "roofmon-dark"\n[roles]\nroof.a.b = 3', [":3:", '"roof.a"']),
        ('base = "roofmon-ansi"\n[roles]\naxis = "#123456"', [":3:", "bright_blue"]),
        ('base = "roofmon-drak"\n[roles]', [":1:", '"roofmon-drak"', 'mean "roofmon-dark"']),
        ("base = 3\n", [":1:", "base cannot be 3"]),
        ('base = "roofmon-dark"\ndark = "yes"', [":2:", "dark is neither true nor false"]),
        ('base = "roofmon-dark"\nroles = 1', [":2:", "roles is not a table"]),
        ('base = "roofmon-dark"\naxis = "#123456"', [":2:", '"axis"', "[roles]"]),
        ('[roles]\naxis = "#123456"', [":1:", "no colour for background, panel", "base ="]),
        ("[roles\n", [":1: not TOML"]),
    ],
)
def test_a_bad_theme_is_named_with_line_and_key_and_the_good_ones_load(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    theme_file(tmp_path, "bad", text)
    theme_file(tmp_path, "good", 'base = "roofmon-dark"')
    themes, problems = load_themes(BUNDLED, tmp_path)
    assert set(themes) == {*THEMES, "good"}
    assert len(problems) == 1
    assert str(tmp_path / "bad.toml") in problems[0].what
    for part in expected:
        assert part in str(problems[0])


def test_a_deep_table_of_colours_is_a_bad_colour(tmp_path: Path) -> None:
    theme_file(tmp_path, "deep", f'base = "roofmon-dark"\n[roles]\nroof{".a" * 2000} = 1')
    _, problems = load_themes(BUNDLED, tmp_path)
    assert len(problems) == 1


def test_a_theme_that_is_not_there_is_guessed() -> None:
    assert theme_named(THEMES, "roofmon-light").name == "roofmon-light"
    with pytest.raises(RoofmonError, match='did you mean "roofmon-light"'):
        theme_named(THEMES, "roofmon-ligth")


def test_themes_are_looked_for_in_the_standard_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ROOFMON_THEMES", raising=False)
    assert load_themes() == (THEMES, [])
    (tmp_path / "roofmon" / "themes").mkdir(parents=True)
    theme_file(tmp_path / "roofmon" / "themes", "mine", 'base = "roofmon-dark"')
    assert set(load_themes()[0]) == {*THEMES, "mine"}
