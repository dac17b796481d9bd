// Vector pipes: chains of multiply-adds in registers, x ← x·x + c, with integers x ← x·c + c.
//
// - The next multiply-add of a chain can issue 4 clocks after the one before it (fp64: 8, and more on GPUs
//   with few fp64 lanes). 8 independent chains in each of 8 to 16 warps a scheduler cover that many times.
// - 512 multiply-adds and 3 other instructions an iteration: 0.6 % for the loop. Where a pipe takes an
//   instruction every clock, as fp32 does, nothing can issue beside it, and this counts. The loop's 8 KB of
//   code fit in the smallest instruction cache.
// - Only two registers are read: three from the same register bank would cost a clock.
// - With c between −2 and −1.4 the map x² + c is chaotic and stays within [−2, 2] for ever: the values look
//   random, and neither overflow nor vanish. x times a constant plus another would run into a fixed point,
//   and operands that do not change take less power than data do.

typedef unsigned int u32;

const u32 CHAINS = 8;
const u32 STEPS = 64;

__device__ __forceinline__ u32 hash(u32 x) {  // the finalizer of MurmurHash3
    x = (x ^ x >> 16) * 0x85ebca6b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    return x ^ x >> 16;
}

// By type of number: the start of a chain in [0, 1), c, a step, and whether x is what it never can be. That
// is stored, so that the compiler must compute it, and is a sign of a fault.

const double UNIT = 1.0 / 4294967296.0;  // of a random u32 in [0, 1)

__device__ __forceinline__ void start(double& x, u32 random) { x = random * UNIT; }
__device__ __forceinline__ void constant(double& c, u32 random) { c = -1.5 - 0.4 * (random * UNIT); }
__device__ __forceinline__ double step(double x, double c) { return fma(x, x, c); }
__device__ __forceinline__ bool escaped(double x) { return !(fabs(x) <= 2.0); }

__device__ __forceinline__ void start(float& x, u32 random) { x = random * (float)UNIT; }
__device__ __forceinline__ void constant(float& c, u32 random) {
    c = -1.5f - 0.4f * (random * (float)UNIT);
}
__device__ __forceinline__ float step(float x, float c) { return fmaf(x, x, c); }
__device__ __forceinline__ bool escaped(float x) { return !(fabsf(x) <= 2.0f); }

// Two halves, by their bits, since cuda_fp16.h is not always there at run time: from 0x3800 on are the
// numbers in [0.5, 1), from 0xbe00 on those from −1.5 down to −1.75.
struct Half2 {
    u32 bits;
};

__device__ __forceinline__ void start(Half2& x, u32 random) {
    x.bits = 0x38003800 | (random & 0x03ff03ff);
}
__device__ __forceinline__ void constant(Half2& c, u32 random) {
    c.bits = 0xbe00be00 | (random & 0x00ff00ff);
}
__device__ __forceinline__ Half2 step(Half2 x, Half2 c) {
    Half2 y;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y.bits) : "r"(x.bits), "r"(x.bits), "r"(c.bits));
    return y;
}
__device__ __forceinline__ bool escaped(Half2 x) {  // to infinity, or no number
    return (x.bits & 0x7c00) == 0x7c00 || (x.bits & 0x7c000000) == 0x7c000000;
}

// x·c + c modulo 2^32, which runs through all numbers where c is 1 modulo 4; x² + c would end in a fixed
// point. The lowest bit changes in each step: after an iteration it is that of the start. In PTX, so that it
// is one instruction, and the compiler cannot find that out.
__device__ __forceinline__ void start(u32& x, u32 random) { x = random & ~1u; }
__device__ __forceinline__ void constant(u32& c, u32 random) { c = (random & ~3u) | 1; }
__device__ __forceinline__ u32 step(u32 x, u32 c) {
    u32 y;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(y) : "r"(x), "r"(c), "r"(c));
    return y;
}
__device__ __forceinline__ bool escaped(u32 x) { return x & 1; }

template <typename T>
__device__ __forceinline__ void run(u32 iterations, T* sink) {
    const u32 seed = (blockIdx.x * blockDim.x + threadIdx.x) * (CHAINS + 1);
    T x[CHAINS], c;
#pragma unroll
    for (u32 chain = 0; chain < CHAINS; ++chain) start(x[chain], hash(seed + chain));
    constant(c, hash(seed + CHAINS));
#pragma unroll 1
    for (u32 iteration = 0; iteration < iterations; ++iteration) {
#pragma unroll
        for (u32 i = 0; i < STEPS; ++i) {
#pragma unroll
            for (u32 chain = 0; chain < CHAINS; ++chain) x[chain] = step(x[chain], c);
        }
    }
#pragma unroll
    for (u32 chain = 0; chain < CHAINS; ++chain) {
        if (escaped(x[chain])) *sink = x[chain];
    }
}

extern "C" __global__ void __launch_bounds__(1024, 2) fma_fp64(u32 iterations, double* sink) {
    run(iterations, sink);
}

extern "C" __global__ void __launch_bounds__(1024, 2) fma_fp32(u32 iterations, float* sink) {
    run(iterations, sink);
}

extern "C" __global__ void __launch_bounds__(1024, 2) fma_fp16(u32 iterations, Half2* sink) {
    run(iterations, sink);
}

extern "C" __global__ void __launch_bounds__(1024, 2) imad_int32(u32 iterations, u32* sink) {
    run(iterations, sink);
}
