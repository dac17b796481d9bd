"""The CUDA C of the bundled probes does what their manifests count.

Each file is compiled for the CPU and run there, thread by thread, with numbers that count how often they
are loaded, stored and multiplied: see probes_on_cpu.h. Where nvcc is installed it compiles them as well.
"""

import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofmon.calibration.manifest import load_probes
from roofmon.calibration.probe import Probe
from roofmon.resources import probes_dir

HARNESS = Path(__file__).with_name("probes_on_cpu.h")
NAMES = {
    *(f"gpu-dram-{name}" for name in ("copy", "read", "write", "scale", "triad")),
    *("gpu-l2-read", "gpu-shared-read", "gpu-l1-read"),
    *("gpu-pcie-h2d", "gpu-pcie-d2h", "gpu-nvlink-copy"),
    *("gpu-fma-fp64", "gpu-fma-fp32", "gpu-fma-fp16", "gpu-imad-int32"),
    *(f"gpu-gemm-{precision}" for precision in ("fp64", "tf32", "fp16", "bf16")),
}
PROBES = {probe.name: probe for probe in load_probes([probes_dir()])[0] if probe.name in NAMES}
KERNELS = {name: probe for name, probe in PROBES.items() if probe.backend == "cuda"}
STREAMS = sorted(name for name, probe in KERNELS.items() if probe.operation == "stream")
LOOPS = sorted(name for name, probe in KERNELS.items() if probe.operation == "loop")

ELEMENTS = 5 * 1024 + 352  # of a stream: whole warps, but no whole number of batches
FIXED_GRID = 3
THREADS, ITERATIONS = 2 * 64, 50
# Rows of 4 × 32 elements, the last of them half empty, and blocks: more rows than blocks, a multiple of
# them, as many, fewer.
ROWS_AND_BLOCKS = [(5, 3), (6, 3), (4, 4), (2, 5)]
PASSES = 60


def cpu_program() -> str:
    """C++ that runs every kernel and prints a line for each."""
    parts = [HARNESS.read_text(encoding="utf-8")]
    for code in sorted({probe.code for probe in KERNELS.values() if probe.code}):
        text = (probes_dir() / code).read_text(encoding="utf-8")
        text = text.replace('extern "C" __global__', "static __global__")
        register = r'"r"\(([\w.]+)\)'
        text = re.sub(
            rf'asm\("([\w.]+) %0, %1, %2, %3;" : "=r"\(([\w.]+)\) : {register}, {register}, {register}\)',
            r'\2 = ptx("\1", \3, \4, \5)',
            text,
        )
        parts.append(f'namespace {namespace(code)} {{\n#line 1 "{code}"\n{text}\n}}')
    calls = [call for probe in KERNELS.values() for call in calls_of(probe)]
    main = ["int main() {", "char base; stack_base = &base;", *calls, "}"]
    return "\n".join([*parts, *main])


def namespace(code: str) -> str:
    return f"of_{Path(code).stem}"


def calls_of(probe: Probe) -> list[str]:
    kernel = f"{namespace(probe.code or '')}::{probe.kernel}"
    match probe.operation:
        case "stream":
            assert probe.block
            assert probe.elements_per_thread
            grid = math.ceil(ELEMENTS / (probe.block * probe.elements_per_thread))
            return [
                f'stream("{probe.name}", {kernel}, {blocks}, {probe.block}, {ELEMENTS});'
                for blocks in (grid, FIXED_GRID)
            ]
        case "reread":
            return [
                f'reread("{probe.name}", {kernel}, {blocks}, 32, {128 * rows - 64}, {PASSES});'
                for rows, blocks in ROWS_AND_BLOCKS
            ]
        case _:
            return [f'loop("{probe.name}", {kernel}, 2, {THREADS // 2}, {ITERATIONS});']


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What was counted in each run of a probe."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("running kernels on the CPU needs a C++ compiler (c++)")
    folder = tmp_path_factory.mktemp("kernels")
    source, program = folder / "kernels.cpp", folder / "kernels"
    source.write_text(cpu_program(), encoding="utf-8")
    # Each multiplication and addition of a stream is rounded, as the expectations below are.
    flags = ["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fmax-errors=3"]
    command = [compiler, *flags, "-o", str(program), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True, timeout=50)
    found: dict[str, list[dict[str, Any]]] = {}
    for line in done.stdout.splitlines():
        run = json.loads(line)
        found.setdefault(run["name"], []).append(run)
    return found


def numbers(n: int, first: float) -> list[float]:
    """What the harness fills an array with."""
    return [first + math.sin(i) for i in range(n)]


