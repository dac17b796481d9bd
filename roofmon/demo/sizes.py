"""How large the working sets are: at least four caches where the roof is DRAM, within a memory budget."""

import math
from dataclasses import dataclass

DRAM_FACTOR = 4
"""A set of this many caches leaves at most a quarter of its bytes to be found in the cache."""

MEMORY_SHARE = 0.25
"""The demo never holds more of the memory that is available at its start."""

LEAST_SET_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device allows and asks for.

    Attributes:
        cache_level: what the last cache is called, "llc" or "l2".
        cache_bytes: its size, all instances together.
        memory_bytes: memory available now.
        set_bytes: the set below which a launch would be too short to time well.
        gemm_n, fp64_gemm_n: order of the square GEMMs; FP64 may be many times slower.
        layer_n: order of the matrices of the decode-like chain, a power of two.
        seq, head_dim: shape of one attention head, powers of two, seq ≥ 4·head_dim.
        block_bytes: scores that stay in cache while a block of heads is worked on.
    """

    cache_level: str
    cache_bytes: int
    memory_bytes: int
    set_bytes: int
    gemm_n: int
    fp64_gemm_n: int
    layer_n: int
    seq: int
    head_dim: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The working sets of one run; FP32 where nothing else is said.

    Attributes:
        elements: of the read-only source and of the scratch memory that all kernels share.
        heads, block_heads: attention heads in all, and at a time in the blocked version.
        layers: matrices in the decode-like chain.
    """

    limits: Limits
    elements: int
    gemm_n: int
    fp64_gemm_n: int
    layer_n: int
    layers: int
    seq: int
    head_dim: int
    heads: int
    block_heads: int

    @property
    def total_bytes(self) -> int:
        """Everything that is allocated: source, scratch, attention output, FP64 and FP16 operands."""
        output = 4 * self.heads * self.seq * self.head_dim
        operands = 2 * 8 * self.fp64_gemm_n**2 + 2 * 2 * self.gemm_n**2
        return 2 * 4 * self.elements + output + operands

    def level(self, set_bytes: float) -> str:
        """The level whose bytes a set of this size may be declared as."""
        if set_bytes >= DRAM_FACTOR * self.limits.cache_bytes:
            return "dram"
        return self.limits.cache_level


def plan_sizes(limits: Limits, scale: float = 1.0) -> Sizes:
    """Sets of `scale` × max(4 caches, what a launch needs), smaller where memory is short."""
    wanted = int(scale * max(DRAM_FACTOR * limits.cache_bytes, limits.set_bytes))
    set_bytes = max(wanted, LEAST_SET_BYTES)
    sizes = _fit(limits, set_bytes)
    while sizes.total_bytes > MEMORY_SHARE * limits.memory_bytes and set_bytes > LEAST_SET_BYTES:
        set_bytes = max(set_bytes * 3 // 4, LEAST_SET_BYTES)
        sizes = _fit(limits, set_bytes)
    return sizes


def cpu_gemm_n(cache_bytes: int, threads: int) -> int:
    """Order of a GEMM that stays in cache and takes about 30 ms on any number of cores.

    Three FP64 matrices fill at most three quarters of the cache; 1024 suits two cores (FP32 15 ms,
    FP64 30 ms), and the FLOPs grow with the cube of the order.
    """
    in_cache = math.sqrt(0.75 * cache_bytes / (3 * 8))
    in_time: float = 1024 * (threads / 2) ** (1 / 3)
    return max(256, round(min(in_cache, in_time)) // 64 * 64)


def _fit(limits: Limits, set_bytes: int) -> Sizes:
    """All shapes for a source of about `set_bytes`, rounded up to whole matrices."""
    layer_n, seq = limits.layer_n, limits.seq
    while 2 * 4 * layer_n**2 > set_bytes:
        layer_n //= 2
    while 2 * 4 * seq**2 > set_bytes:
        seq //= 2
    unit = max(layer_n, seq) ** 2  # both are powers of two, so this is a multiple of either square
    elements = -(-set_bytes // (4 * unit)) * unit
    heads = elements // seq**2
    most_n = math.isqrt(elements // 2) // 64 * 64  # A and B come from the source, C to the scratch
    return Sizes(
        limits=limits,
        elements=elements,
        gemm_n=min(limits.gemm_n, most_n),
        fp64_gemm_n=min(limits.fp64_gemm_n, most_n),
        layer_n=layer_n,
        layers=elements // layer_n**2,
        seq=seq,
        head_dim=min(limits.head_dim, seq // 4),
        heads=heads,
        block_heads=min(heads, max(1, limits.block_bytes // (4 * seq**2))),
    )
