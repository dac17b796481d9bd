// Bandwidth of shared memory and of L1, which are one array of 32 banks of 4 bytes: 128 bytes a clock.
//
// Each lane reads 16 bytes next to those of its neighbour, free of conflicts: a warp's load moves 512 bytes
// in 4 clocks. The 16 loads of an iteration take 64 clocks, in which the SM can issue 256 instructions: the
// loads are 16, the XORs that use all that was read 32 (a LOP3 of three inputs takes in two words), and the
// loop 6. That is a fifth, so nothing but the array is the limit. The offset moves with each iteration, so
// that no load can be lifted out of the loop.

typedef unsigned int u32;

const u32 LOADS = 16;       // of a thread in an iteration
const u32 APART = 64;       // elements between them
const u32 STARTS = 1024;    // elements at which a lane may start
const u32 ELEMENTS = 2048;  // of the set: 32 KB, twice in the shared memory of an SM, and in any L1

__device__ __forceinline__ u32 hash(u32 x) {  // the finalizer of MurmurHash3
    x = (x ^ x >> 16) * 0x85ebca6b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    return x ^ x >> 16;
}

// Random bits: zeros would take less power than data do.
__device__ __forceinline__ void fill(uint4* set) {
    for (u32 i = threadIdx.x; i < ELEMENTS; i += blockDim.x)
        set[i] = make_uint4(hash(4 * i), hash(4 * i + 1), hash(4 * i + 2), hash(4 * i + 3));
    __syncthreads();
}

template <typename Load>
__device__ __forceinline__ void read_again(u32 iterations, uint4* sink, Load load) {
    uint4 sum = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (u32 iteration = 0; iteration < iterations; ++iteration) {
        const u32 first = (threadIdx.x + 32 * iteration) % STARTS;
#pragma unroll
        for (u32 j = 0; j < LOADS; ++j) {
            const uint4 value = load(first + APART * j);
            sum.x ^= value.x;
            sum.y ^= value.y;
            sum.z ^= value.z;
            sum.w ^= value.w;
        }
    }
    // As good as never so, which the compiler does not know.
    if (sum.x == 0x9e3779b9 && sum.y == 0x7f4a7c15 && sum.z == 0xf39cc060 && sum.w == 0x5cedc834)
        *sink = sum;
}

extern "C" __global__ void __launch_bounds__(1024, 2) shared_read(u32 iterations, uint4* sink) {
    __shared__ uint4 set[ELEMENTS];
    fill(set);
    read_again(iterations, sink, [&](u32 i) { return set[i]; });
}

// All blocks write the same values into it; plain loads of it are kept in L1.
__device__ uint4 global_set[ELEMENTS];

extern "C" __global__ void __launch_bounds__(1024, 2) l1_read(u32 iterations, uint4* sink) {
    fill(global_set);
    read_again(iterations, sink, [](u32 i) { return global_set[i]; });
}
