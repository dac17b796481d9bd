"""Working sets against numbers worked out by hand."""

from dataclasses import replace

import pytest

from roofmon.demo.sizes import Limits, cpu_gemm_n, plan_sizes

MIB = 1 << 20

CPU = Limits(
    cache_level="llc",
    cache_bytes=32 * MIB,
    memory_bytes=8192 * MIB,
    set_bytes=0,
    gemm_n=1024,
    fp64_gemm_n=1024,
    layer_n=2048,
    seq=256,
    head_dim=64,
    block_bytes=MIB,
)


def test_sets_are_four_caches() -> None:
    sizes = plan_sizes(CPU)
    assert 4 * sizes.elements == 128 * MIB
    assert sizes.layers == 8  # of 2048² × 4 B = 16 MiB
    assert sizes.heads == 512  # whose 256² scores are 256 KiB each
    assert sizes.block_heads == 4
    assert sizes.gemm_n == 1024
    # source and scratch, a quarter of that for 512 × 256 × 64 outputs, FP64 and FP16 operands
    assert sizes.total_bytes == (128 + 128 + 32 + 16 + 4) * MIB
    assert sizes.level(128 * MIB) == "dram"
    assert sizes.level(128 * MIB - 1) == "llc"


def test_sets_round_up_to_whole_matrices() -> None:
    sizes = plan_sizes(replace(CPU, cache_bytes=33 * MIB))
    assert 4 * sizes.elements == 144 * MIB  # 132 in steps of 16
    assert sizes.level(4 * sizes.elements) == "dram"


def test_a_quarter_of_the_memory_is_the_most() -> None:
    sizes = plan_sizes(replace(CPU, memory_bytes=1024 * MIB))
    assert sizes.total_bytes <= 256 * MIB
    assert sizes.total_bytes > 128 * MIB
    assert sizes.level(4 * sizes.elements) == "llc"


@pytest.mark.parametrize("scale", [1e-9, 0.01, 0.3, 1.0, 3.0])
def test_shapes_fit_into_the_source(scale: float) -> None:
    sizes = plan_sizes(CPU, scale)
    assert sizes.elements >= 1 << 18
    assert sizes.layers * sizes.layer_n**2 == sizes.elements
    assert sizes.heads * sizes.seq**2 == sizes.elements
    assert 3 * sizes.heads * sizes.seq * sizes.head_dim <= sizes.elements
    for n in (sizes.gemm_n, sizes.fp64_gemm_n):
        assert 0 < 2 * n**2 <= sizes.elements
    assert 1 <= sizes.block_heads <= sizes.heads


def test_gemm_stays_in_cache_and_grows_with_the_cores() -> None:
    assert cpu_gemm_n(32 * MIB, 2) == 1024  # 3 × 8 MiB are three quarters of the cache
    assert cpu_gemm_n(32 * MIB, 64) == 1024
    assert cpu_gemm_n(512 * MIB, 2) == 1024
    assert cpu_gemm_n(512 * MIB, 128) == 4096  # 64 times the cores, 4 times the order
    assert cpu_gemm_n(1 * MIB, 1) == 256
