/* Sustainable memory bandwidth with OpenMP: the four STREAM kernels, a read-only sum, two in place.
 *
 * Written from the description of the STREAM benchmark (McCalpin, https://www.cs.virginia.edu/stream/):
 * bytes are those the kernel asks for, so a store counts once and a write-allocate read is not counted;
 * every array is much larger than the last-level cache; the best of the repetitions but the first is
 * reported. The kernels in place (axpy, update) read what they write, so they need no write-allocate.
 *
 * Usage: stream ELEMENTS REPETITIONS      prints one line per kernel: NAME BYTES_PER_SECOND
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

static double *a, *b, *c;
static volatile double sink;

enum { COPY, SCALE, ADD, TRIAD, SUM, AXPY, UPDATE, KERNELS };
static const char *const name[KERNELS] = {"copy", "scale", "add", "triad", "sum", "axpy", "update"};
static const int words[KERNELS] = {2, 2, 3, 3, 1, 3, 2};

static void run(int kernel, long n)
{
    double total = 0.0;
    switch (kernel) {
    case COPY:
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) c[i] = a[i];
        break;
    case SCALE:
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) b[i] = 3.0 * c[i];
        break;
    case ADD:
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) c[i] = a[i] + b[i];
        break;
    case TRIAD:
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) a[i] = b[i] + 3.0 * c[i];
        break;
    case AXPY:
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) b[i] += 1e-9 * a[i];
        break;
    case UPDATE:
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) a[i] *= 1.0000001;
        break;
    default:
#pragma omp parallel for simd schedule(static) reduction(+ : total)
        for (long i = 0; i < n; i++) total += a[i];
        sink = total;
    }
}

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 16777216;
    int repetitions = argc > 2 ? atoi(argv[2]) : 10;
    size_t size = (size_t)n * sizeof(double);
    if (n < 1 || repetitions < 1) return 2;
    a = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    b = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    c = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (!a || !b || !c) return 1;
    /* The threads that use a page touch it first, so that it lies in their own memory node. */
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; i++) {
        a[i] = 1.0 + 1e-9 * (double)i;
        b[i] = 2.0 - 1e-9 * (double)i;
        c[i] = 0.5;
    }
    for (int kernel = 0; kernel < KERNELS; kernel++) {
        double best = 1e30;
        for (int r = 0; r < repetitions; r++) {
            double start = omp_get_wtime();
            run(kernel, n);
            double elapsed = omp_get_wtime() - start;
            if (r > 0 || repetitions == 1) best = elapsed < best ? elapsed : best;
        }
        printf("%s %.6g\n", name[kernel], words[kernel] * (double)size / best);
    }
    return 0;
}
