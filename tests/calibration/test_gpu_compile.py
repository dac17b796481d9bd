"""Compiling probes with NVRTC, and keeping what came out. Needs CuPy and NVRTC, but no GPU."""

import stat
from pathlib import Path
from typing import Any

import pytest

from roofmon.calibration.gpu_compile import Compiler, first_error
from roofmon.calibration.manifest import load_probes
from roofmon.errors import RoofmonError
from roofmon.model.session import Notice
from roofmon.resources import cache_dir, probes_dir

SOURCE = 'extern "C" __global__ void f(int* a) { *a = 1; }\n'


@pytest.fixture
def cupy(own_directories: Path) -> Any:
    cupy = pytest.importorskip("cupy")
    try:
        Compiler(cupy, (9, 0), 13000)
    except RoofmonError as error:
        pytest.skip(str(error))
    return cupy


def files() -> list[Path]:
    return sorted((cache_dir() / "cubins").glob("*"))


def test_every_bundled_source_compiles(cupy: Any) -> None:
    compiler = Compiler(cupy, (9, 0), 13000)
    sources = {p.code: p.source_text for p in load_probes([probes_dir()])[0] if p.code}
    for name, source in sources.items():
        assert compiler.image(source, name or "").startswith(b"\x7fELF"), name
    assert len(files()) == len(sources)


def test_the_second_time_it_is_read_and_not_compiled(cupy: Any) -> None:
    image = Compiler(cupy, (9, 0), 13000).image(SOURCE, "f.cu")
    (path,) = files()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    written = path.stat().st_mtime_ns
    # A name that cannot be compiled under: it is not looked at.
    assert Compiler(cupy, (9, 0), 13000).image(SOURCE, "") == image
    assert path.stat().st_mtime_ns == written


@pytest.mark.parametrize("change", ["source", "architecture", "driver"])
def test_what_it_depends_on_is_in_its_name(cupy: Any, change: str) -> None:
    Compiler(cupy, (9, 0), 13000).image(SOURCE, "f.cu")
    capability = (8, 0) if change == "architecture" else (9, 0)
    driver = 13010 if change == "driver" else 13000
    source = SOURCE + ("// changed\n" if change == "source" else "")
    Compiler(cupy, capability, driver).image(source, "f.cu")
    assert len(files()) == 2


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", None])
def test_a_damaged_cubin_costs_a_notice_and_a_compilation(cupy: Any, damage: bytes | None) -> None:
    image = Compiler(cupy, (9, 0), 13000).image(SOURCE, "f.cu")
    (path,) = files()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if damage is None else damage)
    notices: list[Notice] = []
    assert Compiler(cupy, (9, 0), 13000, notices.append).image(SOURCE, "f.cu") == image
    assert [notice.severity for notice in notices] == ["warning"]
    assert str(path) in notices[0].what
    assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_one_notice(cupy: Any) -> None:
    cache_dir().parent.mkdir(parents=True, exist_ok=True)
    cache_dir().write_text("a file where the directory should be")
    notices: list[Notice] = []
    compiler = Compiler(cupy, (9, 0), 13000, notices.append)
    for name in ("f.cu", "g.cu"):
        assert compiler.image(SOURCE + f"// {name}", name).startswith(b"\x7fELF")
    assert len(notices) == 1


def test_the_first_error_is_told_with_file_and_line(cupy: Any) -> None:
    with pytest.raises(RoofmonError, match=r'^my\.cu:2: error: identifier "b" is undefined'):
        Compiler(cupy, (9, 0), 13000).image("\n" + SOURCE.replace("*a", "*b"), "my.cu")
    assert files() == []


def test_a_gpu_that_this_nvrtc_does_not_know_gets_ptx_or_a_word(cupy: Any) -> None:
    ptx = Compiler(cupy, (99, 0), 13000).image(SOURCE, "f.cu")
    assert b".target sm_" in ptx
    with pytest.raises(RoofmonError, match=r"does not know compute capability 1\.0"):
        Compiler(cupy, (1, 0), 13000)


def test_the_first_error_of_a_log() -> None:
    log = 'a.cu(3): warning #177-D: unused\na.cu(7): error: expected a ";"\na.cu(9): error: b\n'
    assert first_error(log) == 'a.cu:7: error: expected a ";"'
    assert first_error("a.h(2): catastrophic error: cannot open") == "a.h:2: error: cannot open"
    assert first_error("nothing of that kind") == ""
