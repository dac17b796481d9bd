/* The monitors that are connected: what each has been told, and the bytes that it has yet to take. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace.h"

enum {
    MAX_PENDING = 8 << 20, /* bytes that wait for one monitor: half a second of 200,000 records/s */
    KEEP_PENDING = 1 << 20,
    RECORDS_A_MESSAGE = 1024,
};

static struct monitor {
    struct descriptor socket;
    char *pending; /* bytes from `sent` to `end` are to be sent */
    size_t sent, end, capacity;
    uint64_t dropped, dropped_before, told; /* records lost for it alone; in the process when it came */
    uint64_t devices;
    uint32_t names;
} monitors[MAX_MONITORS];
static atomic_int count; /* the exit handler reads it in another thread */

pthread_mutex_t sockets_lock = PTHREAD_MUTEX_INITIALIZER;

struct descriptor descriptor_of(int number) {
    struct stat status;
    if (number < 0 || fstat(number, &status) != 0) return (struct descriptor){-1, 0};
    return (struct descriptor){number, status.st_ino};
}

bool descriptor_is_ours(struct descriptor one) {
    struct stat status;
    return one.number >= 0 && fstat(one.number, &status) == 0 && S_ISSOCK(status.st_mode) &&
           status.st_ino == one.inode;
}

void descriptor_close(struct descriptor *one) {
    if (descriptor_is_ours(*one)) close(one->number);
    *one = (struct descriptor){-1, 0};
}

int monitors_count(void) { return count; }

static size_t pending(const struct monitor *monitor) { return monitor->end - monitor->sent; }

/* Appends a message of two parts; false, and nothing appended, where there is no memory. */
static bool add(struct monitor *monitor, int type, const void *first, size_t first_size, const void *second,
                size_t second_size) {
    struct {
        uint16_t magic;
        uint8_t type, version;
        uint32_t length;
    } header = {MAGIC, (uint8_t)type, PROTOCOL_VERSION, (uint32_t)(first_size + second_size)};
    size_t needed = monitor->end + sizeof header + first_size + second_size;
    if (needed > monitor->capacity && monitor->sent > 0) {
        memmove(monitor->pending, monitor->pending + monitor->sent, pending(monitor));
        monitor->end -= monitor->sent;
        needed -= monitor->sent;
        monitor->sent = 0;
    }
    if (needed > monitor->capacity) {
        char *larger = realloc(monitor->pending, needed + needed / 2);
        if (larger == NULL) return false;
        monitor->pending = larger;
        monitor->capacity = needed + needed / 2;
    }
    char *at = monitor->pending + monitor->end;
    memcpy(at, &header, sizeof header);
    if (first_size) memcpy(at + sizeof header, first, first_size);
    if (second_size) memcpy(at + sizeof header + first_size, second, second_size);
    monitor->end += sizeof header + first_size + second_size;
    return true;
}

/* `text` as the inside of a JSON string; what is not printable ASCII becomes a question mark. */
size_t json_text(char *out, size_t size, const char *text) {
    size_t used = 0;
    for (; *text && used + 3 < size; text++) {
        if (*text == '"' || *text == '\\') out[used++] = '\\';
        out[used++] = *text >= 0x20 && *text < 0x7f ? *text : '?';
    }
    out[used] = 0;
    return used;
}

/* What the program is called: the script where an interpreter runs one. */
static void process_name(char *out, size_t size) {
    char line[4096] = "";
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, line, sizeof line - 2);
    if (file >= 0) close(file);
    if (length < 0) length = 0;
    line[length] = line[length + 1] = 0;
    const char *first = line, *base = strrchr(first, '/') ? strrchr(first, '/') + 1 : first;
    const char *second = first + strlen(first) + 1;
    if (strncmp(base, "python", 6) == 0 && second < line + length) {
        if (strcmp(second, "-m") == 0) second += 3;
        if (second < line + length && *second && *second != '-')
            base = strrchr(second, '/') ? strrchr(second, '/') + 1 : second;
    }
    json_text(out, size, base);
}

bool monitors_add(int number, uint64_t start_time) {
    char process[300], hello[800];
    struct stat space = {0};
    struct monitor made = {.socket = descriptor_of(number), .dropped_before = records_signs().dropped};
    process_name(process, sizeof process);
    stat("/proc/self/ns/pid", &space);
    int length = snprintf(hello, sizeof hello,
                          "{\"kind\":\"trace\",\"pid\":%d,\"start_time\":%llu,\"process\":\"%s\","
                          "\"pid_namespace\":%llu,\"clock\":\"unix_ns\",\"record_type\":%d,"
                          "\"record_size\":%zu,\"transfer_size\":%zu,\"library\":\"%s\"}",
                          (int)getpid(), (unsigned long long)start_time, process,
                          (unsigned long long)space.st_ino, MESSAGE_KERNELS, sizeof(struct kernel_record),
                          sizeof(struct transfer_record), ROOFMON_VERSION);
    if (!add(&made, MESSAGE_HELLO, hello, (size_t)length, NULL, 0)) return false;
    pthread_mutex_lock(&sockets_lock);
    monitors[count++] = made;
    pthread_mutex_unlock(&sockets_lock);
    return true;
}

