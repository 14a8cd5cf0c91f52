/*
 * A child after fork has no CUDA: every call that needs a context fails, as the vendor's do. The parent goes on.
 *
 *   cuda_forks           forks with a context
 *   cuda_forks version   forks with no more than the driver's version: parent and child have CUDA, and devices as they choose then
 */
#include "driver.h"

#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1024 };

static int count_devices(const char *visible)
{
    int count = -1;
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGetCount, (int *), &count);
    return count;
}

static int fork_with_version(void)
{
    int version = 0, status = -1;
    CALL(cuDriverGetVersion, (int *), &version);
    const pid_t pid = fork();
    if (pid == 0) {
        printf("child: %d devices\n", count_devices("1"));
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 5;
    printf("child's status %d\n", status);
    printf("parent: %d devices of a known version: %d\n", count_devices("1,0"), version > 0);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "version") == 0)
        return fork_with_version();
    static uint32_t numbers[COUNT];
    open_device();
    void *function = null_kernel("add_one"), *stream = make_cuda_stream();
    const uint64_t memory = device_memory(sizeof numbers);
    CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), memory, numbers, sizeof numbers);
    /* The stream keeps no order with the copy. */
    CALL(cuCtxSynchronize, (void), );
    if (launch_add_one(function, stream, memory, COUNT) != 0)
        return 4;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        uint64_t address = 0;
        void *made = NULL;
        printf("child: allocate %d, launch %d, copy %d, synchronise %d, stream %d, init %d\n",
               STATUS(cuMemAlloc_v2, (uint64_t *, size_t), &address, 64), launch_add_one(function, stream, memory, COUNT),
               STATUS(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), numbers, memory, sizeof numbers),
               STATUS(cuCtxSynchronize, (void), ), STATUS(cuStreamCreate, (void **, unsigned), &made, 0),
               STATUS(cuInit, (unsigned), 0));
        const char *name = "none", *text = NULL;
        CALL(cuGetErrorName, (int, const char **), 3, &name);
        CALL(cuGetErrorString, (int, const char **), 3, &text);
        printf("child: %s is told: %d\n", name, text != NULL);
        /* By exit(), as programs do: exit handlers run in the child too. */
        exit(0);
    }
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 5;
    printf("child's status %d\n", status);
    if (launch_add_one(function, stream, memory, COUNT) != 0)
        return 6;
    CALL(cuStreamSynchronize, (void *), stream);
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), numbers, memory, sizeof numbers);
    printf("parent: %u %u\n", numbers[0], numbers[COUNT - 1]);
    return 0;
}
