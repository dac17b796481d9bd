// L2 bandwidth in requested bytes: all blocks read a set that fits in L2, again and again.
//
// - L1 is passed by: loads with .cg are kept in L2 only.
// - The set is cut into rows, and in every step each block takes one. Which one is shifted at random from
//   step to step, the same for all blocks: so each row is read exactly `passes` times, and each SM comes to
//   read rows of all the set, from both halves of an L2 that is divided, whatever the number of blocks.
// - Steps run on over the end of a pass. Only the very last one may leave blocks without work.
// - In flight are 4 loads of 16 bytes of 2048 threads, 128 KB an SM; 10 TB/s × 0.3 µs / 132 SMs asks for
//   23 KB. At 38 bytes a clock and SM a warp's load comes every 13 clocks, in which 54 instructions can
//   issue; with all that finds the row and uses what was read it is 16.

typedef unsigned int u32;
typedef unsigned long long u64;

const u32 LOADS = 4;  // of a thread in a step

extern "C" __global__ void __launch_bounds__(1024, 2)
l2_read(const uint4* data, u64 n, u32 passes, uint4* sink) {
    const u32 count = (u32)n;  // 2^32 elements would be 64 GiB
    const u32 row_elements = blockDim.x * LOADS;
    const u32 rows = (count + row_elements - 1) / row_elements;
    const u32 all_rows = rows * passes;  // some 10^5 in milliseconds
    const u32 shift = gridDim.x % rows;
    uint4 sum = make_uint4(0, 0, 0, 0);
    u32 begin = 0;  // the row of the step's first place
    for (u32 step = 0; step < all_rows; step += gridDim.x) {
        u32 place = __umulhi(step * 0x9e3779b9, gridDim.x) + blockIdx.x;
        if (place >= gridDim.x) place -= gridDim.x;
        u32 row = begin + place;
        while (row >= rows) row -= rows;
        begin += shift;
        if (begin >= rows) begin -= rows;
        if (step + place >= all_rows) continue;
        const u32 first = row * row_elements + threadIdx.x;
        uint4 value[LOADS];
#pragma unroll
        for (u32 j = 0; j < LOADS; ++j) {
            const u32 i = first + j * blockDim.x;
            value[j] = make_uint4(0, 0, 0, 0);
            if (i < count) value[j] = __ldcg(data + i);
        }
#pragma unroll
        for (u32 j = 0; j < LOADS; ++j) {
            sum.x ^= value[j].x;
            sum.y ^= value[j].y;
            sum.z ^= value[j].z;
            sum.w ^= value[j].w;
        }
    }
    // As good as never so, which the compiler does not know.
    if (sum.x == 0x9e3779b9 && sum.y == 0x7f4a7c15 && sum.z == 0xf39cc060 && sum.w == 0x5cedc834)
        *sink = sum;
}
