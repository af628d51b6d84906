/* Preloaded into a server under test: its ledger's disk fails on command, and its clock jumps.
 *
 * FAULT_LEDGER names the ledger's file; it and its -wal are watched, nothing else. FAULT_CONTROL
 * is a file of eight 64-bit integers that the test maps and changes while the server runs:
 *   0 errno of each fsync (0: it works)     1 microseconds that each fsync takes longer
 *   2 errno of a write once                 3 so many bytes were written since it was set
 *   4 nanoseconds that the wall clock is off
 *   5 whether what isn't synced yet is kept in FAULT_CONTROL.undo.0 (ledger) and .1 (-wal)
 *   6 fsyncs of the log begun               7 fsyncs of the ledger's file begun
 * An undo entry is: offset, size of the file before, bytes replaced, bytes written (each a 64-bit
 * integer), then the replaced bytes and the written ones. Synced, a file has no entries any more.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { FSYNC_ERRNO, FSYNC_DELAY_US, WRITE_ERRNO, WRITE_AFTER, CLOCK_NS, UNDO, LOG_FSYNCS, FILE_FSYNCS };

static volatile int64_t *control;
static char ledger[PATH_MAX], wal[PATH_MAX + 8];
static int undo[2] = {-1, -1};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_ftruncate)(int, off64_t);
static int (*real_clock)(clockid_t, struct timespec *);
static int (*real_gettimeofday)(struct timeval *, void *);

__attribute__((constructor)) static void begin(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    real_gettimeofday = dlsym(RTLD_NEXT, "gettimeofday");
    const char *path = getenv("FAULT_CONTROL"), *named = getenv("FAULT_LEDGER");
    if (!path || !named) return;
    snprintf(ledger, sizeof ledger, "%s", named);
    snprintf(wal, sizeof wal, "%s-wal", ledger);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return;
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped == MAP_FAILED) return;
    for (int which = 0; which < 2; which++) {
        char name[PATH_MAX];
        snprintf(name, sizeof name, "%s.undo.%d", path, which);
        undo[which] = open(name, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    control = mapped;
}

/* 0 of the ledger, 1 of its log, -1 of any other file. */
static int watched(int descriptor) {
    char link[64], path[PATH_MAX];
    if (!control) return -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return -1;
    path[size] = 0;
    return !strcmp(path, ledger) ? 0 : !strcmp(path, wal) ? 1 : -1;
}

/* Keeps what a write will replace, before it is written. */
static void keep(int which, int descriptor, off64_t offset, const void *data, size_t size) {
    struct stat64 found;
    if (!control[UNDO] || undo[which] < 0 || fstat64(descriptor, &found)) return;
    int64_t replaced = found.st_size - offset;
    if (replaced < 0) replaced = 0;
    if (data && replaced > (int64_t)size) replaced = size;
    int64_t head[4] = {offset, found.st_size, replaced, data ? (int64_t)size : 0};
    size_t whole = sizeof head + replaced + head[3];
    char *entry = malloc(whole);
    memcpy(entry, head, sizeof head);
    if (replaced && pread64(descriptor, entry + sizeof head, replaced, offset) != replaced) abort();
    if (data) memcpy(entry + sizeof head + replaced, data, size);
    if (write(undo[which], entry, whole) != (ssize_t)whole) abort();
    free(entry);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    int which = watched(descriptor);
    if (which < 0) return real_pwrite(descriptor, data, size, offset);
    pthread_mutex_lock(&lock);
    size_t room = size;
    if (control[WRITE_ERRNO]) {
        if (control[WRITE_AFTER] < (int64_t)size) room = control[WRITE_AFTER];
        control[WRITE_AFTER] -= room;
    }
    ssize_t done = -1;
    if (room || !size) {
        keep(which, descriptor, offset, data, room);
        done = real_pwrite(descriptor, data, room, offset);
    } else {
        errno = control[WRITE_ERRNO];
    }
    int code = errno;
    pthread_mutex_unlock(&lock);
    errno = code;
    return done;
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    return pwrite64(descriptor, data, size, offset);
}

int ftruncate64(int descriptor, off64_t length) {
    int which = watched(descriptor);
    if (which < 0) return real_ftruncate(descriptor, length);
    pthread_mutex_lock(&lock);
    keep(which, descriptor, length, NULL, 0);
    int done = real_ftruncate(descriptor, length);
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate(int descriptor, off_t length) { return ftruncate64(descriptor, length); }

static int synced(int descriptor, int (*real)(int)) {
    int which = watched(descriptor);
    if (which < 0) return real(descriptor);
    control[which ? LOG_FSYNCS : FILE_FSYNCS]++;
    if (control[FSYNC_DELAY_US]) usleep(control[FSYNC_DELAY_US]);
    if (control[FSYNC_ERRNO]) {
        errno = control[FSYNC_ERRNO];
        return -1;
    }
    /* The disk of the test is not the one under test: nothing waits for it. */
    pthread_mutex_lock(&lock);
    int done = control[UNDO] ? real_ftruncate(undo[which], 0) : real(descriptor);
    pthread_mutex_unlock(&lock);
    return done;
}

int fsync(int descriptor) { return synced(descriptor, real_fsync); }
int fdatasync(int descriptor) { return synced(descriptor, real_fdatasync); }

int clock_gettime(clockid_t clock, struct timespec *at) {
    int done = real_clock(clock, at);
    if (!done && control && control[CLOCK_NS] &&
        (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = at->tv_sec * 1000000000LL + at->tv_nsec + control[CLOCK_NS];
        at->tv_sec = ns / 1000000000LL;
        at->tv_nsec = ns % 1000000000LL;
    }
    return done;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    int done = real_gettimeofday(at, zone);
    if (!done && control) at->tv_sec += control[CLOCK_NS] / 1000000000LL;
    return done;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
