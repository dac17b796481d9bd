"""How many FLOPs a count of a hardware counter stands for, by architecture and precision.

Each row was measured against kernels of known FLOPs, or is absent: no row means unknown. One FMA is two
FLOPs; integer operations count like FLOPs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from roofmon.model import pipes
from roofmon.model.roofline import Pipe

HMMA = "sm__pipe_tensor_op_hmma_cycles_active_realtime.sum"
IMMA = "sm__pipe_tensor_op_imma_cycles_active_realtime.sum"
DMMA = "smsp__pipe_tensor_op_dmma_cycles_active_realtime.sum"
FP64_PIPE = "sm__pipe_fp64_cycles_active_realtime.sum"
FMA_HEAVY = "sm__inst_executed_pipe_fmaheavy_realtime.sum"
FMA_LITE = "sm__inst_executed_pipe_fmalite_realtime.sum"
CYCLES = "sm__cycles_elapsed.avg"

MMA_SYNC_FACTOR = 1.5
"""Tensor cycles of mma.sync over those of wgmma for the same FLOPs, on sm_90: FlashAttention-2 showed
1.500, an int8 GEMM 1.49."""


@dataclass(frozen=True)
class Weights:
    """FLOPs per count on one architecture; `tensor` and `vector` by counter, then pipe.

    `tensor_per_clock` is the most that each tensor counter counts in one clock of one SM. `by_wgmma` are
    the tensor counters whose weight is that of wgmma; the others' holds for the only instruction there is.
    `assumed` are those of them whose weight under wgmma follows from the pipe's width, not a measurement.
    """

    tensor: Mapping[str, Mapping[Pipe, float]]
    vector: Mapping[str, Mapping[Pipe, float]]
    tensor_per_clock: Mapping[str, float]
    by_wgmma: frozenset[str]
    assumed: frozenset[str]


WEIGHTS: Mapping[str, Weights] = MappingProxyType(
    {
        # H200, cuBLAS GEMMs that use wgmma: bf16, fp16, tf32 and fp8 within 0.02 % of 2·m·n·k.
        "9.0": Weights(
            tensor={
                HMMA: {
                    pipes.TENSOR_BF16: 1024.0,
                    pipes.TENSOR_FP16: 1024.0,
                    pipes.TENSOR_TF32: 512.0,
                    pipes.TENSOR_FP8: 2048.0,
                },
                # By the width of the pipe (8192 operations a clock, four counts); under wgmma not
                # measured. An mma.sync GEMM gave 1375 = 2048 / 1.49.
                IMMA: {pipes.TENSOR_INT8: 2048.0},
                # FP64 GEMM, 63.97.
                DMMA: {pipes.TENSOR_FP64: 64.0},
            },
            vector={
                # Chain of DFMA: 32.2.
                FP64_PIPE: {pipes.VECTOR_FP64: 32.0},
                # Chain of FFMA 64.4 (of FADD 32.2); an FP32 GEMM within 0.1 %. 32 lanes × 2.
                FMA_HEAVY: {pipes.VECTOR_FP32: 64.0},
                FMA_LITE: {pipes.VECTOR_FP32: 64.0},
            },
            # Widths over weights: 4096 / 1024 for hmma, 8192 / 2048 for imma, 256 / 64 for dmma.
            tensor_per_clock={HMMA: 4.0, IMMA: 4.0, DMMA: 4.0},
            by_wgmma=frozenset({HMMA, IMMA}),
            assumed=frozenset({IMMA}),
        ),
    }
)
