"""Manifests of GPU probes: what each backend asks for, and the source that comes with it."""

from pathlib import Path

import pytest

from roofmon.calibration.listing import probe_rows
from roofmon.calibration.manifest import load_probes, read_probe, sources_hash
from roofmon.calibration.probe import probes_for
from roofmon.errors import RoofmonError
from roofmon.model.roofline import Pipe
from roofmon.resources import probes_dir

SOURCE = 'extern "C" __global__ void mine(double* a, unsigned long long n) {}\n'
STREAM = """\
name = "mine"
title = "my stream"
backend = "cuda"
operation = "stream"
code = "mine.cu"
kernel = "mine"
arrays = 1
element_bytes = 8
block = 256
elements_per_thread = 4
level = "dram"
bytes_per_element = 8
source = "2026"
group = "dram"
"""
REREAD = STREAM.replace("stream", "reread").replace("dram", "l2").replace("arrays = 1\n", "")
REREAD = REREAD.replace("elements_per_thread = 4\n", "")
LOOP = """\
name = "mine"
title = "my loop"
backend = "cuda"
operation = "loop"
code = "mine.cu"
kernel = "mine"
element_bytes = 4
block = 256
precision = "fp16"
flops = "2*2*8"
source = "2026"
group = "fp16"
"""
GEMM = """\
name = "mine"
title = "my product"
backend = "cublas"
operation = "gemm"
unit = "tensor"
precision = "bf16"
flops = "2*m*n*k"
shapes = [[128, 256, 512]]
source = "2026"
group = "bf16"
"""
TRANSFER = """\
name = "mine"
title = "my copy"
backend = "transfer"
operation = "transfer"
level = "pcie_h2d"
bytes_per_element = 1
source = "2026"
group = "pcie"
"""


def write(folder: Path, text: str, source: str = SOURCE) -> Path:
    (folder / "mine.cu").write_text(source)
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_each_backend_gives_its_kind_of_probe(tmp_path: Path) -> None:
    stream, loop, gemm, transfer = (
        read_probe(write(tmp_path, text)) for text in (STREAM, LOOP, GEMM, TRANSFER)
    )
    assert [probe.device for probe in (stream, loop, gemm, transfer)] == ["cuda"] * 4
    assert [probe.kind for probe in (stream, loop, gemm, transfer)] == [
        *("bandwidth", "compute", "compute", "bandwidth")
    ]
    assert (loop.pipe, gemm.pipe) == (Pipe("vector", "fp16"), Pipe("tensor", "bf16"))
    assert loop.flop_count() == 32
    assert gemm.flop_count(10, 20, 30) == 12000
    assert (stream.source_text, gemm.source_text) == (SOURCE, "")


def test_bytes_make_a_loop_a_bandwidth_probe(tmp_path: Path) -> None:
    text = LOOP.replace('flops = "2*2*8"', 'bytes_per_element = 256\nlevel = "l1"')
    assert read_probe(write(tmp_path, text)).kind == "bandwidth"


def test_the_source_is_part_of_the_hash(tmp_path: Path) -> None:
    first = sources_hash([read_probe(write(tmp_path, STREAM))])
    assert sources_hash([read_probe(write(tmp_path, STREAM, SOURCE + "// changed\n"))]) != first
    assert sources_hash([read_probe(write(tmp_path, STREAM))]) == first


