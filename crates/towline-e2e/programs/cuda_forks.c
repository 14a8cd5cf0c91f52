/* A child after fork has no CUDA: every call that needs a context fails, as the vendor's do. The parent goes on. */
#include "driver.h"

#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1024 };

int main(void)
{
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
