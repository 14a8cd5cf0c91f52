/*
 * Many programs of the CUDA driver API at once. Its argument says how many: so many processes are made, open the driver at the same
 * moment, have a kernel add 1 to numbers, check every one, and keep their sessions until the last has its result and standard input
 * has ended. It says how many got it, and after how many milliseconds the middle one and the last. With a second argument N, each
 * N-th process kills itself once it has its result.
 */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

#define NUMBERS 1024
#define MOST 4096

static const char IMAGE[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".visible .entry add_one(.param .u64 at, .param .u32 count) {\n"
    ".reg .b32 %r<6>; .reg .b64 %d<4>; .reg .pred %p;\n"
    "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r0, %r1, %r2;\n"
    "ld.param.u32 %r4, [count]; setp.ge.u32 %p, %r3, %r4; @%p bra END;\n"
    "ld.param.u64 %d0, [at]; mul.wide.u32 %d1, %r3, 4; add.u64 %d2, %d0, %d1;\n"
    "ld.global.u32 %r5, [%d2]; add.u32 %r5, %r5, 1; st.global.u32 [%d2], %r5;\n"
    "END: ret; }\n";

/* How many numbers are wrong. */
static int compute(void)
{
    open_device();
    void *module, *kernel;
    CALL(cuModuleLoadData, (void **, const void *), &module, IMAGE);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &kernel, module, "add_one");
    uint32_t numbers[NUMBERS], count = NUMBERS;
    for (uint32_t i = 0; i < NUMBERS; i++)
        numbers[i] = i;
    uint64_t address = device_memory(sizeof numbers);
    CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), address, numbers, sizeof numbers);
    void *params[] = {&address, &count};
    CALL(cuLaunchKernel, LAUNCH_TYPES, kernel, NUMBERS / 256, 1, 1, 256, 1, 1, 0, NULL, params, NULL);
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), numbers, address, sizeof numbers);
    int wrong = 0;
    for (uint32_t i = 0; i < NUMBERS; i++)
        wrong += numbers[i] != i + 1;
    return wrong;
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
    const int count = argc >= 2 ? atoi(argv[1]) : 0, killed = argc == 3 ? atoi(argv[2]) : 0;
    int start[2], results[2], end[2];
    if (count < 1 || count > MOST || pipe(start) != 0 || pipe(results) != 0 || pipe(end) != 0) {
        fprintf(stderr, "usage: cuda_burst COUNT [N]\n");
        return 3;
    }
    for (int i = 0; i < count; i++) {
        const pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 3;
        }
        if (child == 0) {
            char byte;
            close(start[1]);
            close(results[0]);
            close(end[1]);
            /* Nothing comes: the other end is closed. */
            (void)!read(start[0], &byte, 1);
            byte = compute() == 0;
            (void)!write(results[1], &byte, 1);
            close(results[1]);
            if (killed > 0 && i % killed == 0)
                raise(SIGKILL);
            (void)!read(end[0], &byte, 1);
            exit(0);
        }
    }
    close(results[1]);
    const long began = now_ms();
    close(start[1]);
    long middle = 0, last = 0;
    int right = 0;
    char byte;
    /* Ends when the last has told, or ended. */
    while (read(results[0], &byte, 1) == 1) {
        right += byte == 1;
        last = now_ms() - began;
        if (right == (count + 1) / 2)
            middle = last;
    }
    printf("%d right of %d: %ld ms, %ld ms\n", right, count, middle, last);
    puts("all told");
    fflush(stdout);
    (void)!read(STDIN_FILENO, &byte, 1);
    close(end[1]);
    int ended_well = 0, by_signal = 0, status;
    while (wait(&status) > 0) {
        ended_well += status == 0;
        by_signal += WIFSIGNALED(status);
    }
    printf("%d ended by a signal\n", by_signal);
    printf("%d ended well\n", ended_well);
    return right == count && ended_well == count ? 0 : 1;
}
