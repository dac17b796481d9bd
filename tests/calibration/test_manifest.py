import subprocess
import sys
from pathlib import Path

import pytest

from roofmon.calibration.cpu_kernels import OPERATIONS as KERNELS
from roofmon.calibration.listing import probe_rows
from roofmon.calibration.manifest import load_probes, read_probe, sources_hash
from roofmon.calibration.manifest_rules import OPERATIONS
from roofmon.calibration.probe import probes_for
from roofmon.errors import RoofmonError
from roofmon.model.roofline import Pipe
from roofmon.resources import probes_dir

COPY = """\
name = "mine"
title = "my copy"
backend = "numpy"
operation = "copy"
level = "dram"
bytes_per_element = 16
source = "STREAM"
group = "dram"
"""
GEMM = """\
name = "mine"
title = "my product"
backend = "numpy"
operation = "gemm"
precision = "fp32"
flops = "2*m*n*k"
sizes = [64]
source = "BLAS"
group = "fp32"
"""


def write(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def test_the_bundled_probes_are_sound() -> None:
    every, problems = load_probes([probes_dir()])
    assert problems == []
    probes = probes_for(every, "cpu")
    assert [probe.name for probe in probes] == [
        *("copy", "read", "axpy", "update", "triad"),
        *("llc-axpy", "llc-update", "gemm-fp32", "gemm-fp64"),
    ]
    # 8-byte elements moved by one element of each, counted by hand: reads + writes.
    words = {"copy": 1 + 1, "read": 2, "axpy": 2 + 1, "update": 1 + 1, "triad": 2 + 1}
    for probe in probes:
        if probe.kind == "bandwidth":
            assert probe.bytes_per_element == 8 * words[probe.operation]
        else:
            assert probe.flop_count(10, 20, 30) == 2 * 10 * 20 * 30
            assert probe.pipe == Pipe("vector", probe.name.removeprefix("gemm-"))
    assert {probe.group for probe in probes if probe.quick} == {"dram", "llc", "fp32", "fp64"}


def test_every_operation_can_be_run() -> None:
    assert set(OPERATIONS["numpy"]) == {*KERNELS, "gemm"}


def test_listing_needs_neither_numpy_nor_a_device() -> None:
    code = (
        "import sys; from roofmon.calibration import manifest, listing\n"
        "rows = listing.probe_rows(manifest.load_probes()[0])\n"
        "print(len(rows), 'numpy' in sys.modules, 'psutil' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split()[1:] == ["False", "False"]


def test_rows_say_what_counts() -> None:
    rows = {row["name"]: row for row in probe_rows(load_probes([probes_dir()])[0])}
    assert (rows["axpy"]["roof"], rows["axpy"]["counts"]) == ("DRAM", "24 byte/element")
    assert (rows["llc-update"]["roof"], rows["llc-update"]["kind"]) == ("LLC", "bandwidth")
    assert (rows["gemm-fp64"]["roof"], rows["gemm-fp64"]["counts"]) == ("fp64", "2*m*n*k FLOP")
    assert all("19" in str(row["source"]) or "20" in str(row["source"]) for row in rows.values())


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        (COPY + "colour = 1\n", 9, "there is no key 'colour'"),
        (COPY + "oder = 1\n", 9, 'did you mean "order"?'),
        (COPY.replace('operation = "copy"', 'operation = "sort"'), 4, "operation must be one of"),
        (COPY.replace("= 16", '= "16"'), 6, "bytes_per_element: Expected `int | null`, got `str`"),
        (COPY.replace("= 16", "= 0"), 6, "bytes_per_element must be between 1 and 1024"),
        (COPY.replace('"dram"\nb', '"l7"\nb'), 5, "level: Invalid enum value 'l7'"),
        (COPY.replace('"dram"\nb', '"l1"\nb'), 5, "level must be one of dram, llc"),
        (COPY.replace('"numpy"', '"opencl"'), 3, "backend: Invalid enum value 'opencl'"),
        (COPY.replace('"my copy"', '""'), 2, "title must be one line of text"),
        (COPY.replace('"my copy"', '"\\u001b[2J"'), 2, "title must be one line of text"),
        (COPY.replace('"mine"', '"other"'), 1, "name must be the file's name, 'mine'"),
        (COPY + 'flops = "2"\n', 9, "flops has no meaning for 'copy'"),
        (COPY + 'precision = "fp32"\n', 9, "precision must be fp64"),
        (COPY.replace("title", "# title"), 0, "title is missing"),
        (COPY + "= 3\n", 9, "not TOML"),
        (GEMM.replace("2*m*n*k", "2*m*n*j"), 6, "flops must be a product"),
        (GEMM.replace("2*m*n*k", "m**9"), 6, "flops must be a product"),
        (GEMM.replace("2*m*n*k", "0*m"), 6, "flops must be a product"),
        (GEMM.replace("[64]", "[]"), 7, "sizes must list"),
        (GEMM.replace("[64]", "[64, 8]"), 7, "sizes must list"),
        (GEMM.replace("[64]", '[64, "8"]'), 7, "sizes: Expected `int`, got `str`"),
        (GEMM + 'level = "dram"\n', 10, "level has no meaning for 'gemm'"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(
    tmp_path: Path, text: str, line: int, complaint: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RoofmonError) as caught:
        read_probe(path)
    where = f"{path}:{line}" if line else str(path)
    assert caught.value.what.startswith(f"{where}: ")
    assert complaint in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_the_good_ones_load_beside_the_broken_ones(tmp_path: Path) -> None:
    write(tmp_path, COPY)
    write(tmp_path, "name = ", "broken")
    write(tmp_path, GEMM.replace('"mine"', '"product"'), "product")
    probes, problems = load_probes([tmp_path])
    assert [probe.name for probe in probes] == ["mine", "product"]
    assert len(problems) == 1
    assert "broken.toml:1" in problems[0].what


def test_the_users_own_probes_join_the_bundled_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "roofmon" / "probes"
    folder.mkdir(parents=True)
    write(folder, COPY)
    write(folder, COPY.replace('"mine"', '"axpy"'), "axpy")
    probes, problems = load_probes()
    assert "mine" in [probe.name for probe in probes]
    assert [problem.what for problem in problems] == [
        f"{folder / 'axpy.toml'}: the name 'axpy' is already used by {probes_dir() / 'axpy.toml'}"
    ]


def test_the_hash_follows_what_the_probes_say(tmp_path: Path) -> None:
    first = sources_hash([read_probe(write(tmp_path, COPY))])
    assert sources_hash([read_probe(write(tmp_path, "# a comment\n" + COPY))]) == first
    assert sources_hash([read_probe(write(tmp_path, COPY.replace("16", "24")))]) != first
    assert sources_hash([]) != first
