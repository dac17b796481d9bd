// Runs the CUDA C of the probes on a CPU, one thread after the other, and counts what it does.
//
// The test puts each file into a namespace of its own after this header, with `extern "C" __global__` made
// static and its inline PTX made calls of ptx(), and then calls the functions at the end from main().

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

typedef unsigned long long u64;

struct Place {
    unsigned x;
};
static Place threadIdx, blockIdx, blockDim, gridDim;
static void __syncthreads() {}
static unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }

// What was done. Memory is whatever is not on the stack: there are the registers of a thread.
struct Counts {
    long loads, bypassing, stores, multiply_adds, unchanged;
    double largest;
    std::map<const char*, long> by_address;        // loads
    std::vector<const char*> trails[32];           // of the first warp: addresses loaded and stored
    std::vector<std::set<const char*>> by_block;   // addresses loaded
};
static Counts counts;
static const char* stack_base;

static bool in_memory(const void* p) {
    const char here = 0;
    return p < &here - 65536 || p > stack_base;
}

static void note(const void* address) {
    if (blockIdx.x == 0 && threadIdx.x < 32) counts.trails[threadIdx.x].push_back((const char*)address);
}

static void note_copy(const void* from, const void* to) {
    if (in_memory(from)) {
        ++counts.loads;
        ++counts.by_address[(const char*)from];
        counts.by_block[blockIdx.x].insert((const char*)from);
        note(from);
    }
    if (in_memory(to)) {
        ++counts.stores;
        note(to);
    }
}

struct double2 {
    double x, y;
    double2() = default;
    double2(double x, double y) : x(x), y(y) {}
    double2(const double2& other) : x(other.x), y(other.y) { note_copy(&other, this); }
    double2& operator=(const double2& other) {
        x = other.x, y = other.y;
        note_copy(&other, this);
        return *this;
    }
};

struct uint4 {
    unsigned x, y, z, w;
    uint4() = default;
    uint4(unsigned x, unsigned y, unsigned z, unsigned w) : x(x), y(y), z(z), w(w) {}
    uint4(const uint4& other) { *this = other; }
    uint4& operator=(const uint4& other) {
        x = other.x, y = other.y, z = other.z, w = other.w;
        note_copy(&other, this);
        return *this;
    }
};

