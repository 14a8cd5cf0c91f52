/*
 * Launches one kernel again and again, whose length it is told in rounds of a loop.
 *
 *   cuda_counts busy ROUNDS BATCH       keeps two batches of launches ahead, and counts from the test's first line to its second
 *   cuda_counts latency ROUNDS PAUSE    launches and waits, with so many microseconds between, until the test's line; tells the times
 *   cuda_counts issue ROUNDS BATCH      times batches of launches without their ends, until the test's line
 */
#include "driver.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1 << 20, AHEAD = 2 };

static const char PTX[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".visible .entry work(.param .u64 at, .param .u32 rounds) {\n"
    ".reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<3>;\n"
    "ld.param.u64 %d0, [at]; ld.param.u32 %r0, [rounds]; cvta.to.global.u64 %d1, %d0;\n"
    "mov.u32 %r1, 1;\n"
    "again: mad.lo.u32 %r1, %r1, 1664525, 1013904223;\n"
    "sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0;\n"
    "@%p0 bra again;\n"
    "st.global.u32 [%d1], %r1;\n"
    "ret; }\n";

static void *function, *stream, *events[AHEAD];
static uint64_t memory;
static uint32_t rounds;
static double times[MOST];

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

/* Whether the test has said another line. */
static int is_told(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    if (poll(&input, 1, 0) == 0)
        return 0;
    char letter;
    while (read(0, &letter, 1) == 1 && letter != '\n')
        ;
    return 1;
}

static void launch(void)
{
    static int (*launch_kernel) LAUNCH_TYPES;
    if (launch_kernel == NULL)
        launch_kernel = (int (*) LAUNCH_TYPES)driver_function("cuLaunchKernel");
    void *params[] = {&memory, &rounds};
    const int status = launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    if (status != 0) {
        fprintf(stderr, "cuLaunchKernel: %d\n", status);
        exit(3);
    }
}

static void busy(int batch)
{
    long done = 0;
    double begun = 0;
    for (long turn = 0;; turn++) {
        void *event = events[turn % AHEAD];
        if (turn >= AHEAD) {
            CALL(cuEventSynchronize, (void *), event);
            done += batch;
        }
        for (int i = 0; i < batch; i++)
            launch();
        CALL(cuEventRecord, (void *, void *), event, stream);
        if (turn == AHEAD)
            puts("busy");
        if (!is_told())
            continue;
        if (begun > 0) {
            printf("done %ld in %.0f\n", done, now_us() - begun);
            exit(0);
        }
        begun = now_us();
        done = 0;
    }
}

static int by_size(const void *one, const void *other)
{
    const double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void tell(int count, int of)
{
    qsort(times, count, sizeof *times, by_size);
    printf("times %d p50 %.2f p99 %.2f most %.2f\n", count, times[count / 2] / of, times[(long)count * 99 / 100] / of, times[count - 1] / of);
    exit(0);
}

static void latency(int pause)
{
    puts("busy");
    int count = 0;
    while (count < MOST && !is_told()) {
        const double begun = now_us();
        launch();
        CALL(cuStreamSynchronize, (void *), stream);
        times[count++] = now_us() - begun;
        nanosleep(&(struct timespec){0, pause * 1000L}, NULL);
    }
    tell(count, 1);
}

static void issue(int batch)
{
    puts("busy");
    int count = 0;
    while (count < MOST && !is_told()) {
        const double begun = now_us();
        for (int i = 0; i < batch; i++)
            launch();
        times[count++] = now_us() - begun;
        CALL(cuStreamSynchronize, (void *), stream);
    }
    tell(count, batch);
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count != 4)
        return 2;
    rounds = atoi(arguments[2]);
    const int number = atoi(arguments[3]);
    open_device();
    void *module;
    CALL(cuModuleLoadData, (void **, const void *), &module, PTX);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "work");
    stream = make_cuda_stream();
    memory = device_memory(4096);
    for (int i = 0; i < AHEAD; i++)
        CALL(cuEventCreate, (void **, unsigned), &events[i], 2);
    launch();
    CALL(cuStreamSynchronize, (void *), stream);
    if (strcmp(arguments[1], "busy") == 0)
        busy(number);
    if (strcmp(arguments[1], "latency") == 0)
        latency(number);
    if (strcmp(arguments[1], "issue") == 0)
        issue(number);
    return 2;
}
