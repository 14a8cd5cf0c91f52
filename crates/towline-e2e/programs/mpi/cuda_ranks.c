/*
 * Ranks of an MPI program, each with a session of its own, pass device memory around a ring: staged through host memory, and, where
 * the server can share memory, straight from device to device, behind an event of the neighbour. Before that each asks what libraries
 * that know CUDA (Open MPI's smcuda, UCX) ask before they decide: what they would need of the network adapter must be refused.
 */
#include "../driver.h"

#include <mpi.h>

enum { COUNT = 300000, ROUNDS = 3 };

typedef struct {
    char bytes[64];
} handle;

/* What a pointer is, as UCX and Open MPI ask. */
static int kind_of(const void *pointer)
{
    unsigned kind = 0;
    const int status = STATUS(cuPointerGetAttribute, (void *, int, uint64_t), &kind, 2, (uint64_t)(uintptr_t)pointer);
    return status != 0 ? -status : (int)kind;
}

static void fail(const char *what, int rank, long value)
{
    fprintf(stderr, "rank %d: %s: %ld\n", rank, what, value);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    open_device();
    void *add = null_kernel("add_one"), *stream = make_cuda_stream();
    const size_t bytes = COUNT * sizeof(uint32_t);
    const uint64_t ours = device_memory(bytes), got = device_memory(bytes);
    uint32_t *host = malloc(bytes), *come = malloc(bytes);
    if (host == NULL || come == NULL)
        return 4;

    if (kind_of((void *)(uintptr_t)ours) != 2)
        fail("device memory is told to be", rank, kind_of((void *)(uintptr_t)ours));
    /* Unknown to CUDA: libraries take "invalid value" for ordinary host memory. */
    if (kind_of(host) != -1)
        fail("host memory is told to be", rank, kind_of(host));
    int direct = -1, buffer = -1;
    CALL(cuDeviceGetAttribute, (int *, int, int), &direct, 116, 0);
    CALL(cuDeviceGetAttribute, (int *, int, int), &buffer, 124, 0);
    const int file = STATUS(cuMemGetHandleForAddressRange, (void *, uint64_t, size_t, int, unsigned long long), &(int){-1}, ours,
                            bytes, 1, 0);
    if (direct != 0 || buffer != 0 || file != 801)
        fail("memory for network adapters is not refused", rank, direct * 10000L + buffer * 1000L + file);

    /* Staged through the host, as a library does that was refused. */
    for (uint32_t i = 0; i < COUNT; i++)
        host[i] = (uint32_t)rank * 1000003u + i;
    CALL(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *), ours, host, bytes, stream);
    for (int round = 0; round < ROUNDS; round++) {
        if (launch_add_one(add, stream, ours, COUNT) != 0)
            fail("launch", rank, round);
        CALL(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), host, ours, bytes, stream);
        CALL(cuStreamSynchronize, (void *), stream);
        MPI_Sendrecv(host, COUNT, MPI_UINT32_T, right, round, come, COUNT, MPI_UINT32_T, left, round, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        CALL(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *), ours, come, bytes, stream);
    }
    CALL(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), host, ours, bytes, stream);
    CALL(cuStreamSynchronize, (void *), stream);
    const uint32_t origin = (uint32_t)((rank + size * ROUNDS - ROUNDS) % size);
    for (uint32_t i = 0; i < COUNT; i++)
        if (host[i] != origin * 1000003u + i + ROUNDS)
            fail("a staged number is wrong", rank, i);

    /* From device to device: the right neighbour reads what this rank's stream writes, behind this rank's event. */
    void *event, *theirs;
    handle named, recorded, of_left[2];
    CALL(cuEventCreate, (void **, unsigned), &event, 6);
    CALL(cuIpcGetMemHandle, (handle *, uint64_t), &named, ours);
    CALL(cuIpcGetEventHandle, (handle *, void *), &recorded, event);
    CALL(cuMemsetD32Async, (uint64_t, unsigned, size_t, void *), ours, 7u + (unsigned)rank, COUNT, stream);
    if (launch_add_one(add, stream, ours, COUNT) != 0)
        fail("launch", rank, -1);
    CALL(cuEventRecord, (void *, void *), event, stream);
    const handle both[2] = {named, recorded};
    MPI_Sendrecv(both, sizeof both, MPI_BYTE, right, 90, of_left, sizeof of_left, MPI_BYTE, left, 90, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    uint64_t remote = 0;
    void *reading = make_cuda_stream();
    CALL(cuIpcOpenEventHandle, (void **, handle), &theirs, of_left[1]);
    CALL(cuStreamWaitEvent, (void *, void *, unsigned), reading, theirs, 0);
    CALL(cuStreamSynchronize, (void *), reading);
    CALL(cuEventQuery, (void *), theirs);
    const int opened = STATUS(cuIpcOpenMemHandle_v2, (uint64_t *, handle, unsigned), &remote, of_left[0], 1);
    if (opened == 0) {
        CALL(cuMemcpyDtoDAsync_v2, (uint64_t, uint64_t, size_t, void *), got, remote, bytes, reading);
        CALL(cuStreamSynchronize, (void *), reading);
        CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), host, got, bytes);
        for (uint32_t i = 0; i < COUNT; i++)
            if (host[i] != 8u + (uint32_t)left)
                fail("a number of the neighbour is wrong", rank, i);
        CALL(cuIpcCloseMemHandle, (uint64_t), remote);
    }
    CALL(cuEventDestroy_v2, (void *), theirs);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d: staged, event passed, memory %s\n", rank, size, opened == 0 ? "opened" : opened == 1 ? "refused" : "strange");
    MPI_Finalize();
    return 0;
}
