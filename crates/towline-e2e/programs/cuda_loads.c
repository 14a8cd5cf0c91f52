/*
 * A program of the CUDA driver API that loads code until the driver refuses, and says what it answers then, whether it computes still, and
 * what it answers when code has been unloaded.
 */
#include "driver.h"

#define MOST 65536

int main(void)
{
    static const char image[] = "towline null image\nkernel add_one\nkernel spin_until\nkernel fault\n";
    static void *modules[MOST];
    open_device();
    void *function = null_kernel("add_one"), *stream = make_cuda_stream();
    const uint64_t memory = device_memory(4096);
    int count = 0, status = 0;
    while (count < MOST && (status = STATUS(cuModuleLoadData, (void **, const void *), &modules[count], image)) == 0)
        count++;
    printf("refused with %d\n", status);
    status = launch_add_one(function, stream, memory, 1);
    printf("launch %d, synchronize %d\n", status, STATUS(cuCtxSynchronize, (void), ));
    CALL(cuModuleUnload, (void *), modules[--count]);
    printf("then %d\n", STATUS(cuModuleLoadData, (void **, const void *), &modules[count], image));
    return 0;
}