static void leave(int index) {
    free(monitors[index].pending);
    pthread_mutex_lock(&sockets_lock);
    descriptor_close(&monitors[index].socket);
    monitors[index] = monitors[--count];
    pthread_mutex_unlock(&sockets_lock);
}

void monitors_tell_state(void) {
    static const char *const NAMES[] = {"idle", "starting", "tracing", "failed", "yielded"};
    char reason[2 * sizeof session.reason], path[2 * sizeof session.path], state[4096];
    json_text(reason, sizeof reason, session.reason);
    json_text(path, sizeof path, session.path);
    int length = snprintf(state, sizeof state,
                          "{\"state\":\"%s\",\"reason\":\"%s\",\"cupti_version\":%u,\"cupti_path\":\"%s\","
                          "\"loaded_ns\":%llu,\"since_ns\":%llu}",
                          NAMES[session.state], reason, session.version, path,
                          (unsigned long long)loaded_ns, (unsigned long long)session.since_ns);
    for (int i = 0; i < count; i++) add(&monitors[i], MESSAGE_STATE, state, (size_t)length, NULL, 0);
}

/* Names and devices that records of this batch may have and that the monitor does not know. */
static bool introduce(struct monitor *monitor, const struct batch *batch) {
    char text[2048];
    for (; monitor->names < batch->names; monitor->names++) {
        size_t length;
        const char *name = records_name(monitor->names, &length);
        if (!add(monitor, MESSAGE_NAME, &monitor->names, sizeof monitor->names, name, length)) return false;
    }
    for (unsigned i = 0; i < MAX_DEVICES; i++) {
        if (!(batch->devices & ~monitor->devices & 1ull << i)) continue;
        if (!add(monitor, MESSAGE_DEVICE, text, device_json(i, text, sizeof text), NULL, 0)) return false;
        monitor->devices |= 1ull << i;
    }
    return true;
}

static void add_records(struct monitor *monitor, int type, const void *records, uint32_t total, size_t size) {
    for (uint32_t first = 0; first < total; first += RECORDS_A_MESSAGE) {
        uint32_t some = total - first < RECORDS_A_MESSAGE ? total - first : RECORDS_A_MESSAGE;
        if (pending(monitor) > MAX_PENDING ||
            !add(monitor, type, (const char *)records + first * size, some * size, NULL, 0))
            monitor->dropped += some;
    }
}

void monitors_distribute(const struct batch *batch) {
    for (int i = 0; batch != NULL && i < count; i++) {
        struct monitor *monitor = &monitors[i];
        if (pending(monitor) > MAX_PENDING || !introduce(monitor, batch)) {
            monitor->dropped += batch->kernel_count + batch->transfer_count;
        } else {
            add_records(monitor, MESSAGE_KERNELS, batch->kernels, batch->kernel_count, sizeof *batch->kernels);
            add_records(monitor, MESSAGE_TRANSFERS, batch->transfers, batch->transfer_count,
                        sizeof *batch->transfers);
        }
        uint64_t drops = monitor->dropped + batch->dropped - monitor->dropped_before;
        if (drops != monitor->told && pending(monitor) <= MAX_PENDING &&
            add(monitor, MESSAGE_DROPS, &drops, sizeof drops, NULL, 0))
            monitor->told = drops;
    }
}

/* Sends what fits; false where the monitor has gone, or speaks, which monitors have no reason to. */
static bool serve(struct monitor *monitor) {
    char byte;
    if (!descriptor_is_ours(monitor->socket)) return false;
    if (recv(monitor->socket.number, &byte, 1, MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR))
        return false;
    while (pending(monitor)) {
        ssize_t taken = send(monitor->socket.number, monitor->pending + monitor->sent, pending(monitor),
                             MSG_DONTWAIT | MSG_NOSIGNAL);
        if (taken < 0) return errno == EAGAIN || errno == EINTR;
        monitor->sent += (size_t)taken;
    }
    monitor->sent = monitor->end = 0;
    if (monitor->capacity > KEEP_PENDING) {
        free(monitor->pending);
        monitor->pending = NULL;
        monitor->capacity = 0;
    }
    return true;
}

bool monitors_serve(void) {
    bool more = false;
    for (int i = count - 1; i >= 0; i--) {
        if (!serve(&monitors[i])) leave(i);
        else more |= pending(&monitors[i]) > 0;
    }
    return more;
}

int monitors_poll(struct pollfd *entries) {
    for (int i = 0; i < count; i++) {
        short events = (short)(POLLIN | (pending(&monitors[i]) ? POLLOUT : 0));
        entries[i] = (struct pollfd){monitors[i].socket.number, events, 0};
    }
    return count;
}

/* In a forked child too, where the memory of the copies is not worth the trouble. */
void monitors_close(void) {
    for (int i = 0; i < count; i++) descriptor_close(&monitors[i].socket);
    count = 0;
}