def test_every_bundled_gpu_probe_is_there_and_sound() -> None:
    assert set(PROBES) == NAMES
    problems = [problem.what for problem in load_probes([probes_dir()])[1]]
    assert not [what for what in problems if "gpu-" in what]
    # The DRAM roof is triad alone; a group of which nothing is a roof shows none.
    dram = {name for name, probe in PROBES.items() if probe.level == "dram" and probe.roof}
    assert dram == {"gpu-dram-triad"}
    quick = {name for name, probe in PROBES.items() if probe.quick}
    assert quick == {"gpu-dram-triad", "gpu-l2-read", "gpu-fma-fp32", "gpu-gemm-bf16"}
    pipes = {probe.pipe.key for probe in PROBES.values() if probe.pipe and probe.roof}
    assert pipes == {
        *("vector/fp64", "vector/fp32", "vector/fp16"),
        *("tensor/fp64", "tensor/tf32", "tensor/fp16", "tensor/bf16"),
    }
    # What is measured in different units is never in one group, of which only the best is a roof.
    measures = {(probe.group, probe.level, probe.pipe) for probe in PROBES.values()}
    assert len(measures) == len({probe.group for probe in PROBES.values()})


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_moves_the_bytes_that_count_and_computes_what_it_says(
    runs: dict[str, list[dict[str, Any]]], name: str
) -> None:
    probe = KERNELS[name]
    a, b, c = (numbers(2 * ELEMENTS, first) for first in (1.0, 2.0, 3.0))
    expected = {
        "copy": b,
        "read": a,
        "write": [0.4] * len(a),
        "scale": [0.4 * y for y in b],
        "triad": [x + 0.4 * y for x, y in zip(b, c, strict=True)],
    }[probe.kernel or ""]
    reads, writes = {
        "copy": (1, 1),
        "read": (1, 0),
        "write": (0, 1),
        "scale": (1, 1),
        "triad": (2, 1),
    }[probe.kernel or ""]
    assert len(runs[name]) == 2
    for run in runs[name]:
        assert run["element_bytes"] == probe.element_bytes
        assert (run["loads"], run["stores"]) == (reads * ELEMENTS, writes * ELEMENTS)
        assert run["addresses"] == reads * ELEMENTS  # so each was loaded once
        assert probe.bytes_per_element == (reads + writes) * run["element_bytes"]
        assert run["coalesced"]
        np.testing.assert_allclose(run["a"], expected, rtol=1e-15)


def test_l2_read_reads_each_element_once_a_pass_and_every_block_sees_all(
    runs: dict[str, list[dict[str, Any]]],
) -> None:
    probe = KERNELS["gpu-l2-read"]
    assert len(runs["gpu-l2-read"]) == len(ROWS_AND_BLOCKS)
    for run in runs["gpu-l2-read"]:
        assert run["element_bytes"] == probe.element_bytes
        assert (run["least"], run["most"]) == (PASSES, PASSES)
        assert run["addresses"] == run["n"]
        assert run["loads"] * run["element_bytes"] == (
            (probe.bytes_per_element or 0) * run["n"] * PASSES
        )
        assert run["bypassing"] == run["loads"]  # all of them past L1
        assert run["by_every_block"] == run["n"]
        assert run["coalesced"]
        assert not run["sink_written"]


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_does_the_work_that_counts(runs: dict[str, list[dict[str, Any]]], name: str) -> None:
    probe = KERNELS[name]
    (run,) = runs[name]
    assert run["element_bytes"] == probe.element_bytes
    assert not run["sink_written"]
    if probe.kind == "bandwidth":
        loaded = run["loads"] * run["element_bytes"]
        assert loaded == (probe.bytes_per_element or 0) * THREADS * ITERATIONS
        assert run["coalesced"]  # neighbours of 16 bytes: no two lanes in one bank at a time
        # The loads of an iteration go elsewhere than those of the one before it.
        assert run["addresses"] > 16 * THREADS // 2
        return
    # The pairs of fp16 are counted one by one.
    assert 2 * run["multiply_adds"] == probe.flop_count() * THREADS * ITERATIONS
    # The numbers go on changing; those of the floating-point maps stay within [-2, 2].
    assert run["unchanged"] < 0.001 * run["multiply_adds"]
    if probe.precision != "int32":
        assert 1.4 < run["largest"] <= 2.0


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted({probe.code or "" for probe in KERNELS.values()}))
def test_nvcc_compiles_them_without_spills(tmp_path: Path, code: str) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    listed = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True)
    architectures = {word.removeprefix("compute_") for word in listed.stdout.split()}
    for architecture in sorted(architectures & {"75", "80", "90", "120"}):
        command = [nvcc, "-cubin", f"-arch=sm_{architecture}", "-Xptxas", "-v"]
        output = str(tmp_path / f"{architecture}.cubin")
        done = subprocess.run(
            [*command, "-o", output, str(probes_dir() / code)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        spills = re.findall(r"(\d+) bytes spill", done.stderr)
        assert spills, done.stderr
        assert set(spills) == {"0"}, f"sm_{architecture}: {done.stderr}"


@pytest.mark.slow
def test_the_compiler_keeps_every_multiply_add_and_load(tmp_path: Path) -> None:
    """In PTX: nothing was folded away, and the loads are of the kind and width that they should be."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    found: dict[str, str] = {}
    for code in sorted({probe.code or "" for probe in KERNELS.values()}):
        output = tmp_path / f"{code}.ptx"
        command = [nvcc, "-ptx", "-arch=sm_90", "-o", str(output), str(probes_dir() / code)]
        subprocess.run(command, check=True)
        for kernel in output.read_text().split(".visible .entry ")[1:]:
            found[kernel[: kernel.index("(")]] = kernel
    # Written out once in the loop: 8 chains of 64 steps. One more fp32 and fp64 makes the constant.
    counts = {
        "fma_fp64": ("fma.rn.f64", 512 + 1),
        "fma_fp32": ("fma.rn.f32", 512 + 1),
        "fma_fp16": ("fma.rn.f16x2", 512),
        "imad_int32": ("mad.lo.u32", 512),
        "shared_read": ("ld.shared.v4", 16),
        "l1_read": ("ld.global.v4", 16),
        "l2_read": ("ld.global.cg.v4", 4),
    }
    for kernel, (instruction, count) in counts.items():
        assert found[kernel].count(instruction) == count, kernel
