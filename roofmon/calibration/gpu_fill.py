"""What GPU memory is filled with: random numbers, as the data of programs is.

Data costs power: zeros, or numbers of one exponent, let a power-capped tensor core run faster than it does
on data. These are bell-shaped around zero (σ = 0.44, never beyond ±2) with random bits down to the last.
"""

from collections.abc import Mapping

KERNELS: Mapping[str, tuple[str, int]] = {
    "fp64": ("fill_fp64", 8),
    "fp32": ("fill_fp32", 4),
    "tf32": ("fill_fp32", 4),
    "fp16": ("fill_fp16", 2),
    "bf16": ("fill_bf16", 2),
}
"""By precision: the kernel(numbers, u64 n) and the bytes of a number."""

SOURCE = r"""
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ u64 mixed(u64 x) {  // the finalizer of splitmix64, Steele et al. 2014
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// The sum of four uniform numbers is nearly normal, but has 18 bits: a factor fills up the rest.
__device__ double number(u64 i) {
    const u64 a = mixed((2 * i + 1) * 0x9e3779b97f4a7c15ull);
    const u64 b = mixed((2 * i + 2) * 0x9e3779b97f4a7c15ull);
    const int sum = (int)(a & 0xffff) + (int)(a >> 16 & 0xffff) + (int)(a >> 32 & 0xffff) + (int)(a >> 48);
    return (sum - 131070) / 65536.0 * (0.5 + (b >> 12) / 9007199254740992.0);
}

__device__ u32 bits_of(float x) {
    union { float number; u32 bits; } both;
    both.number = x;
    return both.bits;
}

// To the nearest, ties to even, without a header of CUDA's, which need not be there.
__device__ u16 to_bf16(float x) {
    const u32 bits = bits_of(x);
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

__device__ u16 to_fp16(float x) {  // for numbers that fp16 can hold; the smallest become zero
    const u32 bits = bits_of(x), size = bits & 0x7fffffff;
    const u32 rounded = size + 0xfff + (size >> 13 & 1);
    return (u16)((bits >> 16 & 0x8000) | (size < 0x38800000 ? 0 : (rounded - 0x38000000) >> 13));
}

#define FILL(name, type, converted)                                                    \
    extern "C" __global__ void name(type* numbers, u64 n) {                            \
        const u64 stride = (u64)gridDim.x * blockDim.x;                                \
        for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)   \
            numbers[i] = converted;                                                    \
    }

FILL(fill_fp64, double, number(i))
FILL(fill_fp32, float, (float)number(i))
FILL(fill_fp16, u16, to_fp16((float)number(i)))
FILL(fill_bf16, u16, to_bf16((float)number(i)))
"""
