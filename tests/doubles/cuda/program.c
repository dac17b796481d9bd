/* A CUDA program as far as the driver sees it: does what its standard input says, and prints a checksum of
 * its work, which does not depend on who watches. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static uint64_t checksum;

static void add_work(uint64_t *sum, const char *name) {
    while (*name) *sum = (*sum ^ (uint8_t)*name++) * 1099511628211u;
}

struct work {
    const char *name;
    long count, pause_us;
    uint32_t stream, graph, device;
    int kernels; /* of a graph */
    uint64_t sum;
    pthread_t thread;
};

static void *run(void *argument) {
    struct work *work = argument;
    for (long i = 0; i < work->count; i++) {
        struct launch one = {.kind = KERNEL,
                             .name = work->name,
                             .device = work->device,
                             .context = 1,
                             .stream = work->stream,
                             .graph = work->graph,
                             .grid = {132, 2, 1},
                             .block = {128, 2, 1}};
        for (int k = 0; k < work->kernels; k++) {
            driver_launch(&one);
            add_work(&work->sum, work->name);
        }
        if (work->pause_us && i % 16 == 0) usleep((unsigned)work->pause_us);
    }
    return NULL;
}

static void launch(struct work work) {
    if (work.kernels == 0) work.kernels = 1;
    run(&work);
    checksum ^= work.sum;
}

static void launch_in_threads(int threads, long count, long pause_us) {
    struct work works[64] = {{0}};
    for (int i = 0; i < threads; i++) {
        works[i] = (struct work){.name = "thread", .count = count, .pause_us = pause_us, .kernels = 1};
        works[i].stream = (uint32_t)(13 + i);
        pthread_create(&works[i].thread, NULL, run, &works[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(works[i].thread, NULL);
        checksum ^= works[i].sum + (uint64_t)i;
    }
}

static void launch_distinct(long count, long length) {
    char *name = malloc((size_t)length + 32); /* one place for all names, as when modules come and go */
    for (long i = 0; i < count; i++) {
        int used = sprintf(name, "kernel%ld", i);
        if (length > used) memset(name + used, 'x', (size_t)(length - used));
        name[length > used ? length : used] = 0;
        launch((struct work){.name = name, .count = 1});
    }
    free(name);
}

static void transfer(const char *what, long bytes) {
    struct launch one = {.kind = COPY, .context = 1, .stream = 7, .bytes = (uint64_t)bytes};
    if (strcmp(what, "set") == 0) one.kind = SET;
    else if (strcmp(what, "peer") == 0) one.kind = PEER_COPY;
    else one.copy = atoi(what);
    driver_launch(&one);
    add_work(&checksum, what);
}

/* The program's own profiler, as torch.profiler does it. */
static atomic_long seen;
static int (*next_record)(uint8_t *, size_t, uint8_t **);

static void own_request(uint8_t **buffer, size_t *size, size_t *most) {
    *size = 1 << 16;
    *most = 0;
    *buffer = malloc(*size);
}

static void own_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    uint8_t *record = NULL;
    (void)context, (void)stream;
    if (size != 1 << 16) return; /* "bufferCompleted called with unknown buffer" */
    while (next_record(buffer, valid, &record) == 0)
        if (*(uint32_t *)(void *)record == 10) seen++;
    free(buffer);
}

static uint64_t ticks(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 3 * ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
}

static void profile(const char *step) {
    int (*enable)(int), (*disable)(int), (*flush)(uint32_t), (*use)(void *, void *);
    int (*set_clock)(uint64_t (*)(void));
    void *cupti = dlopen("libcupti.so.13", RTLD_NOW);
    if (cupti == NULL) abort();
    *(void **)&use = dlsym(cupti, "cuptiActivityRegisterCallbacks");
    *(void **)&set_clock = dlsym(cupti, "cuptiActivityRegisterTimestampCallback");
    *(void **)&enable = dlsym(cupti, "cuptiActivityEnable");
    *(void **)&disable = dlsym(cupti, "cuptiActivityDisable");
    *(void **)&flush = dlsym(cupti, "cuptiActivityFlushAll");
    *(void **)&next_record = dlsym(cupti, "cuptiActivityGetNextRecord");
    if (strcmp(step, "start") == 0) {
        void (*request)(uint8_t **, size_t *, size_t *) = own_request;
        void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t) = own_complete;
        seen = 0;
        if (use(*(void **)&request, *(void **)&complete) != 0) abort();
        set_clock(ticks);
        enable(10);
    } else {
        flush(0);
        disable(10);
        flush(1);
        printf("profiled %ld\n", seen);
    }
}

