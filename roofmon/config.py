"""Settings: `$XDG_CONFIG_HOME/roofmon/config.toml`, then `ROOFMON_*` variables, then flags.

A fault in the file or in a variable costs that one setting and is told with its place; the rest loads. A
bad flag is refused instead, since whoever typed it is waiting for exactly that. `Config` is a value that is
handed to who needs it; nothing reads settings from a global.
"""

import ast
import inspect
import json
import os
import textwrap
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from roofmon.actions import ACTIONS
from roofmon.errors import ExitCode, RoofmonError
from roofmon.resources import config_dir
from roofmon.tomlfile import TomlFile, as_written, did_you_mean, read_toml
from roofmon.units import clean

DEFAULT_THEME = "roofmon-dark"
_PREFIX = "ROOFMON_"
_COMMENT_WIDTH = 98


class KeySetting(msgspec.Struct, frozen=True):
    """The keys that a file gives to one action, and where it says so (`FILE:LINE`)."""

    keys: tuple[str, ...]
    place: str = ""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. Their documentation here is what `roofmon config print` writes beside them."""

    theme: str = DEFAULT_THEME
    """Name of a theme: one of roofmon's own, or NAME.toml in the folder `themes` beside this file."""

    refresh_hz: Annotated[float, Meta(ge=0.2, le=10)] = 2.0
    """How often the screen is brought up to date, in Hz, from 0.2 to 10."""

    unicode: Literal["auto", "on", "off"] = "auto"
    """Whether braille and the like are drawn, or ASCII alone; auto goes by the terminal's encoding."""

    device: str = "auto"
    """The device shown first: cpu, a GPU's number or UUID, or auto for the first GPU, else the CPU."""

    level: Literal["auto", "dram", "llc", "l2", "l1"] = "auto"
    """The memory level whose intensities the chart shows; auto takes for each kernel the one that binds."""

    record_limit_mib: Annotated[int, Meta(ge=1, le=2**20)] = 1024
    """A recording ends, with a notice, when its file reaches this size in MiB."""

    keys: Mapping[str, KeySetting] = types.MappingProxyType({})
    """Keys by action: one ("x", "ctrl+s", "pageup"), several as a list, or none ([])."""


_TYPES: dict[str, Any] = get_type_hints(Config, include_extras=True)
_SCALARS = tuple(name for name in _TYPES if name != "keys")


def config_path() -> Path:
    """Where the settings file is looked for."""
    return config_dir() / "config.toml"


def load_config(
    path: Path | None, env: Mapping[str, str], flags: Mapping[str, Any]
) -> tuple[Config, list[RoofmonError]]:
    """The settings from file, variables and flags, the later ones winning, and what was wrong.

    Args:
        path: the file; None for `config_path()`, which need not exist.
        env: the environment; of it `ROOFMON_THEME` and the like count, for every setting but `keys`.
        flags: values by setting's name, as text or typed; None for a flag that was not given.

    Raises RoofmonError (exit code 2) for a bad value of a flag.
    """
    values: dict[str, Any] = {}
    problems: list[RoofmonError] = []
    chosen = path or config_path()
    if path is not None or os.path.lexists(chosen):  # a link to nowhere is worth telling
        try:
            file = read_toml(chosen)
        except RoofmonError as error:
            problems.append(error)
        else:
            values |= _from_file(file, problems)
    for name in _SCALARS:
        variable = _PREFIX + name.upper()
        if variable in env:
            try:
                values[name] = _convert(name, env[variable], variable, strict=False)
            except RoofmonError as error:
                problems.append(error)
    for name, value in flags.items():
        if value is not None:
            values[name] = _convert(name, value, f"--{name.replace('_', '-')}", strict=False)
    return Config(**values), problems


def config_as_toml(config: Config) -> str:
    """`config` as a settings file with a comment on everything; reading it back gives `config`."""
    documentation = _documentation()
    blocks = [
        f"{_comment(documentation[name])}\n{name} = {_toml(getattr(config, name))}"
        for name in _SCALARS
    ]
    remapped = {name: list(setting.keys) for name, setting in config.keys.items()}
    keys = [_comment(documentation["keys"]), "[keys]"]
    for action in ACTIONS:
        if action.id in remapped:
            keys.append(f"{action.id} = {_toml(remapped.pop(action.id))}")
        else:
            keys.append(f"# {action.id} = {_toml(list(action.keys))}")
    return "\n\n".join([*blocks, "\n".join(keys)]) + "\n"


def _from_file(file: TomlFile, problems: list[RoofmonError]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in file.values.items():
        try:
            if name == "keys":
                values["keys"] = _key_settings(file, value, problems)
            elif name in _SCALARS:
                values[name] = _convert(name, value, f"{file.place(name)}: {name}")
            else:
                what = f'there is no setting "{clean(name, 60)}"'
                raise file.problem((name,), what, did_you_mean(name, _TYPES))
        except RoofmonError as error:
            problems.append(error)
    return values


def _key_settings(
    file: TomlFile, table: Any, problems: list[RoofmonError]
) -> Mapping[str, KeySetting]:
    """Keys by action; whether such actions and keys exist is for `actions.keymap` to say."""
    if not isinstance(table, dict):
        raise file.problem(("keys",), "keys is not a table", 'write [keys], then: quit = "Q"')
    settings = {}
    for action, value in table.items():
        keys = [value] if isinstance(value, str) else value
        if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
            settings[action] = KeySetting(tuple(keys), file.place("keys", action))
        else:
            what = f'the keys of "{clean(action, 60)}" are neither a key nor a list of keys'
            problems.append(
                file.problem(("keys", action), what, f'write {action} = "x" or ["x", "f2"]')
            )
    return settings


def _convert(name: str, value: Any, source: str, strict: bool = True) -> Any:
    """`value` as the type of a setting. Raises RoofmonError that starts with `source`."""
    try:
        # NaN passes msgspec's bounds: every comparison with it is false.
        if isinstance(converted := msgspec.convert(value, _TYPES[name], strict=strict), str):
            return clean(converted)
        if converted == converted:  # noqa: PLR0124
            return converted
    except msgspec.ValidationError:
        pass
    given = as_written(value)
    what = f"{source} cannot be {given}: {_expected(name)}"
    choices = get_args(_TYPES[name]) if get_origin(_TYPES[name]) is Literal else ()
    raise RoofmonError(what, did_you_mean(given.strip('"'), choices), ExitCode.USAGE)


def _expected(name: str) -> str:
    annotation = _TYPES[name]
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(json.dumps(choice) for choice in get_args(annotation))
    if get_origin(annotation) is Annotated:
        base, bounds = get_args(annotation)
        kind = "a whole number" if base is int else "a number"
        return f"{kind} from {bounds.ge} to {bounds.le}"
    return "text in quotes"


def _documentation() -> dict[str, str]:
    """The docstring below each attribute of `Config`; Python itself keeps none of them."""
    (definition,) = ast.parse(inspect.getsource(Config)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        attribute.target.id: inspect.cleandoc(below.value.value)
        for attribute, below in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(attribute, ast.AnnAssign)
        and isinstance(attribute.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def _comment(text: str) -> str:
    return textwrap.fill(text, _COMMENT_WIDTH, initial_indent="# ", subsequent_indent="# ")


def _toml(value: object) -> str:
    # JSON's strings, lists and numbers are TOML as they stand.
    return json.dumps(value, ensure_ascii=False)