static double2 make_double2(double x, double y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static uint4 __ldcg(const uint4* p) {
    ++counts.bypassing;
    return *p;
}

// Multiply-adds: how many, and what comes out of them.

static double noted(double before, double after) {
    ++counts.multiply_adds;
    counts.unchanged += before == after;
    const double size = std::fabs(after);
    // Written so that NaN becomes the largest and stays it.
    if (!(size <= counts.largest)) counts.largest = size;
    return after;
}

static double counted_fma(double x, double y, double z) { return noted(x, std::fma(x, y, z)); }
static float counted_fmaf(float x, float y, float z) { return (float)noted(x, std::fmaf(x, y, z)); }

static double from_half(unsigned bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31  ? (fraction ? NAN : INFINITY)
                        : exponent == 0 ? std::ldexp(fraction, -24)
                                        : std::ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

static unsigned to_half(double x) {
    const unsigned sign = std::signbit(x) ? 0x8000 : 0;
    if (x == 0) return sign;
    int exponent = std::max(std::ilogb(x), -14);
    double fraction = std::nearbyint(std::ldexp(std::fabs(x), 10 - exponent));  // to even, as .rn does
    if (fraction == 2048) fraction = 1024, ++exponent;
    if (!(exponent <= 15)) return sign | 0x7c00;
    const unsigned whole = (unsigned)fraction;
    return sign | (whole < 1024 ? whole : (exponent + 15) << 10 | (whole - 1024));
}

static unsigned half_fma(unsigned x, unsigned y, unsigned z) {
    // Of numbers with 11 bits around one, the product and the sum are exact in a double.
    const double result = from_half(x) * from_half(y) + from_half(z);
    return to_half(noted(from_half(x), result));
}

static unsigned ptx(const std::string& instruction, unsigned x, unsigned y, unsigned z) {
    if (instruction == "fma.rn.f16x2")
        return half_fma(x & 0xffff, y & 0xffff, z & 0xffff) | half_fma(x >> 16, y >> 16, z >> 16) << 16;
    if (instruction == "mad.lo.u32") {
        noted(x, x * y + z);
        return x * y + z;
    }
    std::printf("no such instruction: %s\n", instruction.c_str());
    std::exit(1);
}

// Launching.

template <typename Kernel, typename... Arguments>
static void launch(Kernel kernel, unsigned grid, unsigned block, Arguments... arguments) {
    counts = Counts();
    counts.by_block.resize(grid);
    gridDim.x = grid, blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) kernel(arguments...);
}

// Whether lanes of a warp always touched neighbouring elements.
static bool coalesced(size_t element) {
    for (int lane = 1; lane < 32; ++lane) {
        if (counts.trails[lane].size() != counts.trails[0].size()) return false;
        for (size_t i = 0; i < counts.trails[0].size(); ++i)
            if (counts.trails[lane][i] != counts.trails[0][i] + lane * element) return false;
    }
    return !counts.trails[0].empty();
}

// {"name": …, "element_bytes": …, what was counted …, and the fields that `extra` says}
static void print(const char* name, size_t element, const std::string& extra) {
    long least = INT64_MAX, most = 0, shared = INT64_MAX;
    for (const auto& [address, times] : counts.by_address)
        least = std::min(least, times), most = std::max(most, times);
    for (const auto& addresses : counts.by_block) shared = std::min(shared, (long)addresses.size());
    std::printf("{\"name\": \"%s\", \"element_bytes\": %zu, ", name, element);
    std::printf("\"loads\": %ld, \"bypassing\": %ld, ", counts.loads, counts.bypassing);
    std::printf("\"stores\": %ld, \"multiply_adds\": %ld, \"unchanged\": %ld, ", counts.stores,
                counts.multiply_adds, counts.unchanged);
    std::printf("\"least\": %ld, \"most\": %ld, \"addresses\": %zu, \"by_every_block\": %ld, ", least, most,
                counts.by_address.size(), shared);
    std::printf("\"largest\": %.9g, ", std::isfinite(counts.largest) ? counts.largest : 1e99);
    std::printf("\"coalesced\": %s%s}\n", coalesced(element) ? "true" : "false", extra.c_str());
}

// One for each operation of a manifest; a kernel with another signature does not compile.

static std::vector<double> some_numbers(size_t n, double first) {
    std::vector<double> numbers(n);
    for (size_t i = 0; i < n; ++i) numbers[i] = first + std::sin((double)i);
    return numbers;
}

template <typename T, typename Call>
static void stream_with(const char* name, unsigned grid, unsigned block, u64 n, Call call) {
    const size_t numbers = n * sizeof(T) / sizeof(double);
    std::vector<double> a = some_numbers(numbers, 1), b = some_numbers(numbers, 2);
    std::vector<double> c = some_numbers(numbers, 3);
    launch([&] { call((T*)a.data(), (T*)b.data(), (T*)c.data()); }, grid, block);
    std::string values = ", \"n\": " + std::to_string(n) + ", \"a\": [";
    char text[40];
    for (size_t i = 0; i < numbers; ++i) {
        std::snprintf(text, sizeof text, "%s%.17g", i ? ", " : "", a[i]);
        values += text;
    }
    print(name, sizeof(T), values + "]");
}

template <typename A>
static void stream(const char* name, void (*kernel)(A*, u64), unsigned grid, unsigned block, u64 n) {
    stream_with<A>(name, grid, block, n, [=](A* a, A*, A*) { kernel(a, n); });
}

template <typename A>
static void stream(const char* name, void (*kernel)(A*, const A*, u64), unsigned grid, unsigned block,
                   u64 n) {
    stream_with<A>(name, grid, block, n, [=](A* a, A* b, A*) { kernel(a, b, n); });
}

template <typename A>
static void stream(const char* name, void (*kernel)(A*, const A*, const A*, u64), unsigned grid,
                   unsigned block, u64 n) {
    stream_with<A>(name, grid, block, n, [=](A* a, A* b, A* c) { kernel(a, b, c, n); });
}

template <typename T>
static std::string sink_text(const std::vector<T>& sink) {
    const unsigned char* bytes = (const unsigned char*)sink.data();
    bool touched = false;
    for (size_t i = 0; i < sink.size() * sizeof(T); ++i) touched |= bytes[i] != 0xa5;
    return std::string(", \"sink_written\": ") + (touched ? "true" : "false");
}

template <typename T>
static void reread(const char* name, void (*kernel)(const T*, u64, unsigned, T*), unsigned grid,
                   unsigned block, u64 n, unsigned passes) {
    std::vector<T> data(n), sink(16);
    for (size_t i = 0; i < n * sizeof(T); ++i) ((unsigned char*)data.data())[i] = i * 2654435761u >> 24;
    std::memset((void*)sink.data(), 0xa5, sink.size() * sizeof(T));
    launch(kernel, grid, block, data.data(), n, passes, sink.data());
    print(name, sizeof(T), ", \"n\": " + std::to_string(n) + sink_text(sink));
}

template <typename T>
static void loop(const char* name, void (*kernel)(unsigned, T*), unsigned grid, unsigned block,
                 unsigned iterations) {
    std::vector<T> sink(16);
    std::memset((void*)sink.data(), 0xa5, sink.size() * sizeof(T));
    launch(kernel, grid, block, iterations, sink.data());
    print(name, sizeof(T), sink_text(sink));
}

// From here on these are the kernels'.
#define fma counted_fma
#define fmaf counted_fmaf