static void fork_child(const char *how) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (strcmp(how, "sleep") == 0) {
            close(0), close(1), close(2);
            sleep(60);
            _exit(0);
        }
        if (strcmp(how, "exec") == 0) execl("/proc/self/exe", "program", "child", (char *)NULL);
        cuInit(0);
        launch((struct work){.name = "in the child", .count = 10});
        printf("child %llx\n", (unsigned long long)checksum);
        if (strcmp(how, "_exit") == 0) {
            fflush(stdout);
            _exit(3);
        }
        exit(3);
    }
    if (strcmp(how, "sleep") == 0) {
        printf("%d\n", (int)child);
        return;
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("child's status %d\n", status);
}

static void close_descriptors(void) {
    int pair[2];
    for (int i = 3; i < 1024; i++) close(i);
    /* Their numbers are taken at once, by sockets that someone could write to by mistake. */
    for (int i = 0; i < 150 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0; i++) continue;
    char byte;
    long strange = 0;
    usleep(300000);
    for (int i = 3; i < 1024; i++)
        if (recv(i, &byte, 1, MSG_DONTWAIT) >= 0) strange++;
    printf("strange descriptors %ld\n", strange);
}

static void limit_memory(unsigned long more) {
    char line[256];
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fgets(line, sizeof line, file) == NULL || sscanf(line, "%lu", &pages) != 1) abort();
    fclose(file);
    struct rlimit limit = {pages * 4096 + more, pages * 4096 + more};
    setrlimit(RLIMIT_AS, &limit);
}

static void obey(char *line) {
    char word[64] = "", what[512] = "";
    long a = 0, b = 0;
    sscanf(line, "%63s %511s %ld %ld", word, what, &a, &b);
    if (strcmp(word, "launch") == 0)
        launch((struct work){.name = what, .count = a, .pause_us = b, .stream = 7});
    if (strcmp(word, "device") == 0)
        launch((struct work){.name = "k", .count = 1, .device = (uint32_t)atoi(what)});
    if (strcmp(word, "graph") == 0)
        launch((struct work){.name = "g", .graph = (uint32_t)atoi(what), .kernels = (int)a, .count = b});
    if (strcmp(word, "threads") == 0) launch_in_threads(atoi(what), a, b);
    if (strcmp(word, "distinct") == 0) launch_distinct(atol(what), a);
    if (strcmp(word, "transfer") == 0) transfer(what, a);
    if (strcmp(word, "set") == 0) driver_set(what, a);
    if (strcmp(word, "profile") == 0) profile(what);
    if (strcmp(word, "load") == 0 && dlopen(what, RTLD_NOW) == NULL) printf("%s\n", dlerror());
    if (strcmp(word, "fork") == 0) fork_child(what);
    if (strcmp(word, "close") == 0) close_descriptors();
    if (strcmp(word, "limit") == 0) limit_memory(strtoul(what, NULL, 10));
    printf("%s done\n", word);
    fflush(stdout);
    if (strcmp(word, "exec") == 0) execl("/proc/self/exe", "program", (char *)NULL);
    if (strcmp(word, "exit") == 0) exit(atoi(what));
    if (strcmp(word, "_exit") == 0) _exit(atoi(what));
    if (strcmp(word, "abort") == 0) abort();
    if (strcmp(word, "kill") == 0) raise(SIGKILL);
}

int main(int argc, char **argv) {
    char *line = NULL;
    size_t size = 0;
    setvbuf(stdin, NULL, _IONBF, 0); /* what it has not read is for the program that it becomes */
    cuInit(0);
    if (argc > 1) {
        launch((struct work){.name = argv[1], .count = 10});
    } else {
        puts("ready");
        fflush(stdout);
        while (getline(&line, &size, stdin) > 0) obey(line);
    }
    free(line);
    printf("checksum %llx\n", (unsigned long long)checksum);
    return 0;
}
