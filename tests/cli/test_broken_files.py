"""Broken files of the user cost what they are about and are named with line and key."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
pytestmark = pytest.mark.slow


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    directory = tmp_path / ".config" / "roofmon"
    directory.mkdir(parents=True)
    return directory


def test_a_broken_configuration(roofmon: Run, settings: Path) -> None:
    (settings / "config.toml").write_text('refresh_hz = 1\nthmee = "x"\n')
    result = roofmon("--json", "--seconds", "0.3")
    assert result.returncode == 0, result.stderr
    json.loads(result.stdout)
    line = next(x for x in result.stderr.splitlines() if "config.toml" in x)
    assert "2" in line
    assert "thmee" in line
    assert "theme" in line.replace("thmee", "")


def test_a_broken_probe_is_named_and_the_good_ones_measure(
    roofmon: Run, environment: dict[str, str]
) -> None:
    probes = Path(environment["ROOFMON_PROBES"])
    (probes / "bad.toml").write_text('name = "bad"\nkind = "bandwith"\n')
    result = roofmon("calibrate", "--json")
    assert result.returncode == 0, result.stderr
    assert [m["probe"] for m in json.loads(result.stdout)["measurements"]] == ["copy"]
    assert "bad.toml" in result.stderr
    assert "Traceback" not in result.stderr
    listed = roofmon("calibrate", "--list")
    assert listed.returncode == 2
    assert "copy" in listed.stdout


def test_a_probe_of_the_user_is_measured_like_ours(
    roofmon: Run, settings: Path, environment: dict[str, str]
) -> None:
    own = settings / "probes"
    own.mkdir()
    text = (Path(environment["ROOFMON_PROBES"]) / "copy.toml").read_text()
    (own / "mine.toml").write_text(text.replace('name = "copy"', 'name = "mine"'))
    result = roofmon("calibrate", "--json")
    assert {m["probe"] for m in json.loads(result.stdout)["measurements"]} == {"copy", "mine"}


def test_doctor_names_every_broken_file(roofmon: Run, settings: Path) -> None:
    (settings / "themes").mkdir()
    (settings / "themes" / "loud.toml").write_text("axis = \n")
    (settings / "config.toml").write_text("unicode = 7\n")
    result = roofmon("doctor")
    assert result.returncode == 1
    assert "loud.toml" in result.stdout
    assert "config.toml" in result.stdout


def test_a_cache_that_cannot_be_written_is_told_and_costs_nothing_else(
    roofmon: Run, tmp_path: Path
) -> None:
    (tmp_path / ".cache").write_text("a file where a folder should be")
    result = roofmon("calibrate", "--json")
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)["measurements"]) == 1
    assert ".cache" in result.stderr or "kept" in result.stderr


def test_a_corrupt_cache_is_told_and_measured_anew(roofmon: Run, tmp_path: Path) -> None:
    first = roofmon("calibrate", "--json")
    assert first.returncode == 0, first.stderr
    cached = list((tmp_path / ".cache" / "roofmon").rglob("*.json"))
    if not cached:
        pytest.skip("the machine is busy: contended roofs are not kept")
    for path in cached:
        path.write_text("{")
    result = roofmon("--json", "--seconds", "0.3")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["devices"][0]["roofline"]["ceilings"]
    assert any(cached[0].name in n["what"] for n in document["notices"])


def test_no_probes_at_all(roofmon: Run, environment: dict[str, str]) -> None:
    shutil.rmtree(environment["ROOFMON_PROBES"])
    result = roofmon("--json", "--seconds", "0.3")
    assert "Traceback" not in result.stderr
    assert json.loads(result.stdout)["devices"]
