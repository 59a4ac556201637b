/* A wall clock that can be moved while programs run, to be preloaded by them:
 *
 *     cc -shared -fPIC -O2 -o moved_clock.so moved_clock.c
 *     MOVED_CLOCK=FILE LD_PRELOAD=./moved_clock.so PROGRAM
 *
 * FILE begins with eight bytes: the seconds by which the clock is wrong. Only the wall clock is
 * moved, as by an operator who sets it; the monotonic clock, sleeps and timeouts stay true.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *moved;
static int (*true_gettime)(clockid_t, struct timespec *);
static int (*true_wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("MOVED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    true_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    true_wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (file >= 0) {
        void *found = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        moved = found == MAP_FAILED ? NULL : found;
        close(file);
    }
}

static int64_t offset(void)
{
    return moved ? *moved : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!true_gettime)
        begin();
    int failed = true_gettime(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found))
        return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec found;
    if (clock_gettime(CLOCK_REALTIME, &found))
        return -1;
    if (now)
        *now = found.tv_sec;
    return found.tv_sec;
}

/* The system, which waits, does not know that the clock was moved. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *until)
{
    struct timespec wall, true_until = *until;
    if (!true_wait)
        begin();
    /* A condition may use the monotonic clock instead, whose times are far from the wall's. */
    if (!clock_gettime(CLOCK_REALTIME, &wall) && until->tv_sec > wall.tv_sec / 2)
        true_until.tv_sec -= offset();
    return true_wait(condition, mutex, &true_until);
}
