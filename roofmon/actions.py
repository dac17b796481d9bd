"""Everything a key can do: one registry, from which bindings, footer and help are made.

Data only, so that settings can be checked (and written out) without a screen. `Ctrl-C` always ends the
program; it is the screen's own and not in here, so that no remapping can take it away.
"""

import re
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from roofmon.errors import ExitCode, RoofmonError
from roofmon.tomlfile import did_you_mean
from roofmon.units import clean

if TYPE_CHECKING:
    from roofmon.config import Config, KeySetting

RESERVED = "ctrl+c"

Context = Literal["everywhere", "main"]
"""Where an action can be used: on every screen, or on the main one with its panels."""


class Action(msgspec.Struct, frozen=True):
    """What one or more keys do.

    `id` is what `[keys]` in the settings calls it. Keys are written as the character that they type, or by
    name (`enter`, `pageup`, `ctrl+s`). `title` is the footer's word, `description` the line of the help.
    `footer` orders the footer, lowest first; None leaves an action to the help.
    """

    id: str
    keys: tuple[str, ...]
    title: str
    description: str
    footer: int | None = None
    context: Context = "everywhere"


_main = partial(Action, context="main")

ACTIONS: tuple[Action, ...] = (
    Action("quit", ("q",), "quit", "End roofmon; the traced programs run on", footer=1),
    Action("help", ("?",), "help", "Show all keys, and what the screen means", footer=2),
    Action("back", ("escape",), "back", "Leave this view, or clear the filter; never ends roofmon"),
    Action("pause", ("p",), "pause", "Stop the screen where it is, or let it run on", footer=7),
    Action("theme", ("T",), "theme", "Go to the next theme"),
    Action("down", ("j", "down"), "down", "Select the next kernel, or scroll down"),
    Action("up", ("k", "up"), "up", "Select the previous kernel, or scroll up"),
    Action("first", ("g", "home"), "first", "Go to the first kernel, or to the top"),
    Action("last", ("G", "end"), "last", "Go to the last kernel, or to the end"),
    Action("page-down", ("pagedown",), "page down", "Go down by a page"),
    Action("page-up", ("pageup",), "page up", "Go up by a page"),
    Action(
        "precision",
        ("w",),
        "precision",
        "Take unclear tensor work as the next precision, or as unknown",
    ),
    _main("drill", ("enter",), "drill", "Show all that is known about the kernel", footer=3),
    _main("filter", ("/",), "filter", "Show kernels by a text in the name; !TEXT: regex", footer=4),
    _main("baseline", ("b",), "base", "Keep the present state as the baseline", footer=5),
    _main("difference", ("d",), "diff", "Show what changed since the baseline", footer=6),
    _main("full-screen", ("z",), "full", "Give the panel the whole screen, or undo it", footer=8),
    _main("next-panel", ("tab",), "panel", "Go to the next panel", footer=9),
    _main("previous-panel", ("shift+tab",), "panel", "Go to the previous panel"),
    _main("panel-chart", ("1",), "chart", "Go to the chart"),
    _main("panel-kernels", ("2",), "kernels", "Go to the table of kernels"),
    _main("panel-checklist", ("3",), "checklist", "Go to the checklist"),
    _main("panel-device", ("4",), "device", "Go to the device and its sources"),
    _main("panel-devices", ("5",), "devices", "Go to the overview of all devices"),
    _main("panel-output", ("6",), "output", "Go to the output of the program that was run"),
    _main("sort-left", (",",), "sort", "Sort by the column to the left"),
    _main("sort-right", (".",), "sort", "Sort by the column to the right", footer=10),
    _main("reverse", ("r",), "reverse", "Turn the order round"),
    _main("previous-device", ("[",), "device", "Show the previous device"),
    _main("next-device", ("]",), "device", "Show the next device"),
    _main("zoom-in", ("+",), "zoom in", "Show a smaller part of the chart"),
    _main("zoom-out", ("-",), "zoom out", "Show a larger part of the chart"),
    _main("zoom-reset", ("0",), "zoom all", "Show all of the chart"),
    _main("current-clock", ("c",), "clock", "Add the roofs at the clock of this moment, or not"),
    _main("programs", ("a",), "attach", "Show the programs that can be traced; attach or detach"),
    _main("detach", ("D",), "detach", "Detach from all traced programs"),
    _main("reset", ("R",), "reset", "Begin the statistics of all kernels anew"),
    _main(
        "calibrate", ("C",), "calibrate", "Measure the roofs again, or stop measuring; asks first"
    ),
)

