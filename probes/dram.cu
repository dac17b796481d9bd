// DRAM bandwidth: STREAM's kernels (McCalpin 1995), and read and write by themselves.
//
// What it takes is bytes in flight: by Little's law 4.8 TB/s × about 0.8 µs of loaded latency is 4 MB,
// 29 KB for each of 132 SMs. 2048 threads with one load of 8 bytes each have 16 KB in flight, which is why
// a plain copy of doubles falls short. Loads of 16 bytes, several before the first store, have enough for
// any GPU.
//
// Elements go round the whole grid. Launched with 4 elements a thread the first loop runs once; any other
// number, and a fixed grid, work as well.

typedef unsigned long long u64;

const double SCALAR = 0.4;  // as in BabelStream; not a power of two

// Four elements of a thread at a time. The pointers of the kernels are restrict, so that the compiler may
// issue all loads of a batch before its first store.
template <typename Body>
__device__ __forceinline__ void for_each(u64 n, Body body) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < n; i += 4 * stride) {
        body(i);
        body(i + stride);
        body(i + 2 * stride);
        body(i + 3 * stride);
    }
    for (; i < n; i += stride) body(i);
}

__device__ __forceinline__ double2 load(const double2* p) { return *p; }

__device__ __forceinline__ void store(double2* p, double2 value) { *p = value; }

// a ← b
extern "C" __global__ void copy(double2* __restrict__ a, const double2* __restrict__ b, u64 n) {
    for_each(n, [=](u64 i) { store(a + i, load(b + i)); });
}

// Σ a. It is stored only where it is a number that it cannot be, which the compiler does not know.
extern "C" __global__ void read(double2* a, u64 n) {
    double sum = 0.0;
    for_each(n, [&](u64 i) {
        const double2 value = load(a + i);
        sum += value.x + value.y;
    });
    if (sum == 1.2345e300) a[0].x = sum;
}

// a ← s
extern "C" __global__ void write(double2* a, u64 n) {
    for_each(n, [=](u64 i) { store(a + i, make_double2(SCALAR, SCALAR)); });
}

// a ← s·b
extern "C" __global__ void scale(double2* __restrict__ a, const double2* __restrict__ b, u64 n) {
    for_each(n, [=](u64 i) {
        const double2 value = load(b + i);
        store(a + i, make_double2(SCALAR * value.x, SCALAR * value.y));
    });
}

// a ← b + s·c
extern "C" __global__ void triad(double2* __restrict__ a, const double2* __restrict__ b,
                                 const double2* __restrict__ c, u64 n) {
    for_each(n, [=](u64 i) {
        const double2 x = load(b + i), y = load(c + i);
        store(a + i, make_double2(x.x + SCALAR * y.x, x.y + SCALAR * y.y));
    });
}
