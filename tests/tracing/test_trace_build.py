"""Compiling the injected library on first use."""

import ctypes
import os
import shutil
import stat
from pathlib import Path

import pytest

from roofmon.errors import RoofmonError
from roofmon.tracing.inject import build


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def put_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Makes `script` the only compiler there is."""
    folder.mkdir()
    if script:
        (folder / "cc").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.slow
def test_library_is_compiled_once_and_privately(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc)")
    library = build.library_path()
    assert library.is_relative_to(cache)
    assert stat.S_IMODE(library.stat().st_mode) == 0o700
    assert stat.S_IMODE(library.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in library.parent.iterdir()] == [library.name]
    assert ctypes.CDLL(str(library)).InitializeInjection
    put_compiler(tmp_path / "bin", monkeypatch, "exit 1")
    assert build.library_path() == library  # without the compiler


def test_library_that_others_could_write_to_is_replaced(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'while [ $# -gt 0 ]; do [ "$1" = -o ] && echo made > "$2"; shift; done; exit 0'
    put_compiler(tmp_path / "bin", monkeypatch, script)
    library = build.library_path()
    library.write_text("kept")
    assert build.library_path().read_text() == "kept"  # only this user could have
    library.chmod(0o722)
    assert build.library_path().read_text() == "made\n"
    library.rename(tmp_path / "target")
    library.symlink_to(tmp_path / "target")
    assert not build.library_path().is_symlink()


def test_no_compiler_is_told(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_compiler(tmp_path / "bin", monkeypatch, "")
    with pytest.raises(RoofmonError, match="needs a C compiler once, and none of cc") as told:
        build.library_path()
    assert "apt install gcc" in told.value.fix


def test_compiler_that_fails_is_told_with_its_words(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo 'a.c: note: x' >&2; echo 'a.c:1: fatal error: stdio.h: No such file' >&2; exit 1"
    put_compiler(tmp_path / "bin", monkeypatch, script)
    with pytest.raises(RoofmonError, match=r"cannot compile .* stdio\.h: No such file") as told:
        build.library_path()
    assert "\n" not in told.value.what
    assert not list(cache.rglob("*.so"))


def test_compiler_that_makes_nothing_is_told(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_compiler(tmp_path / "bin", monkeypatch, "exit 0")
    with pytest.raises(RoofmonError, match="cannot compile"):
        build.library_path()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_cache_that_cannot_be_written_is_told(cache: Path) -> None:
    cache.mkdir(mode=0o500)
    with pytest.raises(RoofmonError, match="cannot be written to"):
        build.library_path()


def test_cache_that_is_a_file_is_told(cache: Path) -> None:
    cache.touch()
    with pytest.raises(RoofmonError, match="cannot be written to") as told:
        build.library_path()
    assert "XDG_CACHE_HOME" in told.value.fix
