/*
 * A program of the CUDA driver API that takes all device memory that it can get, in every way, and says how much the device has, how
 * much each way gave in all, and how much is free in the end.
 */
#include "driver.h"

#define MOST 4096
#define CHUNK ((size_t)2 << 20)
#define OUT_OF_MEMORY 2

static size_t free_bytes(void)
{
    size_t free = 0, total = 0;
    CALL(cuMemGetInfo_v2, (size_t *, size_t *), &free, &total);
    return free;
}

static void stop_unless_full(int status, const char *what)
{
    if (status != OUT_OF_MEMORY) {
        fprintf(stderr, "%s: %d\n", what, status);
        exit(3);
    }
}

int main(void)
{
    open_device();
    size_t total = 0;
    CALL(cuDeviceTotalMem_v2, (size_t *, int), &total, 0);
    printf("total %zu, free %zu\n", total >> 20, free_bytes() >> 20);

    static uint64_t taken[MOST];
    int count = 0, status;
    while (count < MOST && (status = STATUS(cuMemAlloc_v2, (uint64_t *, size_t), &taken[count], CHUNK)) == 0)
        count++;
    stop_unless_full(status, "cuMemAlloc");
    printf("allocated %zu, free %zu\n", count * CHUNK >> 20, free_bytes() >> 20);
    while (count > 0)
        CALL(cuMemFree_v2, (uint64_t), taken[--count]);

    void *stream = make_cuda_stream();
    while (count < MOST &&
           (status = STATUS(cuMemAllocAsync, (uint64_t *, size_t, void *), &taken[count], CHUNK, stream)) == 0)
        count++;
    stop_unless_full(status, "cuMemAllocAsync");
    printf("from a pool %zu\n", count * CHUNK >> 20);
    while (count > 0)
        CALL(cuMemFreeAsync, (uint64_t, void *), taken[--count], stream);
    CALL(cuStreamSynchronize, (void *), stream);

    /* Mapped memory whose handle was released is there still. */
    Properties properties = {.type = 1, .location = {.type = 1}};
    uint64_t at, memory;
    CALL(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long), &at, MOST * CHUNK, 0, 0, 0);
    while (count < MOST && (status = STATUS(cuMemCreate, (uint64_t *, size_t, const Properties *, unsigned long long),
                                            &memory, CHUNK, &properties, 0)) == 0) {
        CALL(cuMemMap, (uint64_t, size_t, size_t, uint64_t, unsigned long long), at + count * CHUNK, CHUNK, 0, memory, 0);
        CALL(cuMemRelease, (uint64_t), memory);
        count++;
    }
    stop_unless_full(status, "cuMemCreate");
    printf("mapped %zu\n", count * CHUNK >> 20);
    while (count > 0)
        CALL(cuMemUnmap, (uint64_t, size_t), at + --count * CHUNK, CHUNK);
    printf("free %zu\n", free_bytes() >> 20);
    return 0;
}
