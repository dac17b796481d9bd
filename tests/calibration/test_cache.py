import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from roofmon.calibration.cache import (
    cache_path,
    cpu_conditions,
    gpu_conditions,
    load_best,
    load_cached,
    store,
)
from roofmon.calibration.manifest import load_probes
from roofmon.calibration.probe import Mode, probes_for
from roofmon.calibration.results import CalibrationResult, roofline_of
from roofmon.model.roofline import Ceiling, Conditions, Pipe
from roofmon.model.session import Notice
from roofmon.resources import cache_dir, probes_dir
from roofmon.telemetry.host import read_host

HOST = read_host()
PROBES = load_probes([probes_dir()])[0]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def bandwidth(probe: str, value: float, level: str = "dram", *flags: str) -> Ceiling:
    return Ceiling(
        kind="bandwidth",
        value=value,
        ci_low=0.9 * value,
        ci_high=1.1 * value,
        regime="sustained",
        n=20,
        probe=probe,
        level="llc" if level == "llc" else "dram",
        flags=flags,
    )


def compute(probe: str, value: float) -> Ceiling:
    return Ceiling(
        kind="compute",
        value=value,
        ci_low=value,
        ci_high=value,
        regime="gemm",
        n=20,
        probe=probe,
        pipe=Pipe("vector", "fp64"),
    )


def result(conditions: Conditions, *measurements: Ceiling, mode: str = "full") -> CalibrationResult:
    return CalibrationResult(
        device=conditions.device,
        mode=mode,
        roofline=roofline_of(measurements, PROBES, conditions),
        measurements=measurements,
        time_unix_s=1e9,
        seconds=6.5,
    )


def test_the_best_of_a_group_is_the_roof() -> None:
    conditions = cpu_conditions(HOST, PROBES, "full")
    measured = [
        bandwidth("copy", 30e9),
        bandwidth("axpy", 45e9),
        bandwidth("triad", 33e9),
        bandwidth("llc-axpy", 160e9, "llc"),
        compute("gemm-fp64", 80e9),
        bandwidth("gone", 999e9),
    ]
    roofline = roofline_of(measured, PROBES, conditions)
    assert [c.probe for c in roofline.ceilings] == ["axpy", "llc-axpy", "gemm-fp64"]
    assert roofline.conditions == conditions
    only_listed = [msgspec.structs.replace(probe, roof=probe.name != "axpy") for probe in PROBES]
    best = roofline_of(measured, only_listed, conditions).bandwidth("dram")
    assert best is not None
    assert best.probe == "triad"


def test_a_cache_no_faster_than_dram_is_no_roof() -> None:
    conditions = cpu_conditions(HOST, PROBES, "full")
    measured = [bandwidth("axpy", 45e9), bandwidth("llc-axpy", 45e9, "llc")]
    assert [c.level for c in roofline_of(measured, PROBES, conditions).ceilings] == ["dram"]
    assert roofline_of(measured[1:], PROBES, conditions).bandwidth("llc") is not None


def test_what_is_kept_comes_back_the_same() -> None:
    conditions = cpu_conditions(HOST, PROBES, "full")
    kept = result(conditions, bandwidth("axpy", 45e9), compute("gemm-fp64", 80e9))
    assert load_cached(conditions) is None
    store(conditions, kept)
    assert load_cached(conditions) == kept
    path = cache_path(conditions)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "change",
    [
        {"device": "cpu-other"},
        {"driver": "numpy 0.1"},
        {"power_limit_w": 300.0},
        {"ecc": True},
        {"mig_profile": "1g"},
        {"probes": "other"},
        {"threads": 99},
    ],
)
def test_any_other_condition_is_another_calibration(change: dict[str, object]) -> None:
    conditions = cpu_conditions(HOST, PROBES, "full")
    store(conditions, result(conditions, bandwidth("axpy", 45e9)))
    assert load_cached(msgspec.structs.replace(conditions, **change)) is None