def test_a_source_that_is_a_link_is_followed_as_manifests_are(tmp_path: Path) -> None:
    path = write(tmp_path, STREAM)
    (tmp_path / "mine.cu").rename(tmp_path / "elsewhere.cu")
    (tmp_path / "mine.cu").symlink_to("elsewhere.cu")
    assert read_probe(path).source_text == SOURCE


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        (STREAM.replace('"stream"', '"copy"'), 4, "operation must be one of stream, reread, loop"),
        (STREAM.replace('"mine.cu"', '"../mine.cu"'), 5, "code must name a .cu file"),
        (STREAM.replace('"mine.cu"', '"other.cu"'), 5, "code: cannot read"),
        (STREAM.replace('kernel = "mine"', 'kernel = "a b"'), 6, "kernel must name a function"),
        (STREAM.replace("arrays = 1", "arrays = 4"), 7, "arrays must be between 1 and 3"),
        (STREAM.replace("_bytes = 8", "_bytes = 3"), 8, "element_bytes must be 2, 4, 8 or 16"),
        (STREAM.replace("block = 256", "block = 100"), 9, "block must be a multiple of 32"),
        (STREAM + "blocks_per_sm = 2\n", 4, "'stream' needs either elements_per_thread or"),
        (STREAM.replace('"dram"\nb', '"llc"\nb'), 11, "level must be one of dram, l2, l1"),
        (STREAM + 'precision = "bf16"\n', 15, "precision must be fp64, fp32 or fp16"),
        (STREAM + 'flops = "2"\n', 15, "flops has no meaning for 'stream'"),
        (STREAM + 'unit = "tensor"\n', 15, "unit has no meaning for 'stream'"),
        (STREAM + 'source_text = "x"\n', 15, "there is no key 'source_text'"),
        (STREAM + "shared_bytes = 1000000\n", 15, "shared_bytes must be between"),
        (STREAM + 'counts = "lts__t_bytes"\n', 15, "counts must be requested for the level 'dram'"),
        (REREAD + 'counts = "tex"\n', 13, "counts must be requested or lts__t_bytes for the level"),
        (LOOP + "bytes_per_element = 4\n", 4, "'loop' needs either flops or bytes_per_element"),
        (LOOP.replace("2*2*8", "2*m"), 10, "flops must be a product of numbers"),
        (LOOP + "arrays = 1\n", 13, "arrays has no meaning for 'loop'"),
        (LOOP + 'level = "l1"\n', 13, "level has no meaning for 'loop'"),
        (LOOP + "elements_per_thread = 4\n", 13, "elements_per_thread has no meaning"),
        (GEMM.replace('"tensor"', '"vector"'), 5, "unit must be tensor"),
        (GEMM.replace('"bf16"\nf', '"fp32"\nf'), 6, "precision must be one of fp64, tf32"),
        (GEMM.replace("[[128, 256, 512]]", "[]"), 8, "shapes must list 1 to 32 shapes"),
        (GEMM.replace("[[128, 256, 512]]", "[[128, 256, 8]]"), 8, "shapes must list"),
        (GEMM.replace("[[128, 256, 512]]", "[[128, 256]]"), 8, "shapes: Expected `array`"),
        (GEMM + "sizes = [64]\n", 11, "sizes has no meaning for 'gemm'"),
        (GEMM + 'code = "mine.cu"\n', 11, "code has no meaning for 'gemm'"),
        (TRANSFER.replace("pcie_h2d", "dram"), 5, "level must be one of pcie_h2d, pcie_d2h"),
        (TRANSFER.replace("= 1\n", "= 0\n"), 6, "bytes_per_element must be between"),
        (TRANSFER + "block = 32\n", 9, "block has no meaning for 'transfer'"),
    ],
)
def test_a_mistake_in_a_gpu_probe_is_named_with_file_line_and_key(
    tmp_path: Path, text: str, line: int, complaint: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RoofmonError) as caught:
        read_probe(path)
    assert caught.value.what.startswith(f"{path}:{line}: ")
    assert complaint in str(caught.value)


def test_a_source_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, STREAM)
    (tmp_path / "mine.cu").write_bytes(b"\xff\xfe")
    with pytest.raises(RoofmonError, match=r"mine\.toml:5: code: cannot read"):
        read_probe(path)


def test_the_listing_says_of_gpu_probes_what_counts() -> None:
    rows = {row["name"]: row for row in probe_rows(load_probes([probes_dir()])[0])}
    gpu = probes_for(load_probes([probes_dir()])[0], "cuda")
    assert {probe.name for probe in gpu} < set(rows)
    assert (rows["gpu-dram-triad"]["roof"], rows["gpu-dram-triad"]["counts"]) == (
        *("DRAM", "48 byte/element"),
    )
    assert (rows["gpu-l2-sampled"]["roof"], rows["gpu-l2-sampled"]["counts"]) == (
        *("L2 sampled", "bytes of lts__t_bytes.sum"),
    )
    assert rows["gpu-gemm-bf16"]["counts"] == "2*m*n*k FLOP"
    assert rows["gpu-gemm-bf16"]["backend"] == "cublas"
    assert "iteration" in str(rows["gpu-fma-fp32"]["counts"])
    assert "iteration" in str(rows["gpu-l1-read"]["counts"])
