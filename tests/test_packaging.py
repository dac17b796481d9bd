"""What a user installs: the wheel holds what it must and nothing else, and works away from the checkout."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from roofmon import __version__

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and source distribution; the wheel is built from the source distribution, as pip would."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.fixture(scope="module")
def installed(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that holds the wheel and what it depends on."""
    environment = tmp_path_factory.mktemp("away") / "env"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    (wheel,) = distributions.glob("*.whl")
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run([str(environment / "bin" / "python"), *install], check=True)
    return environment / "bin"


def run(command: list[str], home: Path) -> str:
    """The output of a command run in an empty home, far from the checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "PYTHON"))}
    result = subprocess.run(
        command,
        cwd=home,
        env={**environment, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_wheel_holds_the_package_its_data_and_the_licence(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    assert wheel.name == f"roofmon-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"roofmon-{__version__}.dist-info/METADATA").decode()
    for folder in ("probes", "themes"):
        data = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        assert data
        for path in data:
            assert f"roofmon/_bundled/{path.relative_to(ROOT)}" in names
    for path in (ROOT / "roofmon").rglob("*.py"):
        assert str(path.relative_to(ROOT)) in names
    sources = list((ROOT / "roofmon" / "tracing" / "inject").glob("*.[ch]"))
    assert sources
    assert {str(path.relative_to(ROOT)) for path in sources} <= names
    assert f"roofmon-{__version__}.dist-info/licenses/LICENSE" in names
    assert {name.split("/")[0] for name in names} == {
        "roofmon",
        f"roofmon-{__version__}.dist-info",
    }
    assert "License-Expression: Apache-2.0" in metadata


def test_the_source_distribution_can_be_built_and_tested_from(distributions: Path) -> None:
    (source,) = distributions.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "Makefile", "LICENSE", "README.md", "CHANGELOG.md"} <= names
    assert {"tests/test_packaging.py", "themes/roofmon-dark.toml", "roofmon/region.py"} <= names
    assert not [name for name in names if name.endswith((".whl", ".pyc"))]


def test_the_command_works_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    roofmon = str(installed / "roofmon")
    assert run([roofmon, "--version"], tmp_path) == f"roofmon {__version__}\n"
    printed = run([roofmon, "config", "print"], tmp_path)
    assert 'theme = "roofmon-dark"' in printed
    probes = run([roofmon, "calibrate", "--list"], tmp_path)
    assert "triad" in probes


def test_bundled_data_is_found_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    program = (
        "from roofmon.resources import themes_dir\n"
        "from roofmon.themes import load_themes\n"
        "themes, problems = load_themes()\n"
        "print(len(themes), len(problems), themes_dir())"
    )
    themes, problems, folder = run([str(installed / "python"), "-c", program], tmp_path).split()
    assert (int(themes), problems) == (len(list((ROOT / "themes").glob("*.toml"))), "0")
    assert Path(folder).is_relative_to(installed.parent)