def test_the_first_valid_calibration_of_the_modes_asked_for_is_taken() -> None:
    def conditions_of(mode: Mode) -> Conditions:
        return cpu_conditions(HOST, PROBES, mode)

    for mode, value in (("quick", 40e9), ("thorough", 45e9)):
        conditions = conditions_of(mode)
        store(conditions, result(conditions, bandwidth("axpy", value), mode=mode))
    assert load_best(conditions_of, ["full"]) is None
    for modes, expected in (
        (["thorough", "full", "quick"], "thorough"),
        (["full", "quick"], "quick"),
    ):
        found = load_best(conditions_of, modes)
        assert found is not None
        assert found.mode == expected


def test_probes_of_a_gpu_do_not_change_what_a_cpu_calibration_is_valid_for() -> None:
    own = probes_for(PROBES, "cpu")
    assert len(own) < len(PROBES)
    assert cpu_conditions(HOST, own, "full") == cpu_conditions(HOST, PROBES, "full")
    gpu = Conditions(device="GPU-1", driver="580.1", power_limit_w=700.0, ecc=True)
    kept = gpu_conditions(gpu, PROBES, "full")
    assert kept == gpu_conditions(gpu, probes_for(PROBES, "cuda"), "full")
    assert (kept.device, kept.driver, kept.power_limit_w) == ("GPU-1", "580.1", 700.0)
    # Another CUDA text is another calibration, and so is another selection.
    changed = [msgspec.structs.replace(p, source_text=p.source_text + " ") for p in PROBES]
    assert gpu_conditions(gpu, changed, "full") != kept
    assert gpu_conditions(gpu, PROBES, "quick").probes != kept.probes


def test_spoiled_empty_and_incomplete_results_are_not_kept() -> None:
    conditions = cpu_conditions(HOST, PROBES, "full")
    good = result(conditions, bandwidth("axpy", 45e9, "dram", "not-converged"))
    assert good.worth_keeping
    for spoiled in (
        result(conditions, bandwidth("axpy", 45e9), bandwidth("copy", 9e9, "dram", "contended")),
        result(conditions, bandwidth("axpy", 45e9, "dram", "over-bound")),
        result(conditions),
        msgspec.structs.replace(good, failures={"copy": "out of memory"}),
    ):
        store(conditions, spoiled)
        assert not cache_dir().exists()


@pytest.mark.parametrize("damage", [b"", b"{", b'{"conditions": 1}', b"\xff\xfe", b"[" * 10**5])
def test_a_damaged_file_is_told_once_and_ignored(damage: bytes) -> None:
    conditions = cpu_conditions(HOST, PROBES, "full")
    store(conditions, result(conditions, bandwidth("axpy", 45e9)))
    cache_path(conditions).write_bytes(damage)
    notices: list[Notice] = []
    assert load_cached(conditions, notices.append) is None
    assert [notice.severity for notice in notices] == ["warning"]
    assert str(cache_path(conditions)) in notices[0].what
    # The next calibration repairs it.
    store(conditions, result(conditions, bandwidth("axpy", 45e9)), notices.append)
    assert load_cached(conditions) is not None
    assert len(notices) == 1


def test_an_unwritable_cache_is_told_once() -> None:
    cache_dir().parent.mkdir()
    cache_dir().write_text("a file where the directory should be")
    conditions = cpu_conditions(HOST, PROBES, "full")
    notices: list[Notice] = []
    store(conditions, result(conditions, bandwidth("axpy", 45e9)), notices.append)
    assert len(notices) == 1
    assert "cannot be kept" in notices[0].what


def test_links_are_not_followed(tmp_path: Path) -> None:
    conditions = cpu_conditions(HOST, PROBES, "full")
    store(conditions, result(conditions, bandwidth("axpy", 45e9)))
    path = cache_path(conditions)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    notices: list[Notice] = []
    assert load_cached(conditions, notices.append) is None
    assert len(notices) == 1


def test_reading_the_cache_does_not_need_numpy() -> None:
    code = (
        "import sys\n"
        "from roofmon.calibration.cache import load_best\n"
        "from roofmon.calibration.manifest import load_probes\n"
        "from roofmon.calibration.targets import find_target\n"
        "target = find_target('cpu', load_probes()[0], 1.0, print)\n"
        "load_best(target.conditions_of, ['full']); print('numpy' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert output == b"False\n"
