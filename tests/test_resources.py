import os
import stat
from pathlib import Path

import pytest

from roofmon import resources
from roofmon.errors import RoofmonError

ROOT = Path(__file__).parent.parent


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_checkout_holds_the_probes() -> None:
    assert resources.probes_dir() == ROOT / "probes"
    assert resources.themes_dir() == ROOT / "themes"


def test_an_override_wins_over_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_variable, by_argument = tmp_path / "v", tmp_path / "a"
    by_variable.mkdir()
    by_argument.mkdir()
    monkeypatch.setenv("ROOFMON_PROBES", str(by_variable))
    assert resources.probes_dir() == by_variable
    assert resources.probes_dir(by_argument) == by_argument
    monkeypatch.setenv("ROOFMON_PROBES", str(tmp_path / "none"))
    with pytest.raises(RoofmonError, match=r"none is not a directory; .*ROOFMON_PROBES"):
        resources.probes_dir()


@pytest.mark.parametrize(
    ("variable", "directory"),
    [
        ("XDG_CONFIG_HOME", resources.config_dir),
        ("XDG_CACHE_HOME", resources.cache_dir),
        ("XDG_DATA_HOME", resources.data_dir),
    ],
)
def test_xdg_variables_are_honoured(
    variable: str, directory: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    assert callable(directory)
    assert directory() == tmp_path / "roofmon"


def test_the_log_is_none_where_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert resources.log_path() == tmp_path / "state/roofmon/roofmon.log"
    assert (tmp_path / "state/roofmon").is_dir()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert resources.log_path() is None


def test_the_runtime_directory_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert resources.runtime_dir() == tmp_path / "roofmon"
    assert mode(tmp_path / "roofmon") == 0o700
    (tmp_path / "roofmon").chmod(0o770)
    with pytest.raises(RoofmonError, match="chmod 700"):
        resources.runtime_dir()


def test_the_runtime_directory_is_not_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "roofmon").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RoofmonError, match="not a private directory"):
        resources.runtime_dir()


def test_without_xdg_the_runtime_directory_bears_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert resources.runtime_dir() == tmp_path / f"roofmon-{os.getuid()}"


def test_private_files_are_private_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    resources.write_private(path, b"first")
    resources.write_private(path, b"second")
    assert path.read_bytes() == b"second"
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_writing_replaces_a_link_and_leaves_its_target(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"theirs")
    link.symlink_to(target)
    resources.write_private(link, b"ours")
    assert target.read_bytes() == b"theirs"
    assert link.read_bytes() == b"ours"
    assert not link.is_symlink()


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    with pytest.raises(OSError, match="directory"):
        resources.write_private(tmp_path / "target", b"data")
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]


def test_reading_is_limited_to_small_regular_files(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert resources.read_limited(file, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        resources.read_limited(file, 4)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="link"):
        resources.read_limited(tmp_path / "link", 5)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        resources.read_limited(tmp_path / "pipe", 5)
