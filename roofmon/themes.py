"""Themes: which colour each role on the screen has, read from one TOML file a theme.

A role says what a thing is (a memory roof, a failed check), never how it looks, so that chart, table and
report know no colours. This module knows no toolkit: a colour stays text.

A file holds `dark` (is the background dark?), `ansi` (colours by name, from the terminal's own palette,
instead of `#rrggbb`), `base` (a theme of roofmon's own that gives what the file leaves out) and `[roles]`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from roofmon.errors import ExitCode, RoofmonError
from roofmon.resources import config_dir, themes_dir
from roofmon.tomlfile import Keys, TomlFile, as_written, did_you_mean, read_toml
from roofmon.units import clean

ROLES = (
    # the screen
    *("background", "panel", "foreground", "muted", "border", "accent", "selection", "bar"),
    # verdicts and messages
    *("pass", "fail", "unknown", "warning", "error"),
    # the chart
    *("axis", "label", "message", "region", "ridge", "arrow", "trail"),
    *("roof.memory", "roof.compute", "roof.bound", "roof.selected"),
    *("point.memory", "point.compute", "point.latency", "point.unknown", "point.selected"),
)
"""Everything that has a colour."""

_HUES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
ANSI_COLOURS = ("default", *_HUES, *(f"bright_{hue}" for hue in _HUES))
"""The names an `ansi` theme uses; `default` is the terminal's own foreground or background."""

_RGB = re.compile(r"#[0-9a-fA-F]{6}")
_SETTINGS = ("dark", "ansi", "base", "roles")
_FILES_LIMIT = 200  # themes read from one folder


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """Colours by role, one for each of ROLES: `#rrggbb`, or for an `ansi` theme one of ANSI_COLOURS."""

    name: str
    roles: Mapping[str, str]
    dark: bool = True
    ansi: bool = False


def load_themes(
    bundled: Path | None = None, users: Path | None = None
) -> tuple[dict[str, Theme], list[RoofmonError]]:
    """The themes by name (that of the file), and what was wrong with files that were left out.

    Args:
        bundled: the folder of roofmon's own themes, None for `themes_dir()`; only they can be a `base`.
        users: that of the user's, which need not exist, None for `themes` in the configuration folder. A
            theme there hides one of the same name.
    """
    problems: list[RoofmonError] = []
    own = _themes_in(bundled or themes_dir(), {}, problems)
    theirs = _themes_in(users or config_dir() / "themes", own, problems)
    return own | theirs, problems


def theme_named(themes: Mapping[str, Theme], name: str) -> Theme:
    """The theme called `name`. Raises RoofmonError, with the likely name, if there is none."""
    if name not in themes:
        fix = did_you_mean(name, themes) or f"there are {', '.join(sorted(themes))}"
        raise RoofmonError(f'there is no theme "{clean(name, 60)}"', fix, ExitCode.USAGE)
    return themes[name]


def _themes_in(
    folder: Path, bases: Mapping[str, Theme], problems: list[RoofmonError]
) -> dict[str, Theme]:
    themes = {}
    for path in sorted(folder.glob("*.toml"))[:_FILES_LIMIT]:
        try:
            file = read_toml(path)
        except RoofmonError as error:
            problems.append(error)
            continue
        theme, faults = _theme(file, bases)
        problems += faults
        if not faults:
            themes[theme.name] = theme
    return themes


def _theme(file: TomlFile, bases: Mapping[str, Theme]) -> tuple[Theme, list[RoofmonError]]:
    """The theme in a file, with `base` filled in, and its faults: with any it must not be used."""
    given = file.values
    base = bases.get(given["base"]) if isinstance(given.get("base"), str) else None
    roles = given.get("roles", {})
    theme = Theme(
        name=clean(file.path.stem, 60),
        roles={**(base.roles if base else {}), **(_flat(roles) if isinstance(roles, dict) else {})},
        dark=given.get("dark", base.dark if base else True),
        ansi=given.get("ansi", base.ansi if base else False),
    )
    faults = []

    def fault(key: Keys, what: str, fix: str = "") -> None:
        faults.append(file.problem(key, what, fix))

    for name in given:
        if name not in _SETTINGS:
            what = f'a theme has no "{clean(name, 60)}"'
            fault((name,), what, did_you_mean(name, _SETTINGS) or "colours belong under [roles]")
    for name in ("dark", "ansi"):
        if not isinstance(given.get(name, False), bool):
            fault((name,), f"{name} is neither true nor false")
    if "base" in given and base is None:
        written = as_written(given["base"])
        fix = did_you_mean(written, bases) or f"a base is one of {', '.join(bases)}"
        fault(("base",), f"base cannot be {written}", fix)
    if not isinstance(roles, dict):
        fault(("roles",), "roles is not a table", 'write [roles], then: accent = "#7cb7ff"')
    for role, colour in theme.roles.items():
        key = ("roles", *role.split("."))
        if role not in ROLES:
            fault(key, f'there is no role "{clean(role, 60)}"', did_you_mean(role, ROLES))
        elif not isinstance(colour, str) or not _is_colour(colour, theme.ansi):
            fault(key, f"{role} cannot be {as_written(colour)}", _colour_help(theme.ansi))
    if "base" not in given and (missing := [role for role in ROLES if role not in theme.roles]):
        fault(("roles",), f"no colour for {', '.join(missing)}", 'or add base = "roofmon-dark"')
    return theme, faults


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Roles by their full name: TOML reads `roof.memory = …` as a table `roof`."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": colour for inner, colour in value.items()}
        else:
            flat[name] = value
    return flat


def _is_colour(text: str, ansi: bool) -> bool:
    return text in ANSI_COLOURS if ansi else _RGB.fullmatch(text) is not None


def _colour_help(ansi: bool) -> str:
    return f"one of {', '.join(ANSI_COLOURS)}" if ansi else 'write it as "#rrggbb"'
