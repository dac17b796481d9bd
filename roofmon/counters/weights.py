"""How many FLOPs a count of a hardware counter stands for, by architecture and precision.

Each row was measured against kernels of known FLOPs, or is absent: no row means unknown. One FMA is two
FLOPs; integer operations count like FLOPs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from roofmon.model import pipes
from roofmon.model.roofline import Pipe

TENSOR = "sm__pipe_tensor_cycles_active_realtime.sum"
"""All that tensor cores do, DMMA too. There are counters for the types apart, but with five of an SM in a
set reading takes three times as long on an H200, and the first sample of a read lacks what SMs counted."""
DMMA = "smsp__pipe_tensor_op_dmma_cycles_active_realtime.sum"
FP64_PIPE = "sm__pipe_fp64_cycles_active_realtime.sum"
FMA_HEAVY = "sm__inst_executed_pipe_fmaheavy_realtime.sum"
FMA_LITE = "sm__inst_executed_pipe_fmalite_realtime.sum"
CYCLES = "sm__cycles_elapsed.avg"

MMA_SYNC_FACTOR = 1.5
"""Tensor cycles of mma.sync over those of wgmma for the same FLOPs, on sm_90: 1.5000 in chains of bf16
and of int8 instructions, in FlashAttention-2 and in an int8 GEMM of torch."""


@dataclass(frozen=True)
class Weights:
    """FLOPs per count on one architecture; `tensor` and `vector` by counter, then pipe.

    Those of TENSOR are by what it counts beside DMMA, and under wgmma; DMMA is one instruction.
    `tensor_per_clock` is the most that each tensor counter counts in one clock of one SM.
    """

    tensor: Mapping[str, Mapping[Pipe, float]]
    vector: Mapping[str, Mapping[Pipe, float]]
    tensor_per_clock: Mapping[str, float]


WEIGHTS: Mapping[str, Weights] = MappingProxyType(
    {
        # H200, cuBLAS GEMMs that use wgmma: bf16, fp16, tf32 and fp8 within 0.02 % of 2·m·n·k; int8 in
        # chains of wgmma, 2048.00.
        "9.0": Weights(
            tensor={
                TENSOR: {
                    pipes.TENSOR_BF16: 1024.0,
                    pipes.TENSOR_FP16: 1024.0,
                    pipes.TENSOR_TF32: 512.0,
                    pipes.TENSOR_FP8: 2048.0,
                    pipes.TENSOR_INT8: 2048.0,
                },
                # FP64 GEMM, 64.00.
                DMMA: {pipes.TENSOR_FP64: 64.0},
            },
            vector={
                # Chain of DFMA: 32.2.
                FP64_PIPE: {pipes.VECTOR_FP64: 32.0},
                # Chain of FFMA 64.4 (of FADD 32.2); an FP32 GEMM within 0.1 %. 32 lanes × 2.
                FMA_HEAVY: {pipes.VECTOR_FP32: 64.0},
                FMA_LITE: {pipes.VECTOR_FP32: 64.0},
            },
            # Widths over weights: 4096 / 1024 for bf16, 256 / 64 for fp64.
            tensor_per_clock={TENSOR: 4.0, DMMA: 4.0},
        ),
    }
)
