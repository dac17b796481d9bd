/* Loaded by the CUDA driver into every program that is started with CUDA_INJECTION64_PATH.
 *
 * Until a monitor connects there is one sleeping thread and a socket, and nothing of CUPTI. All work is
 * done on that thread, so that a driver that hangs stops the records and not the program. Whatever fails
 * here ends the tracing, or the listening, and nothing else.
 *
 * Fork: the child closes what it inherited and never listens. A driver that was initialised before a fork
 * cannot be used after it, so such a child has no kernels; one that was not has not loaded us yet. Exec keeps
 * the pid and the start time, and so the path of the socket: the old one is replaced.
 *
 * Exit: a handler asks the thread for a last, forced flush, which is what NVIDIA's own injection sample does
 * there, and waits for it at most LINGER_MS. It is registered when the driver is initialised and again after
 * CUPTI was started, as handlers run last in, first out: the driver's and CUPTI's own come later. A flush
 * that takes longer is left to itself. _exit, abort and signals run no handlers: monitors see the stream end,
 * and whoever looks for programs removes the socket. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "trace.h"

enum {
    CHECK_MS = 1500, /* all that is done while dormant: is the socket still in its place? */
    FLUSH_MS = 40,
    LINGER_MS = 100,
    LOWEST_DESCRIPTOR = 200, /* the program's own keep the numbers they have without us */
};

static atomic_int owner; /* the process that listens; 0 before any, -1 in a child that was forked */
static atomic_bool ending;
static sem_t ended;
static struct descriptor listener = {-1, 0};
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static uint64_t start_time;
static struct { /* copied at the start: getenv in our thread could meet setenv in another */
    char runtime[sizeof address.sun_path], temporary[sizeof address.sun_path];
} places;
char cupti_places[4096];
uint64_t loaded_ns;

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t now_ms(void) { return nanoseconds(CLOCK_MONOTONIC) / 1000000; }

uint64_t unix_ns(void) { return nanoseconds(CLOCK_REALTIME); }

/* In clock ticks after boot: field 22 of proc(5), counted after the name, which may hold anything. */
static bool read_start_time(void) {
    char line[1024];
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, line, sizeof line - 1);
    if (file >= 0) close(file);
    if (length <= 0) return false;
    line[length] = 0;
    char *at = strrchr(line, ')');
    for (int field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
    return at != NULL && (start_time = strtoull(at, NULL, 10)) > 0;
}

