"""The registry of actions is sound, and the settings' `[keys]` change it with every conflict told."""

from collections import Counter

import pytest

from roofmon.actions import ACTIONS, canonical_key, key_label, keymap
from roofmon.config import Config, KeySetting

DEFAULTS = {action.id: action.keys for action in ACTIONS}


def remapped(**keys: str | list[str]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The keymap and the problems with these `[keys]`, one a line from line 2 on."""
    settings = {
        action.replace("_", "-"): KeySetting(
            (written,) if isinstance(written, str) else tuple(written), f"config.toml:{line}"
        )
        for line, (action, written) in enumerate(keys.items(), start=2)
    }
    result, problems = keymap(Config(keys=settings))
    return result, [str(problem) for problem in problems]


def test_every_key_that_the_screen_promises_is_there() -> None:
    keys = {key for action in ACTIONS for key in action.keys}
    assert set("q?jkgG12345/,.rp[]zbdTcRC+-0") <= keys
    named = {"up", "down", "pageup", "pagedown", "tab", "enter", "escape"}
    assert named <= keys


def test_the_registry_is_sound() -> None:
    assert max(Counter(action.id for action in ACTIONS).values()) == 1
    assert max(Counter(key for action in ACTIONS for key in action.keys).values()) == 1
    footer = [action.footer for action in ACTIONS if action.footer is not None]
    assert len(footer) == len(set(footer))
    for action in ACTIONS:
        assert action.title
        assert action.description[0].isupper()
        assert all(canonical_key(key) == key for key in action.keys), action.id
    assert "escape" not in DEFAULTS["quit"]


def test_without_settings_the_defaults_hold() -> None:
    assert keymap(Config()) == (DEFAULTS, [])


def test_keys_can_be_given_taken_and_swapped() -> None:
    keys, problems = remapped(quit="Q", pause=["PgUp", "Ctrl+S"], page_up="f2", drill=[])
    assert problems == []
    assert keys["quit"] == ("Q",)
    assert keys["pause"] == ("pageup", "ctrl+s")
    assert keys["page-up"] == ("f2",)
    assert keys["drill"] == ()
    swapped, problems = remapped(quit="p", pause="q")
    assert (swapped["quit"], swapped["pause"], problems) == (("p",), ("q",), [])


def test_a_setting_wins_over_a_default_and_says_who_lost() -> None:
    keys, problems = remapped(pause="j")
    assert keys["pause"] == ("j",)
    assert keys["down"] == ("down",)
    assert problems == [
        'config.toml:2: "j" is a key of down as well, which loses it; '
        "give down keys of its own in [keys]"
    ]


def test_of_two_settings_the_first_keeps_the_key() -> None:
    keys, problems = remapped(pause="x", quit=["x", "Q"], help="x")
    assert (keys["pause"], keys["quit"], keys["help"]) == (("x",), ("Q",), ("?",))
    assert problems == [
        'config.toml:3: "x" is already the key of pause; quit goes without it; give it another key',
        'config.toml:4: "x" is already the key of pause; help goes without it; give it another key',
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("entre", 'there is no key "entre"; did you mean "enter"?'),
        ("ctrl+1", 'there is no key "ctrl+1"'),
        ("", 'there is no key ""'),
        ("ctrl+C", '"ctrl+c" always ends roofmon'),
        ("\x1b", 'there is no key " "'),
    ],
)
def test_a_key_that_cannot_be_is_told_and_the_default_stays(written: str, expected: str) -> None:
    keys, problems = remapped(quit=written)
    assert keys == DEFAULTS
    assert len(problems) == 1
    assert problems[0].startswith(f"config.toml:2: {expected}")


def test_an_action_that_is_not_there_is_guessed() -> None:
    keys, problems = remapped(filtre="f")
    assert keys == DEFAULTS
    assert problems == ['config.toml:2: there is no action "filtre"; did you mean "filter"?']


@pytest.mark.parametrize(
    ("written", "canonical", "label"),
    [
        ("G", "G", "G"),
        ("-", "-", "-"),
        ("+", "+", "+"),
        ("PgDn", "pagedown", "PgDn"),
        ("Esc", "escape", "Esc"),
        ("Shift-Tab", "shift+tab", "Shift-Tab"),
        ("CTRL+S", "ctrl+s", "Ctrl-S"),
        ("F5", "f5", "F5"),
    ],
)
def test_keys_have_one_spelling_and_one_label(written: str, canonical: str, label: str) -> None:
    assert canonical_key(written) == canonical
    assert key_label(canonical) == label
    assert canonical_key(label) == canonical


@pytest.mark.parametrize(
    "written", ["ctrl+", "+ctrl", "ctrl+shift+x", "f13", "shift+a", "  ", "\n"]
)
def test_what_is_no_key_is_none(written: str) -> None:
    assert canonical_key(written) is None
