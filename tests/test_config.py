"""Settings: precedence, and a fault in one of them costs that one and is told with its line."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmon.config import Config, KeySetting, config_as_toml, load_config
from roofmon.errors import ExitCode, RoofmonError
from roofmon.tomlfile import SIZE_LIMIT
from roofmon.units import clean


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "config.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def load(folder: Path, text: str | bytes) -> tuple[Config, list[str]]:
    config, problems = load_config(written(folder, text), {}, {})
    assert all(problem.exit_code == ExitCode.USAGE for problem in problems)
    return config, [str(problem) for problem in problems]


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    config, problems = load(tmp_path, "")
    assert (config.theme, config.refresh_hz, config.unicode) == ("roofmon-dark", 2.0, "auto")
    assert problems == []


def test_file_then_variables_then_flags(tmp_path: Path) -> None:
    path = written(tmp_path, 'theme = "file"\nrefresh_hz = 1\nlevel = "llc"\n')
    env = {"ROOFMON_THEME": "variable", "ROOFMON_REFRESH_HZ": "0.5", "HOME": "/nowhere"}
    config, problems = load_config(path, env, {"theme": "flag", "unicode": None})
    assert problems == []
    assert (config.theme, config.refresh_hz, config.level) == ("flag", 0.5, "llc")
    assert config.unicode == "auto"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('\n\ntheem = "x"\n', ['config.toml:3: there is no setting "theem"', 'mean "theme"']),
        ("refresh_hz = 50", ["config.toml:1: refresh_hz cannot be 50", "from 0.2 to 10"]),
        ("refresh_hz = nan", ["config.toml:1: refresh_hz cannot be NaN", "a number"]),
        ("refresh_hz = true", ["refresh_hz cannot be true"]),
        ('refresh_hz = "2"', ['refresh_hz cannot be "2"']),
        ('# x\nunicode = "of"', ["config.toml:2", '"auto", "on", "off"', 'did you mean "off"']),
        ("unicode = 2026-01-01", ['unicode cannot be "2026-01-01"']),
        ("record_limit_mib = 0", ["a whole number from 1 to 1048576"]),
        ("device = 0", ["device cannot be 0: text in quotes"]),
        ("[theme]\na = 1", ["config.toml:1: theme cannot be a table: text in quotes"]),
        ("keys = 3", ["config.toml:1: keys is not a table"]),
        ("[keys]\nquit = 3", ["config.toml:2", 'keys of "quit" are neither']),
        ('keys = {quit = ["q", 1]}', ["config.toml:1", 'keys of "quit"']),
        ('"th\\u001beme" = 1', ['there is no setting "th eme"']),
    ],
)
def test_one_fault_is_told_with_its_place_and_the_rest_loads(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    good = 'level = "l2"\n'  # in front: below, it would belong to whatever table the text opens
    config, problems = load(tmp_path, text)
    assert len(problems) == 1
    for part in expected:
        assert part in problems[0]
    assert "\x1b" not in problems[0]
    assert config == Config()
    both, problems = load(tmp_path, good + text)
    assert both.level == "l2"
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'theme = "a"\ntheme = "b"\n',
            ":2: not TOML: Cannot overwrite a value; the line is: theme",
        ),
        ("a = 1\nrefresh_hz = = 2\n", ":2: not TOML: Invalid value; the line is: refresh_hz = = 2"),
        ('theme = "a', ":1: not TOML"),
        ("a = [1,\n2,\n", ":2: not TOML"),
        (b'theme = "\xff"', ":1: not UTF-8 text"),
        (b"a = 1\n\n# \xe9\n", ":3: not UTF-8 text"),
        ("#" * (SIZE_LIMIT + 1), "larger than 64 KiB"),
        ("a = " + "[" * 9000, "not TOML"),
        ("x\x1b[31m = 1", ":1: not TOML"),
    ],
)
def test_a_file_that_is_not_toml_leaves_the_defaults(
    tmp_path: Path, text: str | bytes, expected: str
) -> None:
    config, problems = load(tmp_path, text)
    assert config == Config()
    assert len(problems) == 1
    assert f"{tmp_path / 'config.toml'}" in problems[0]
    assert expected in problems[0]
    assert problems[0] == clean(problems[0], 10**6)  # no control characters


def test_deeply_nested_values_are_only_a_bad_value(tmp_path: Path) -> None:
    _, problems = load(tmp_path, f"theme{'.a' * 2000} = 1")
    assert len(problems) == 1
    assert "theme cannot be a table" in problems[0]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    _, missing = load_config(tmp_path / "typo.toml", {}, {})
    assert [p.what for p in missing] == [
        f"cannot read {tmp_path / 'typo.toml'}: No such file or directory"
    ]
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    _, not_regular = load_config(pipe, {}, {})
    assert "not a regular file" in not_regular[0].what
    _, folder = load_config(tmp_path, {}, {})
    assert str(tmp_path) in folder[0].what


def test_the_file_in_the_configuration_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "roofmon").mkdir()
    target = written(tmp_path, 'theme = "mine"')
    (tmp_path / "roofmon" / "config.toml").symlink_to(target)  # a dotfile kept elsewhere
    config, problems = load_config(None, {}, {})
    assert (config.theme, problems) == ("mine", [])
    target.unlink()
    _, problems = load_config(None, {}, {})
    assert [p.what.partition(": ")[2] for p in problems] == ["No such file or directory"]


def test_bad_variables_are_told_and_bad_flags_refused() -> None:
    config, problems = load_config(None, {"ROOFMON_REFRESH_HZ": "fast"}, {})
    assert config.refresh_hz == 2.0
    assert [p.what for p in problems] == [
        'ROOFMON_REFRESH_HZ cannot be "fast": a number from 0.2 to 10'
    ]
    with pytest.raises(RoofmonError, match="--refresh-hz cannot be") as error:
        load_config(None, {}, {"refresh_hz": "fast"})
    assert error.value.exit_code == ExitCode.USAGE


def test_keys_know_where_they_were_written(tmp_path: Path) -> None:
    config, problems = load(tmp_path, '[keys]\nquit = "Q"\n\npause = ["f2", "space"]\n')
    place = tmp_path / "config.toml"
    assert problems == []
    assert config.keys == {
        "quit": KeySetting(("Q",), f"{place}:2"),
        "pause": KeySetting(("f2", "space"), f"{place}:4"),
    }


def test_printed_settings_read_back_as_the_same(tmp_path: Path) -> None:
    text = (
        'theme = "é \\" \\\\"\nrefresh_hz = 0.5\nunicode = "off"\n[keys]\nquit = "Q"\nhelp = []\n'
    )
    config, _ = load(tmp_path, text)
    printed = config_as_toml(config)
    again, problems = load(tmp_path, printed)
    assert problems == []
    assert {name: s.keys for name, s in again.keys.items()} == {"quit": ("Q",), "help": ()}
    assert (again.theme, again.refresh_hz, again.unicode) == ('é " \\', 0.5, "off")


def test_printed_settings_explain_each_of_them() -> None:
    lines = config_as_toml(Config()).splitlines()
    for name in Config.__struct_fields__:
        at = next(
            number
            for number, line in enumerate(lines)
            if line.startswith(f"{name} = ") or line == f"[{name}]"
        )
        assert lines[at - 1].startswith("# "), f"{name} has no docstring"
    assert '# quit = ["q"]' in lines
    assert max(map(len, lines)) <= 100


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=200) | st.text("abtheme_keys.\"'=[]{}\n#1", max_size=80))
def test_no_text_at_all_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    data = text.encode("utf-8", "surrogatepass")
    config, problems = load_config(written(tmp_path_factory.mktemp("fuzz"), data), {}, {})
    assert isinstance(config, Config)
    assert all(str(problem) == clean(str(problem), 10**6) for problem in problems)
