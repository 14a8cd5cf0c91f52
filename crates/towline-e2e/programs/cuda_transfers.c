/* Transfers of every kind over a connection that the test breaks somewhere; see claims.h. */
#include "driver.h"

#include "claims.h"

enum { MOST = 900001, ROUNDS = 3 };

static uint64_t memory;
static unsigned char *target, *right, *pinned;
static void *stream, *event;

#define TRY(name, types, ...) posted(#name, STATUS(name, types, __VA_ARGS__))
#define CLAIM(name, types, arguments, bytes, size) claimed(#name, ((int (*) types)driver_function(#name))arguments, bytes, right, size)

static void fresh(size_t size, unsigned seed)
{
    free(right);
    right = make_bytes(size, seed);
    memset(target, 0xee, size);
}

static int start_read(void *to, size_t size)
{
    memset(to, 0xee, size);
    return TRY(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), to, memory, size, stream);
}

static void write_and_read(size_t size, unsigned seed)
{
    fresh(size, seed);
    TRY(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), memory, right, size);
    CLAIM(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), (target, memory, size), target, size);
}

static void read_on_a_stream(size_t size)
{
    CLAIM(cuCtxSynchronize, (void), (), NULL, 0);
    if (start_read(target, size))
        CLAIM(cuStreamSynchronize, (void *), (stream), target, size);
    if (start_read(target, size) && TRY(cuEventRecord, (void *, void *), event, stream))
        CLAIM(cuEventSynchronize, (void *), (event), target, size);
    if (start_read(pinned, size))
        CLAIM(cuStreamSynchronize, (void *), (stream), pinned, size);
    memcpy(pinned, right, size);
    TRY(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *), memory, pinned, size, stream);
    if (start_read(target, size))
        CLAIM(cuCtxSynchronize, (void), (), target, size);
}

int main(void)
{
    open_device();
    memory = device_memory(MOST);
    stream = make_cuda_stream();
    CALL(cuEventCreate, (void **, unsigned), &event, 2);
    CALL(cuMemAllocHost_v2, (void **, size_t), (void **)&pinned, MOST);
    target = make_bytes(MOST, 0);
    puts("start");
    fflush(stdout);
    for (unsigned round = 0; round < ROUNDS; round++) {
        write_and_read(100 + round, round);
        write_and_read(60000, 10 + round);
        write_and_read(MOST, 20 + round);
        read_on_a_stream(MOST);
    }
    CLAIM(cuCtxSynchronize, (void), (), NULL, 0);
    return end_of_claims();
}
