"""Which pipe and precision a kernel computes in, as far as its name tells.

Names are conventions of libraries, not promises: what is not recognised stays unknown. The letters of
cuBLAS' `nvjet` kernels are read off GEMMs whose types were known (t bf16, h fp16, q fp8); the others follow
the names that CUTLASS gives its kernels (types, accumulator, shape of the instruction) and those of types.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from roofmon.model.pipes import (
    TENSOR_BF16,
    TENSOR_FP8,
    TENSOR_FP16,
    TENSOR_FP64,
    TENSOR_INT8,
    TENSOR_TF32,
    VECTOR_FP32,
    VECTOR_FP64,
)
from roofmon.model.roofline import Pipe

Instruction = Literal["wgmma", "mma.sync", ""]


@dataclass(frozen=True)
class Computes:
    """What a name tells: the pipe (None: not one) and, on tensor pipes, the kind of instruction.

    `among` are the few pipes that it leaves, where it does not tell one.
    `instruction` is "" where it is not known, and for FP64, which wgmma does not have. On sm_90 mma.sync
    keeps the tensor pipe busy for about 1.5 times the cycles of wgmma for the same FLOPs.
    """

    pipe: Pipe | None = None
    instruction: Instruction = ""
    among: tuple[Pipe, ...] = ()


# cuBLAS: nvjet[_smNN]_<A><B><C>…: the first letter is the type of the matrices that are multiplied.
_NVJET = re.compile(r"\bnvjet_(?:sm\d+_)?([a-z]+)_\d")
_NVJET_LETTER = {"t": TENSOR_BF16, "h": TENSOR_FP16, "q": TENSOR_FP8}

# sm90_xmma_gemm_<A><B>_<compute>_<C>…, where TF32 shows only in the middle.
_XMMA = re.compile(
    r"sm\d+_xmma_\w*?gemm_(?:\w+?_)??(T{2}_T{2})_".replace("T", "(?:e4m3|e5m2|[a-z]+\\d+)")
)
_XMMA_TYPE = {
    "bf16": TENSOR_BF16,
    "f16": TENSOR_FP16,
    "tf32": TENSOR_TF32,
    "f64": TENSOR_FP64,
    "e4m3": TENSOR_FP8,
    "e5m2": TENSOR_FP8,
    "i8": TENSOR_INT8,
    "s8": TENSOR_INT8,
    "u8": TENSOR_INT8,
}
_TYPE = re.compile(r"bf16|tf32|f64|f32|f16|e4m3|e5m2|[isu]8")

# CUTLASS and the cuBLAS kernels named like it: [type_][accumulator]MMMNNKKgemm; the accumulator is s, h, d
# or i. With an accumulator of FP32 (s) and no type anywhere, the inputs may be of any kind.
_SHAPED = re.compile(
    r"(?:^|[_<])(?:(bf16|tf32|f16|fp16|int8|s8|u8)_)?([shdi])\d{3,6}(bf16|tf32|f16)?"
    r"(?:gemm|fprop|dgrad|wgrad)"
)
_SHAPED_TYPE = {
    "bf16": TENSOR_BF16,
    "tf32": TENSOR_TF32,
    "f16": TENSOR_FP16,
    "fp16": TENSOR_FP16,
    "int8": TENSOR_INT8,
    "s8": TENSOR_INT8,
    "u8": TENSOR_INT8,
}
_ACCUMULATOR = {"h": TENSOR_FP16, "d": TENSOR_FP64, "i": TENSOR_INT8}
_SIMT = re.compile(r"(?:^|[_<])(?:simt_)?(s|d)gemm(?:_|$|\b)")
_VECTOR = {"s": VECTOR_FP32, "d": VECTOR_FP64}

# Type names in template arguments and free text, the narrow ones first: a kernel that takes 8-bit inputs
# and writes 16-bit outputs multiplies 8-bit numbers. Only where the name also says that it multiplies.
_MULTIPLIES = re.compile(
    r"gemm|gemv|matmul|(?<!ga)mma|flash|fmha|attention|conv(?!ert)|_mm(?:_|\b)|tensorop|sdpa",
    re.IGNORECASE,
)
_ATTENTION = re.compile(r"flash|fmha|attention|sdpa", re.IGNORECASE)
_WORDS = (
    (re.compile(r"e4m3|e5m2|float_?8|fp8|f8f6f4", re.IGNORECASE), TENSOR_FP8),
    (re.compile(r"int8|(?:^|[^a-z])[su]8(?:[^0-9]|$)|signed char", re.IGNORECASE), TENSOR_INT8),
    (re.compile(r"bf16|bfloat_?16|bfloat", re.IGNORECASE), TENSOR_BF16),
    (re.compile(r"tf32|tfloat32", re.IGNORECASE), TENSOR_TF32),
    (re.compile(r"fp16|\bhalf|6half_t|(?<!b)f16|(?<!b)float16|__half", re.IGNORECASE), TENSOR_FP16),
)
_OTHER_MIX = re.compile(r"fp4|e2m1|mxf4|nvf4|int4|[su]4(?:[^0-9]|$)", re.IGNORECASE)

# cuDNN's attention: f16 is any type of 16 bits; of bf16 inputs the same kernels run.
_CUDNN = re.compile(r"cudnn_generated_\w+_f16_")

_WGMMA = re.compile(
    r"wgmma|gmma|warpgroup|warpspecialized|nvjet_sm90|sm90_xmma|cutlass3x_sm90|FlashAttnFwdSm90",
    re.IGNORECASE,
)
_MMA_SYNC = re.compile(
    r"sm[78]\d_xmma|cutlass_[78]\d_|ampere_|turing_|volta_|16816|1688|161616|884gemm|tensor16x8"
    r"|_sm[78]\d\b|_sm80_flash|_wmma_|Sm80|flash_fwd_kernel|flash_bwd|flash_fwd_split"
)


def computes(name: str) -> Computes:
    """The pipe and instruction of a kernel by its name, mangled or not."""
    if _CUDNN.match(name):
        return replace(computes_in(name, None), among=(TENSOR_BF16, TENSOR_FP16))
    return computes_in(name, _pipe(name))


def computes_in(name: str, pipe: Pipe | None) -> Computes:
    """The same where the pipe is known otherwise, or is not: the name may tell the instruction alone."""
    if pipe is not None and (pipe.unit == "vector" or pipe == TENSOR_FP64):
        return Computes(pipe)
    instruction: Instruction = ""
    if _WGMMA.search(name):
        instruction = "wgmma"
    elif _MMA_SYNC.search(name):
        instruction = "mma.sync"
    return Computes(pipe, instruction)


def _pipe(name: str) -> Pipe | None:
    if found := _NVJET.search(name):
        return _NVJET_LETTER.get(found[1][0])
    if found := _XMMA.search(name):
        return _xmma_pipe(name, found[1])
    if _OTHER_MIX.search(name):
        return None
    return _shaped_pipe(name) or _named_pipe(name)


def _shaped_pipe(name: str) -> Pipe | None:
    if found := _SHAPED.search(name):
        written = found[1] or found[3]
        return _SHAPED_TYPE[written] if written else _ACCUMULATOR.get(found[2])
    if (found := _SIMT.search(name)) and "tensorop" not in name:
        return _VECTOR[found[1]]
    return None


def _named_pipe(name: str) -> Pipe | None:
    if not _MULTIPLIES.search(name):
        return None
    named = [pipe for word, pipe in _WORDS if word.search(name)]
    if len(named) > 1 and _ATTENTION.search(name):
        return None  # a cache kept in FP8 is often widened before it is multiplied
    return named[0] if named else None


def _xmma_pipe(name: str, types: str) -> Pipe | None:
    """The narrowest of the types that go in; a vector pipe where the name says ffma or no tensor."""
    written = _TYPE.findall(types)
    for kind in ("e4m3", "e5m2", "i8", "s8", "u8", "bf16", "f16", "tf32"):
        if kind in written:
            return _XMMA_TYPE[kind]
    on_tensor = "tensor" in name or "warpgroup" in name
    if "f64" in written:
        return TENSOR_FP64 if on_tensor else VECTOR_FP64
    return None if on_tensor else VECTOR_FP32
