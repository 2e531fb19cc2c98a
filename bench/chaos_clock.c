/* Preloaded: the wall clock of a process is off by as many seconds as the file says that WALL_CLOCK.RANK names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_s;
static int (*true_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WALL_CLOCK"), *rank = getenv("RANK");
    char name[4096];
    if (!path || !rank) return;
    snprintf(name, sizeof name, "%s.%s", path, rank);
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) offset_s = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!true_clock_gettime) *(void **)&true_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = true_clock_gettime(clock, now);
    if (!failed && offset_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset_s;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    if (into) *into = exact.tv_sec;
    return exact.tv_sec;
}