_ALIASES = {
    "esc": "escape",
    "return": "enter",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "del": "delete",
}
_LABELS = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "delete": "Del"}
_NAMES = (
    *("enter", "escape", "tab", "space", "backspace", "delete", "insert"),
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown"),
    *(f"f{number}" for number in range(1, 13)),
)
_CTRL_CHARACTER = re.compile(r"ctrl\+[a-z]")


def canonical_key(written: str) -> str | None:
    """The one spelling of a key: `PgUp` → `pageup`, `Ctrl+S` → `ctrl+s`; None if there is no such key.

    A character stands for itself, capital or not; names and modifiers are taken in any case.
    """
    if len(written) == 1:
        return written if written.isprintable() and not written.isspace() else None
    *modifiers, name = written.casefold().replace("-", "+").split("+")
    key = "+".join([*modifiers, _ALIASES.get(name, name)])
    if modifiers in ([], ["ctrl"], ["shift"]) and key.split("+")[-1] in _NAMES:
        return key
    return key if _CTRL_CHARACTER.fullmatch(key) else None


def key_label(key: str) -> str:
    """A key as footer and help show it: `pageup` → `PgUp`, `shift+tab` → `Shift-Tab`."""
    if len(key) == 1:
        return key
    return "-".join(_LABELS.get(part, part.capitalize()) for part in key.split("+"))


def keymap(config: "Config") -> tuple[dict[str, tuple[str, ...]], list[RoofmonError]]:
    """The keys of every action, by id, with the settings' `[keys]` applied, and what was wrong there.

    A key belongs to one action. Between two settings the first one keeps it; against a default the setting
    wins, and says which action lost a key.
    """
    problems: list[RoofmonError] = []
    ids = [action.id for action in ACTIONS]
    owner: dict[str, str] = {}  # key → the action that the settings give it to
    remapped: dict[str, tuple[str, ...]] = {}
    for action_id, setting in config.keys.items():
        if action_id not in ids:
            what = f'there is no action "{clean(action_id, 60)}"'
            problems.append(_problem(setting, what, did_you_mean(action_id, ids)))
            continue
        good = _usable(setting, problems)
        for key in good:
            if owner.setdefault(key, action_id) != action_id:
                what = f'"{key}" is already the key of {owner[key]}; {action_id} goes without it'
                problems.append(_problem(setting, what, "give it another key"))
        mine = tuple(key for key in good if owner[key] == action_id)
        if mine or not setting.keys:
            remapped[action_id] = mine
    keys = dict(remapped)
    for action in ACTIONS:
        if action.id in remapped:
            continue
        keys[action.id] = tuple(key for key in action.keys if key not in owner)
        for key in action.keys:
            if key in owner:
                what = f'"{key}" is a key of {action.id} as well, which loses it'
                fix = f"give {action.id} keys of its own in [keys]"
                problems.append(_problem(config.keys[owner[key]], what, fix))
    return keys, problems


def _usable(setting: "KeySetting", problems: list[RoofmonError]) -> list[str]:
    """The keys of a setting that exist and may be used, each once."""
    usable: dict[str, None] = {}
    for written in setting.keys:
        key = canonical_key(written)
        shown = clean(written, 30)
        if key is None:
            fix = did_you_mean(written, _NAMES) or 'write a character, or "enter", "ctrl+s", "f2"'
            problems.append(_problem(setting, f'there is no key "{shown}"', fix))
        elif key == RESERVED:
            problems.append(_problem(setting, f'"{key}" always ends roofmon', "choose another key"))
        else:
            usable[key] = None
    return list(usable)


def _problem(setting: "KeySetting", what: str, fix: str) -> RoofmonError:
    return RoofmonError(f"{setting.place}: {what}", fix, ExitCode.USAGE)