/* Moves a descriptor out of the way of the program's own. */
static int moved(int number) {
    if (number < 0) return -1;
    int high = fcntl(number, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
    if (high < 0) return number;
    close(number);
    return high;
}

/* Listens in `base`/`folder` if that is a directory of this user alone. */
static bool listen_in(const char *base, const char *folder) {
    struct stat status;
    char path[sizeof address.sun_path];
    if (base[0] != '/') return false;
    if (snprintf(path, sizeof path, "%s/%s", base, folder) >= (int)sizeof path) return false;
    mkdir(path, 0700);
    if (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != getuid() ||
        (status.st_mode & 077) != 0)
        return false;
    struct sockaddr_un place = {.sun_family = AF_UNIX}, hidden = place;
    const int room = sizeof place.sun_path;
    char name[64];
    snprintf(name, sizeof name, "%d-%llu.trace.sock", (int)getpid(), (unsigned long long)start_time);
    if (snprintf(place.sun_path, sizeof place.sun_path, "%s/%s", path, name) >= room ||
        snprintf(hidden.sun_path, sizeof hidden.sun_path, "%s/.%s", path, name) >= room)
        return false;
    int made = moved(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (made < 0) return false;
    /* It gets its name when it can be connected to, and takes the place of one from before an exec. */
    unlink(hidden.sun_path);
    if (bind(made, (struct sockaddr *)&hidden, sizeof hidden) != 0 || chmod(hidden.sun_path, 0600) != 0 ||
        listen(made, MAX_MONITORS) != 0 || rename(hidden.sun_path, place.sun_path) != 0) {
        close(made);
        unlink(hidden.sun_path);
        return false;
    }
    pthread_mutex_lock(&sockets_lock);
    listener = descriptor_of(made);
    address = place;
    pthread_mutex_unlock(&sockets_lock);
    return true;
}

/* Puts the socket where it should be; where that fails, the next check tries again. */
static void keep_listening(void) {
    struct stat status;
    char private[40];
    if (descriptor_is_ours(listener) && lstat(address.sun_path, &status) == 0) return;
    pthread_mutex_lock(&sockets_lock);
    descriptor_close(&listener);
    pthread_mutex_unlock(&sockets_lock);
    snprintf(private, sizeof private, "roofmon-%u", (unsigned)getuid());
    if (!listen_in(places.runtime, "roofmon") && !listen_in(places.temporary, private))
        listen_in("/tmp", private);
}

/* Takes from CUPTI what has ended and hands it to the monitors; tells them when the state changes. */
static void collect(bool forced) {
    monitors_distribute(records_take(session_flush(forced)));
    if (!session.changed) return;
    session.changed = false;
    if (session.state != TRACING) records_end();
    monitors_tell_state();
}

static void finish(void);

static void greet(int number) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    bool welcome = getsockopt(number, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid() &&
                   monitors_count() < MAX_MONITORS;
    if (welcome) collect(false); /* what has ended by now is for those who were here */
    if (!welcome || !monitors_add(number, start_time)) {
        close(number);
        return;
    }
    if (session.state != TRACING && session.state != STARTING) {
        session.state = STARTING;
        session.reason[0] = 0;
        session.attempts = 0;
    }
    monitors_tell_state();
}

static void start(void) {
    static bool registered;
    monitors_serve();
    if (monitors_count() == 0) return; /* it has left already */
    session_start();
    session.changed = false;
    if (session.state == STARTING) return; /* the driver is not ready: again with the next flush */
    if (session.state == TRACING && !registered) registered = atexit(finish) == 0;
    monitors_tell_state();
}

static void accept_monitors(void) {
    while (descriptor_is_ours(listener)) {
        int number = moved(accept4(listener.number, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (number < 0) {
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                poll(NULL, 0, FLUSH_MS); /* no descriptor to spare: the next attempt must not come at once */
            return;
        }
        greet(number);
    }
}

/* The last records, then the end of the streams. */
static void hand_over(void) {
    uint64_t until = now_ms() + LINGER_MS * 3 / 4;
    struct pollfd entries[MAX_MONITORS];
    collect(true);
    while (monitors_serve() && now_ms() < until) poll(entries, (nfds_t)monitors_poll(entries), 5);
    pthread_mutex_lock(&sockets_lock);
    monitors_close();
    pthread_mutex_unlock(&sockets_lock);
    sem_post(&ended);
}

static void *serve(void *unused) {
    struct pollfd entries[1 + MAX_MONITORS];
    uint64_t next_check = 0, next_flush = 0;
    pthread_setname_np(pthread_self(), "roofmon-trace");
    while (!ending) {
        if (now_ms() >= next_check) {
            keep_listening();
            next_check = now_ms() + CHECK_MS;
        }
        entries[0] = (struct pollfd){listener.number, POLLIN, 0};
        int used = 1 + monitors_poll(entries + 1);
        poll(entries, (nfds_t)used, monitors_count() ? FLUSH_MS : CHECK_MS);
        if (ending) break;
        if (entries[0].revents && !descriptor_is_ours(listener)) next_check = 0; /* it was closed */
        accept_monitors();
        if (monitors_count() > 0 && now_ms() >= next_flush) {
            if (session.state == STARTING) start();
            session_watch();
            collect(false);
            next_flush = now_ms() + FLUSH_MS;
        }
        monitors_serve();
        if (monitors_count() == 0) session_stop();
    }
    hand_over();
    for (;;) pause(); /* the end of a thread runs destructors, CUPTI's too, beside those of the exit */
    return unused;
}

/* At exit. Does nothing the second time, and nothing in a child that was forked. */
static void finish(void) {
    if (owner != getpid() || atomic_exchange(&ending, true)) return;
    if (monitors_count() > 0) {
        uint64_t until = unix_ns() + LINGER_MS * 1000000ull;
        struct timespec limit = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
        while (sem_timedwait(&ended, &limit) != 0 && errno == EINTR) continue;
    }
    pthread_mutex_lock(&sockets_lock);
    if (address.sun_path[0]) unlink(address.sun_path);
    pthread_mutex_unlock(&sockets_lock);
}

static void before_fork(void) { pthread_mutex_lock(&sockets_lock); }

static void in_parent(void) { pthread_mutex_unlock(&sockets_lock); }

static void in_child(void) {
    owner = -1;
    monitors_close();
    descriptor_close(&listener);
    records_forked();
    pthread_mutex_unlock(&sockets_lock);
}

static void copy_variable(char *to, size_t size, const char *name) {
    const char *value = getenv(name);
    if (value != NULL && strlen(value) < size) strcpy(to, value);
}

/* The driver's entry point; 1 means that all is well, whatever happened. */
__attribute__((visibility("default"))) int InitializeInjection(void) {
    int nobody = 0;
    pthread_t thread;
    sigset_t all, before;
    if (getauxval(AT_SECURE) || getuid() != geteuid() || getgid() != getegid()) return 1;
    if (!atomic_compare_exchange_strong(&owner, &nobody, getpid())) return 1;
    if (!read_start_time() || sem_init(&ended, 0, 0) != 0) return 1;
    loaded_ns = unix_ns();
    copy_variable(places.runtime, sizeof places.runtime, "XDG_RUNTIME_DIR");
    copy_variable(places.temporary, sizeof places.temporary, "TMPDIR");
    copy_variable(cupti_places, sizeof cupti_places, "ROOFMON_CUPTI");
    pthread_atfork(before_fork, in_parent, in_child);
    atexit(finish);
    /* Signals are the program's. Those that a fault raises in its own thread cannot wait. */
    sigfillset(&all);
    static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) sigdelset(&all, FAULTS[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, serve, NULL) == 0) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return 1;
}
