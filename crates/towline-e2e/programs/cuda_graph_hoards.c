/*
 * A program of the CUDA driver API whose graph allocates half of what the device has and keeps it. It says how much is free then, and how
 * much it can allocate besides.
 */
#include "driver.h"

#define CHUNK ((size_t)2 << 20)

typedef struct {
    struct {
        int type, handles, location_type, location;
        void *unused;
        size_t most;
        unsigned char rest[56];
    } pool;
    const void *access;
    size_t access_count, bytes;
    uint64_t address;
} Allocation;

int main(void)
{
    open_device();
    size_t free = 0, total = 0;
    CALL(cuMemGetInfo_v2, (size_t *, size_t *), &free, &total);

    void *graph, *node, *executable, *stream = make_cuda_stream();
    Allocation allocation = {.pool = {.type = 1, .location_type = 1}, .bytes = total / 2};
    CALL(cuGraphCreate, (void **, unsigned), &graph, 0);
    CALL(cuGraphAddMemAllocNode, (void **, void *, void **, size_t, Allocation *), &node, graph, NULL, 0, &allocation);
    CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &executable, graph, 0);
    CALL(cuGraphLaunch, (void *, void *), executable, stream);
    CALL(cuStreamSynchronize, (void *), stream);
    CALL(cuMemGetInfo_v2, (size_t *, size_t *), &free, &total);
    printf("free %zu of %zu\n", free >> 20, total >> 20);

    size_t taken = 0;
    int status;
    uint64_t address;
    while ((status = STATUS(cuMemAlloc_v2, (uint64_t *, size_t), &address, CHUNK)) == 0)
        taken += CHUNK;
    printf("besides %zu, then %d\n", taken >> 20, status);
    return 0;
}
