"""Every kernel at a small size: its result is right, a wrong one is found, its declared work is known."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from roofmon.demo.kernel import Kernel, expect_close
from roofmon.demo.numpy_device import NumpyDevice
from roofmon.demo.sizes import plan_sizes
from roofmon.demo.workload import build_kernels
from roofmon.errors import RoofmonError

# (FLOP, byte) for a source of 2¹⁸ floats: 2¹⁷ elements in half of it, 4 matrices of 256² in the chain,
# 4 heads of 256 × 64, GEMMs of 320², the largest multiple of 64 of which two fit.
WORK = {
    "vector_add": (131_072, 3 * 524_288),
    "triad": (262_144, 3 * 524_288),
    "reduce_sum": (262_144, 1_048_576 + 4),
    "decode_gemv_chain": (524_288, 1_048_576 + 2048),
    "gemm_fp32": (65_536_000, 1_228_800),
    "gemm_fp64": (65_536_000, 2_457_600),
    "vector_add_tiny": (4096, 49_152),
    "softmax": (655_360, 1_048_576),
    "attention_unfused": (67_108_864 + 1_310_720, 4 * 1_048_576 + 1_048_576),
    "attention_blocked": (67_108_864 + 1_310_720, 1_048_576),
}


@pytest.fixture
def kernels() -> Iterator[dict[str, Kernel]]:
    device = NumpyDevice(llc_bytes=256 << 10, threads=3)
    sizes = plan_sizes(replace(device.limits, gemm_n=1024, fp64_gemm_n=1024))
    assert sizes.elements == 1 << 18
    yield {kernel.name: kernel for kernel in build_kernels(device, sizes)}
    device.close()


def test_results_are_right_again_and_again(kernels: dict[str, Kernel]) -> None:
    for _ in range(2):
        for kernel in kernels.values():
            kernel.launch()
            kernel.check()


def test_every_check_fails_without_a_launch(kernels: dict[str, Kernel]) -> None:
    for kernel in kernels.values():
        with pytest.raises(
            RoofmonError, match=f"demo kernel {kernel.name} computed a wrong result"
        ):
            kernel.check()


def test_one_attention_is_not_checked_on_the_output_of_the_other(
    kernels: dict[str, Kernel],
) -> None:
    kernels["attention_unfused"].launch()
    kernels["attention_unfused"].check()
    with pytest.raises(RoofmonError, match="attention_blocked"):
        kernels["attention_blocked"].check()


def test_declared_work(kernels: dict[str, Kernel]) -> None:
    assert {k.name: (k.work.total_flops, k.work.bytes) for k in kernels.values()} == WORK


def test_level_follows_from_the_set(kernels: dict[str, Kernel]) -> None:
    in_cache = {name for name, kernel in kernels.items() if kernel.level == "llc"}
    assert in_cache == {"vector_add_tiny"}  # all others have 1 MiB or more, four caches of 256 KiB
    assert {kernel.level for kernel in kernels.values()} == {"llc", "dram"}


def test_pipes(kernels: dict[str, Kernel]) -> None:
    pipes = {kernel.name: set(kernel.work.flops) for kernel in kernels.values()}
    assert pipes.pop("gemm_fp64") == {("vector", "fp64")}
    assert all(pipe == {("vector", "fp32")} for pipe in pipes.values())


def test_nan_is_a_wrong_result() -> None:
    with pytest.raises(RoofmonError, match="relative error nan"):
        expect_close("x", np.array([1.0, np.nan]), np.array([1.0, 1.0]), 1e-6)
