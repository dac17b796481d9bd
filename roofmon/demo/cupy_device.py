"""CuPy on one GPU: whole-array operations, each a kernel of its own."""

import ctypes
import os
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from roofmon.demo.device import Array
from roofmon.demo.sizes import Limits

os.environ.pop("CUPY_TF32", None)  # read at first use; with TF32 the FP32 GEMM would not be FP32
import cupy

_FP64_TENSOR = frozenset({"80", "90", "100"})
"""Compute capabilities whose FP64 GEMM runs on tensor cores: A100, H100/H200, B200."""

_THREADS = 256

_SOFTMAX = r"""
__device__ float reduce(float v, bool largest) {
    __shared__ float of_warp[32];
    for (int step = 16; step > 0; step >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, v, step);
        v = largest ? fmaxf(v, other) : v + other;
    }
    __syncthreads();  // the call before may still be reading
    if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x >> 5] = v;
    __syncthreads();
    v = of_warp[0];
    for (int warp = 1; warp < (blockDim.x >> 5); ++warp)
        v = largest ? fmaxf(v, of_warp[warp]) : v + of_warp[warp];
    return v;
}

// One block a row. The row is kept in shared memory: memory is read once and written once.
extern "C" __global__ void softmax_rows(float* x, int cols) {
    extern __shared__ float row[];
    float* at = x + (size_t)blockIdx.x * cols;
    float top = -3.4e38f, sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) top = fmaxf(top, row[i] = at[i]);
    top = reduce(top, true);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += row[i] = expf(row[i] - top);
    float scale = 1.0f / reduce(sum, false);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) at[i] = row[i] * scale;
}
"""


def _uuid(ordinal: int) -> str:
    """The UUID of a device as the driver writes it; CuPy cuts it at its first zero byte."""
    driver = ctypes.CDLL("libcuda.so.1")
    handle, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if driver.cuDeviceGet(ctypes.byref(handle), ordinal) or driver.cuDeviceGetUuid_v2(raw, handle):
        raise RuntimeError(f"the driver does not tell the UUID of device {ordinal}")
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


class CupyDevice:
    """See `device.Device`; the current device of the process. Raises whatever CuPy raises without one."""

    xp: Any = cupy
    half_gemm = True
    note = "on the GPU each region waits for the stream, so that its time is the kernel's"

    def __init__(self) -> None:
        device = cupy.cuda.Device()
        properties = cupy.cuda.runtime.getDeviceProperties(device.id)
        self.uuid = _uuid(device.id)
        self.name = properties["name"].decode()
        l2 = int(device.attributes["L2CacheSize"])
        self.fp64_gemm_unit = "tensor" if device.compute_capability in _FP64_TENSOR else "vector"
        self.limits = Limits(
            cache_level="l2",
            cache_bytes=l2,
            memory_bytes=int(cupy.cuda.runtime.memGetInfo()[0]),
            set_bytes=4 << 30,  # 1 ms at 4 TB/s, against 20 µs to launch and wait
            gemm_n=8192,
            fp64_gemm_n=8192 if self.fp64_gemm_unit == "tensor" else 2048,
            layer_n=8192,
            seq=2048,
            head_dim=128,
            block_bytes=l2 // 2,
        )
        self._triad = cupy.ElementwiseKernel(
            "T b, T c, T scalar", "T out", "out = b + scalar * c", "triad"
        )
        self._softmax = cupy.RawKernel(_SOFTMAX, "softmax_rows")

    def parallel(self, count: int, body: Callable[[int, int], object]) -> None:
        """One call: the device spreads the work itself."""
        body(0, count)

    def triad(self, b: Array, c: Array, scalar: float, out: Array) -> None:
        """One fused kernel."""
        self._triad(b, c, scalar, out)

    def softmax_rows(self, x: Array) -> None:
        """One kernel that reads and writes each element once; x is FP32 and contiguous."""
        cols = x.shape[-1]
        self._softmax((x.size // cols,), (_THREADS,), (x, np.int32(cols)), shared_mem=4 * cols)

    def matmul(self, a: Array, b: Array, out: Array) -> None:
        """cuBLAS; two-dimensional FP16 accumulates in FP32 on tensor cores."""
        cupy.matmul(a, b, out=out)

    def to_host(self, array: Array) -> Array:
        """A float64 NumPy copy."""
        return cupy.asnumpy(array).astype(np.float64)

    def synchronize(self) -> None:
        """Waits for the stream that everything here is launched on."""
        cupy.cuda.get_current_stream().synchronize()

    def close(self) -> None:
        """Nothing of its own to end."""
