"""What the commands print and return, without a terminal."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvml_double import NvmlDouble
from nvml_scenarios import gpu_uuid, h200

Run = Callable[..., Any]


def test_help_names_every_command(roofmon: Run) -> None:
    result = roofmon("--help")
    assert result.returncode == 0
    for command in ("live", "demo", "calibrate", "record", "replay", "collect", "doctor", "config"):
        assert re.search(rf"^  {command} ", result.stdout, re.MULTILINE), command
        assert roofmon(command, "--help").returncode == 0


def test_a_word_that_is_no_command_is_wrong_usage(roofmon: Run) -> None:
    result = roofmon("dmeo")
    assert result.returncode == 2
    assert "dmeo" in result.stderr
    assert "Traceback" not in result.stderr


def test_json_is_all_there_is_on_stdout(roofmon: Run) -> None:
    result = roofmon("--json", "--seconds", "0.5")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == "roofmon.snapshot/1"
    [device] = document["devices"]
    [ceiling] = device["roofline"]["ceilings"]
    assert ceiling["kind"] == "bandwidth"
    assert ceiling["level"] == "dram"
    assert ceiling["ci_low"] <= ceiling["value"] <= ceiling["ci_high"]
    rungs = {r["rung"]: r for r in document["rungs"]}
    assert rungs["cpu"]["state"] == "active"
    assert rungs["nvml"]["state"] == "unavailable"
    assert rungs["nvml"]["reason"]
    assert "calibration" in result.stderr  # progress is told, but not on stdout


@pytest.mark.slow
def test_without_a_terminal_the_view_is_printed_once_and_says_so(roofmon: Run) -> None:
    result = roofmon()
    assert result.returncode == 0, result.stderr
    assert "terminal" in result.stderr
    assert "printing the view once" in result.stderr
    assert "DRAM" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.slow
def test_ascii_is_ascii(roofmon: Run) -> None:
    result = roofmon("--once", "--ascii", "--seconds", "0.5")
    assert result.returncode == 0, result.stderr
    assert result.stdout.isascii()


@pytest.mark.slow
def test_an_encoding_without_utf_8_gets_ascii(roofmon: Run) -> None:
    env = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    result = roofmon("--once", "--seconds", "0.5", env=env)
    assert result.returncode == 0, result.stderr
    assert result.stdout.isascii()
    assert "\\u" not in result.stdout


@pytest.mark.slow
def test_a_device_that_is_not_there_ends_the_command(roofmon: Run) -> None:
    result = roofmon("--json", "--device", "9", "--seconds", "0.2")
    assert result.returncode == 3
    assert result.stdout == ""
    assert "there is no device '9'; there are: " in result.stderr
    assert "cpu" in result.stderr.split("there are: ")[1]


@pytest.mark.slow
def test_calibrate_lists_and_measures(roofmon: Run) -> None:
    listed = roofmon("calibrate", "--list", "--json")
    assert [row["name"] for row in json.loads(listed.stdout)] == ["copy"]
    measured = roofmon("calibrate", "--json")
    assert measured.returncode == 0, measured.stderr
    [found] = json.loads(measured.stdout)["measurements"]
    assert found["value"] > 1e8
    assert found["n"] >= 1
    printed = roofmon("calibrate", env={"COLUMNS": "80", "PYTHONIOENCODING": "ascii"})
    assert printed.returncode == 0, printed.stderr
    lines = printed.stdout.splitlines()
    assert lines[0].split() == ["probe", "roof", "median", "95", "%", "?", "n", "clock"]
    assert "copy" in lines[1]
    assert max(map(len, lines)) <= 80


def test_doctor_says_what_is_missing_and_why(roofmon: Run) -> None:
    result = roofmon("doctor")
    assert result.returncode == 0, result.stdout
    assert "CPU" in result.stdout
    assert "NVIDIA GPU" in result.stdout
    states = {c["subject"]: c["state"] for c in json.loads(roofmon("doctor", "--json").stdout)}
    assert states["textual"] == "ok"
    without = roofmon(
        "doctor", "--json", env={"PATH": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"}
    )
    tracing = next(c for c in json.loads(without.stdout) if c["subject"] == "tracing")
    assert tracing["state"] == "optional"
    assert "C compiler" in tracing["text"]


@pytest.mark.slow
def test_doctor_lists_gpus_and_whether_they_have_a_live_point(
    roofmon: Run, nvml: NvmlDouble
) -> None:
    nvml.write(h200(2) | {"gpu1.gpm": 0})
    checks = json.loads(roofmon("doctor", "--json", env=nvml.env).stdout)
    found = {c["subject"]: c["text"] for c in checks if c["subject"].startswith("GPU")}
    assert "live point by GPM" in found["GPU 0"]
    assert gpu_uuid(0) in found["GPU 0"]
    assert "no live point (GPM needs Hopper" in found["GPU 1"]


def test_config_prints_a_file_that_reads_back(roofmon: Run, tmp_path: Path) -> None:
    path = Path(roofmon("config", "path").stdout.strip())
    assert path == tmp_path / ".config" / "roofmon" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(roofmon("config", "print").stdout.replace("refresh_hz = 2.0", "refresh_hz = 1"))
    again = roofmon("config", "print")
    assert again.returncode == 0, again.stderr
    assert "refresh_hz = 1.0" in again.stdout


@pytest.mark.slow
def test_record_and_replay(roofmon: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "session")
    recorded = roofmon("record", path, "--seconds", "3")
    assert recorded.returncode == 0, recorded.stderr
    assert (tmp_path / "session").stat().st_mode & 0o777 == 0o600
    replayed = json.loads(roofmon("replay", path, "--json").stdout)
    assert replayed["devices"][0]["sample"] is not None
    refused = roofmon("record", path, "--seconds", "1")
    assert refused.returncode == 2
    assert "exists already" in refused.stderr


@pytest.mark.slow
def test_a_recording_ends_at_its_limit(roofmon: Run, tmp_path: Path) -> None:
    feed = Path(__file__).parents[1] / "benchmarks" / "feed_5000.py"
    result = roofmon(
        *("record", str(tmp_path / "big"), "--seconds", "20"),
        *("--collector", f"{sys.executable} {feed}"),
        env={"ROOFMON_RECORD_LIMIT_MIB": "1"},
    )
    assert result.returncode == 0, result.stderr
    assert "ends at 1 MiB" in result.stderr
    assert 2**20 <= (tmp_path / "big").stat().st_size < 8 * 2**20


def test_the_stream_is_not_for_a_terminal_but_a_pipe_is_fine(roofmon: Run) -> None:
    missing = roofmon("replay", "/nonexistent/file")
    assert missing.returncode == 2
    assert "/nonexistent/file" in missing.stderr
    assert len(missing.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_modules_that_lie_about_are_not_ours(environment: dict[str, str], tmp_path: Path) -> None:
    """A user's directory may hold files named like modules that our children import."""
    place = tmp_path / "project"
    place.mkdir()
    for name in ("numpy", "msgspec", "selectors", "psutil"):
        (place / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    command = Path(sys.executable).with_name("roofmon")
    result = subprocess.run(
        [str(command), "--device", "cpu", "--json", "--seconds", "0.3"],
        check=False,
        cwd=place,
        capture_output=True,
        text=True,
        timeout=50,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["devices"]
