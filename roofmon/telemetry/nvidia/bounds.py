"""Physical bounds of a GPU, from its widths and clocks: what no kernel can pass, never measured.

All rates are dense, an FMA counts as two FLOPs, and integer operations count like FLOPs.
"""

from collections.abc import Mapping
from types import MappingProxyType

from roofmon.model.pipes import (
    TENSOR_BF16,
    TENSOR_FP8,
    TENSOR_FP16,
    TENSOR_FP64,
    TENSOR_INT8,
    TENSOR_TF32,
    VECTOR_FP16,
    VECTOR_FP32,
    VECTOR_FP64,
)
from roofmon.model.roofline import Ceiling, Pipe

L1_BYTES_PER_CLOCK = 128
"""Byte per clock and SM of L1 and shared memory: 32 banks of 4 byte (CUDA C++ Programming Guide, "Shared
Memory", for every compute capability from 5.0 on)."""

_PROBE = "physical"


def _widths(
    fp64: int,
    fp32: int,
    fp16: int,
    *,
    tensor_fp64: int = 0,
    tf32: int = 0,
    half: int = 0,
    bf16: bool = True,
    fp8: int = 0,
    int8: int = 0,
) -> Mapping[Pipe, int]:
    every = {
        VECTOR_FP64: fp64,
        VECTOR_FP32: fp32,
        VECTOR_FP16: fp16,
        TENSOR_FP64: tensor_fp64,
        TENSOR_TF32: tf32,
        TENSOR_FP16: half,
        TENSOR_BF16: half if bf16 else 0,
        TENSOR_FP8: fp8,
        TENSOR_INT8: int8,
    }
    return MappingProxyType({pipe: width for pipe, width in every.items() if width})


# FLOP per clock and SM. Vector rates are twice the results per clock of the throughput table in the CUDA
# C++ Programming Guide ("Arithmetic Instructions"). Tensor rates are those of the whitepapers, checked as
# peak / (SMs × boost clock) of the part named. Where GeForce cards halve a rate (FP32 accumulation) the
# full one stands here: a bound must not be passed by the professional card of the same chip.
WIDTHS: Mapping[str, Mapping[Pipe, int]] = MappingProxyType(
    {
        # Volta whitepaper WP-08608: V100, 125 TFLOP/s of 80 SMs at 1530 MHz.
        "7.0": _widths(64, 128, 256, half=1024, bf16=False),
        # Turing whitepaper WP-09183: RTX 2080 Ti, fp16 113.8 and int8 227.7 of 68 SMs at 1635 MHz.
        "7.5": _widths(4, 128, 256, half=1024, bf16=False, int8=2048),
        # A100 whitepaper: fp64 19.5, tf32 156, fp16 312, int8 624, vector fp16 78 of 108 SMs at 1410 MHz.
        "8.0": _widths(64, 128, 512, tensor_fp64=128, tf32=1024, half=2048, int8=4096),
        # GA102 whitepaper: RTX A6000, tf32 77.4, fp16 154.8, int8 309.7 of 84 SMs at 1800 MHz.
        "8.6": _widths(4, 256, 256, tf32=512, half=1024, int8=2048),
        # Ada whitepaper and L40S data sheet: tf32 183, fp16 362, fp8 and int8 733 of 142 SMs at 2520 MHz.
        "8.9": _widths(4, 256, 256, tf32=512, half=1024, fp8=2048, int8=2048),
        # H100 whitepaper: fp64 66.9, tf32 494.7, fp16 989.4, fp8 and int8 1978.9 of 132 SMs at 1830 MHz,
        # the clock that it gives for tensor work.
        "9.0": _widths(128, 256, 512, tensor_fp64=256, tf32=2048, half=4096, fp8=8192, int8=8192),
        # Blackwell data sheet (HGX B200): fp64 37, tf32 1100, fp16 2250, fp8 and int8 4500 of 148 SMs at
        # 1.85 GHz under tensor work.
        "10.0": _widths(
            128, 256, 512, tensor_fp64=128, tf32=4096, half=8192, fp8=16384, int8=16384
        ),
        # Blackwell Ultra data sheet (HGX B300): fp64 1.2, tf32 and up as the B200. It does not tell whether
        # its int8 rate is a dense one, nor the fp64 tensor rate by itself: no bound is known for them.
        "10.3": _widths(4, 256, 512, tf32=4096, half=8192, fp8=16384),
        # RTX Blackwell whitepaper: RTX PRO 6000, tf32 251.9, fp16 503.8, fp8 and int8 1007.6 of 188 SMs at
        # 2617 MHz.
        "12.0": _widths(4, 256, 256, tf32=512, half=1024, fp8=2048, int8=2048),
    }
)


def sm_count(cores: int, compute_capability: str) -> int | None:
    """Streaming multiprocessors of a GPU with so many CUDA cores; None where the ratio is not known.

    A CUDA core is one FP32 lane, two FLOPs per clock.
    """
    widths = WIDTHS.get(compute_capability)
    return cores // (widths[VECTOR_FP32] // 2) if widths else None


def dram_bound(memory_clock_hz: float, bus_bits: int) -> float:
    """Peak DRAM bandwidth in byte/s: NVML's memory clock moves two transfers a cycle on the live bus.

    H200: 2 × 3201 MHz × 6016 bit / 8 = 4.814 TB/s.
    """
    return 2 * memory_clock_hz * bus_bits / 8


def memory_share(instance_bytes: int, gpu_bytes: int) -> float:
    """The share of the DRAM bandwidth that a MIG instance has.

    Memory is dealt in eighths of the GPU, less a little that the driver keeps of each.
    """
    return min(8, max(1, round(8 * instance_bytes / gpu_bytes))) / 8


def physical_ceilings(
    *,
    compute_capability: str | None,
    sms: int | None,
    sm_clock_hz: float | None,
    dram_bytes_per_s: float | None,
    memory_clock_hz: float | None = None,
) -> tuple[Ceiling, ...]:
    """The ceilings of regime `bound`; without those that a missing value leaves unknown.

    Args:
        compute_capability: for example "9.0".
        sms: streaming multiprocessors, of the slice for a MIG instance.
        sm_clock_hz: the highest SM clock.
        dram_bytes_per_s: from `dram_bound`, of the slice for a MIG instance.
        memory_clock_hz: the highest memory clock.
    """
    ceilings = []
    if dram_bytes_per_s:
        ceilings.append(
            Ceiling(
                kind="bandwidth",
                level="dram",
                value=dram_bytes_per_s,
                ci_low=dram_bytes_per_s,
                ci_high=dram_bytes_per_s,
                regime="bound",
                n=0,
                probe=_PROBE,
                memory_clock_hz=memory_clock_hz,
            )
        )
    widths = WIDTHS.get(compute_capability or "")
    if widths and sms and sm_clock_hz:
        per_width = sms * sm_clock_hz
        l1 = L1_BYTES_PER_CLOCK * per_width
        ceilings.append(
            Ceiling(
                kind="bandwidth",
                level="l1",
                value=l1,
                ci_low=l1,
                ci_high=l1,
                regime="bound",
                n=0,
                probe=_PROBE,
                clock_hz=sm_clock_hz,
            )
        )
        for pipe, width in widths.items():
            peak = width * per_width
            ceilings.append(
                Ceiling(
                    kind="compute",
                    pipe=pipe,
                    value=peak,
                    ci_low=peak,
                    ci_high=peak,
                    regime="bound",
                    n=0,
                    probe=_PROBE,
                    clock_hz=sm_clock_hz,
                )
            )
    return tuple(ceilings)
