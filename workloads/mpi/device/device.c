/*
 * Gives an MPI that knows CUDA pointers to memory of devices: messages between any two ranks from and to every kind of memory,
 * several on their way at once, a field of which each rank has rows, and collectives. Kernels fill the memory and check what came.
 *
 * Messages and broadcasts work with an MPI that has UCX move its data. What computes on the data or packs it needs an MPI that was
 * itself built for CUDA: --collectives asks for that too.
 */
#include "bench.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TAG = 1,
    THREADS = 128,
    MOST_BLOCKS = 64,
    WINDOW = 8,
    COLUMNS = 4096,
    ROWS = 16, /* of each rank */
    STEPS = 10,
};

/* Eager, on the way between, and by rendezvous; no powers of two among them. */
static const size_t SIZES[] = {4, 64, 1020, 8192, 65536, 262148, 1 << 20, 4000004, 16 << 20};
enum { SIZE_COUNT = sizeof SIZES / sizeof SIZES[0] };

enum kind { DEVICE, PINNED, MANAGED, POOL, MAPPED, HOST, KINDS };
static const char *const NAMES[] = {"device", "pinned", "managed", "pool", "mapped", "host"};

extern const char device_ptx[]; /* the kernels */

static struct {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUstream stream;
    CUfunction fill, check, step;
    CUdeviceptr wrong, copy;
    bool pools;
} gpu;

struct area {
    enum kind kind;
    size_t bytes;
    uint32_t *words;
    CUmemGenericAllocationHandle handle;
};

static void check(CUresult status, const char *call)
{
    const char *name = NULL;
    if (status == CUDA_SUCCESS)
        return;
    cuGetErrorName(status, &name);
    bench_abort(EXIT_DEVICE_ERROR, "device: %s answered %s", call, name != NULL ? name : "an unknown error");
}

#define CHECK(call) check((call), #call)

static CUdeviceptr address_of(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

/* The same seed gives the same words, and no two of a run are the same. */
static uint32_t word(size_t i, uint32_t seed)
{
    return (uint32_t)i * 0x9e3779b1u + seed;
}

static void launch(CUfunction kernel, size_t count, void **arguments)
{
    const size_t needed = (count + THREADS - 1) / THREADS;
    const unsigned int blocks = needed > MOST_BLOCKS ? MOST_BLOCKS : (unsigned int)needed;
    CHECK(cuLaunchKernel(kernel, blocks, 1, 1, THREADS, 1, 1, 0, gpu.stream, arguments, NULL));
}

/* What MPI is given next has to be complete: it knows nothing of our stream. Pinned memory is what most programs have it for, where
   copies come from and go to. */
static void fill(const struct area *area, size_t offset, size_t count, uint32_t seed)
{
    uint32_t *words = area->words + offset;
    unsigned int number = (unsigned int)count;
    if (area->kind == HOST || area->kind == PINNED) {
        for (size_t i = 0; i < count; i++)
            words[i] = word(i, seed);
        return;
    }
    void *arguments[] = {&words, &number, &seed};
    launch(gpu.fill, count, arguments);
    CHECK(cuStreamSynchronize(gpu.stream));
}

/* How many words are wrong, as a kernel sees it, and where the host has a view, as it sees them too. */
static long count_wrong(const struct area *area, size_t offset, size_t count, uint32_t seed)
{
    uint32_t *words = area->words + offset;
    unsigned int number = (unsigned int)count, wrong = 0;
    long found = 0;
    if (area->kind != HOST) {
        CUdeviceptr place = address_of(words);
        if (area->kind == PINNED) {
            place = gpu.copy;
            CHECK(cuMemcpyHtoDAsync(place, words, count * 4, gpu.stream));
        }
        void *arguments[] = {&place, &number, &seed, &gpu.wrong};
        CHECK(cuMemsetD32Async(gpu.wrong, 0, 1, gpu.stream));
        launch(gpu.check, count, arguments);
        CHECK(cuMemcpyDtoHAsync(&wrong, gpu.wrong, sizeof wrong, gpu.stream));
        CHECK(cuStreamSynchronize(gpu.stream));
        found = wrong;
    }
    if (area->kind == HOST || area->kind == PINNED || area->kind == MANAGED)
        for (size_t i = 0; i < count; i++)
            found += words[i] != word(i, seed);
    return found;
}

static struct area make_area(enum kind kind, size_t bytes)
{
    struct area area = {.kind = kind, .bytes = bytes};
    CUdeviceptr address = 0;
    switch (kind) {
    case DEVICE:
        CHECK(cuMemAlloc(&address, bytes));
        break;
    case MANAGED:
        CHECK(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
        break;
    case POOL:
        CHECK(cuMemAllocAsync(&address, bytes, gpu.stream));
        CHECK(cuStreamSynchronize(gpu.stream));
        break;
    case MAPPED: {
        CUmemAllocationProp form = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, {gpu.device}}};
        CUmemAccessDesc access = {.location = form.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        size_t grain = 0;
        CHECK(cuMemGetAllocationGranularity(&grain, &form, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        area.bytes = (bytes + grain - 1) / grain * grain;
        CHECK(cuMemCreate(&area.handle, area.bytes, &form, 0));
        CHECK(cuMemAddressReserve(&address, area.bytes, 0, 0, 0));
        CHECK(cuMemMap(address, area.bytes, 0, area.handle, 0));
        CHECK(cuMemSetAccess(address, area.bytes, &access, 1));
        break;
    }
    case PINNED:
        CHECK(cuMemHostAlloc((void **)&area.words, bytes, CU_MEMHOSTALLOC_PORTABLE));
        return area;
    default:
        area.words = bench_allocate(bytes, 1);
        return area;
    }
    area.words = (uint32_t *)(uintptr_t)address;
    return area;
}

static void free_area(const struct area *area)
{
    const CUdeviceptr address = address_of(area->words);
    switch (area->kind) {
    case POOL:
        CHECK(cuMemFreeAsync(address, gpu.stream));
        CHECK(cuStreamSynchronize(gpu.stream));
        break;
    case MAPPED:
        CHECK(cuMemUnmap(address, area->bytes));
        CHECK(cuMemAddressFree(address, area->bytes));
        CHECK(cuMemRelease(area->handle));
        break;
    case PINNED:
        CHECK(cuMemFreeHost(area->words));
        break;
    case HOST:
        free(area->words);
        break;
    default:
        CHECK(cuMemFree(address));
    }
}

/* The number of this rank among those of its node. */
static int node_rank(void)
{
    MPI_Comm node;
    int rank = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &rank);
    MPI_Comm_free(&node);
    return rank;
}

static void open_device(const struct bench *bench, long chosen, char *name, int name_room)
{
    int count = 0, pools = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS)
        count = 0;
    int least = count;
    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (least == 0) {
        if (bench->rank == 0)
            fprintf(stderr, "device: there is no CUDA device\n");
        MPI_Finalize();
        exit(EXIT_SKIPPED);
    }
    if (chosen >= least)
        bench_refuse(bench, "--device %ld: there are only %d devices", chosen, least);
    CHECK(cuDeviceGet(&gpu.device, chosen >= 0 ? (int)chosen : node_rank() % count));
    CHECK(cuDeviceGetName(name, name_room, gpu.device));
    CHECK(cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, gpu.device));
    gpu.pools = pools != 0;
    CHECK(cuDevicePrimaryCtxRetain(&gpu.context, gpu.device));
    CHECK(cuCtxSetCurrent(gpu.context));
    CHECK(cuModuleLoadData(&gpu.module, device_ptx));
    CHECK(cuModuleGetFunction(&gpu.fill, gpu.module, "device_fill"));
    CHECK(cuModuleGetFunction(&gpu.check, gpu.module, "device_check"));
    CHECK(cuModuleGetFunction(&gpu.step, gpu.module, "device_step"));
    CHECK(cuStreamCreate(&gpu.stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&gpu.wrong, sizeof(uint32_t)));
    CHECK(cuMemAlloc(&gpu.copy, SIZES[SIZE_COUNT - 1]));
}

static void close_device(void)
{
    cuMemFree(gpu.wrong);
    cuMemFree(gpu.copy);
    cuStreamDestroy(gpu.stream);
    cuModuleUnload(gpu.module);
    cuDevicePrimaryCtxRelease(gpu.device);
}

static void say(const struct bench *bench, const char *what, const char *detail, long wrong)
{
    if (wrong != 0)
        fprintf(stderr, "rank %d: %s%s%s: %ld words are wrong\n", bench->rank, what, *detail != '\0' ? ", " : "", detail, wrong);
}

/* Forth, and back with other contents; `sending` has the lower of the two ranks, `receiving` the other. */
static long ping_pong(const struct bench *bench, int peer, const struct area *mine, size_t offset, size_t bytes)
{
    const int lower = bench->rank < peer ? bench->rank : peer;
    const uint32_t forth = (uint32_t)bytes * 31 + (uint32_t)lower, back = forth ^ 0x5a5a5a5au;
    uint32_t *words = mine->words + offset;
    const size_t count = bytes / 4;
    long wrong = 0;
    if (bench->rank == lower) {
        fill(mine, offset, count, forth);
        MPI_Send(words, (int)bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        MPI_Recv(words, (int)bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong = count_wrong(mine, offset, count, back);
    } else {
        MPI_Recv(words, (int)bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong = count_wrong(mine, offset, count, forth);
        fill(mine, offset, count, back);
        MPI_Send(words, (int)bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
    }
    return wrong;
}

/* Between every two ranks, from every kind of memory to device memory and back. */
static long messages(const struct bench *bench)
{
    long wrong = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind == POOL && !gpu.pools)
            continue;
        for (int distance = 1; distance < bench->ranks; distance *= 2) {
            const int peer = bench->rank ^ distance;
            /* One word more, for messages that do not begin where the memory does. */
            const struct area area = make_area(bench->rank < peer ? (enum kind)kind : DEVICE, SIZES[SIZE_COUNT - 1] + 4);
            for (size_t size = 0; size < SIZE_COUNT; size++) {
                const long found = ping_pong(bench, peer, &area, size % 2, SIZES[size]);
                char detail[64];
                snprintf(detail, sizeof detail, "%zu bytes, rank %d", SIZES[size], peer);
                say(bench, NAMES[kind], detail, found);
                wrong += found;
            }
            free_area(&area);
        }
    }
    return wrong;
}

/* Several messages both ways between neighbours of a ring, all on their way at once. Answers bytes sent. */
static double window(const struct bench *bench, long *wrong)
{
    const size_t count = 1 << 20;
    const int left = (bench->rank + bench->ranks - 1) % bench->ranks, right = (bench->rank + 1) % bench->ranks;
    const struct area ours = make_area(DEVICE, WINDOW * count * 4), got = make_area(DEVICE, WINDOW * count * 4);
    MPI_Request requests[2 * WINDOW];
    fill(&ours, 0, WINDOW * count, (uint32_t)bench->rank);
    for (int slot = 0; slot < WINDOW; slot++) {
        const size_t at = (size_t)slot * count;
        MPI_Irecv(got.words + at, (int)count, MPI_UINT32_T, left, slot, MPI_COMM_WORLD, &requests[slot]);
        MPI_Isend(ours.words + at, (int)count, MPI_UINT32_T, right, slot, MPI_COMM_WORLD, &requests[WINDOW + slot]);
    }
    MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    const long found = count_wrong(&got, 0, WINDOW * count, (uint32_t)left);
    say(bench, "window", "", found);
    *wrong += found;
    free_area(&ours);
    free_area(&got);
    return (double)(WINDOW * count * 4);
}

/* The field's rows lie on a ring of ranks; every step needs the rows next to a rank's own. */
static long halo(const struct bench *bench)
{
    const size_t own = (size_t)ROWS * COLUMNS, all = own * (size_t)bench->ranks;
    const int above = (bench->rank + bench->ranks - 1) % bench->ranks, below = (bench->rank + 1) % bench->ranks;
    struct area from = make_area(DEVICE, (own + 2 * COLUMNS) * 4), to = make_area(DEVICE, (own + 2 * COLUMNS) * 4);
    uint32_t *field = bench_allocate(all, 4), *next = bench_allocate(all, 4), *come = bench_allocate(own, 4);
    for (size_t i = 0; i < all; i++)
        field[i] = word(i, 1);
    CHECK(cuMemcpyHtoD(address_of(from.words + COLUMNS), field + own * (size_t)bench->rank, own * 4));
    for (int step = 0; step < STEPS; step++) {
        uint32_t *first = from.words + COLUMNS, *last = first + own - COLUMNS, *into = to.words + COLUMNS;
        unsigned int count = (unsigned int)own, columns = COLUMNS;
        MPI_Request requests[4];
        MPI_Irecv(first - COLUMNS, COLUMNS, MPI_UINT32_T, above, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(last + COLUMNS, COLUMNS, MPI_UINT32_T, below, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(last, COLUMNS, MPI_UINT32_T, below, 0, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(first, COLUMNS, MPI_UINT32_T, above, 1, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        void *arguments[] = {&first, &into, &count, &columns};
        launch(gpu.step, own, arguments);
        CHECK(cuStreamSynchronize(gpu.stream));
        const struct area old = from;
        from = to;
        to = old;
        for (size_t i = 0; i < all; i++)
            next[i] = 3 * field[i] + field[(i + COLUMNS) % all] + field[(i + all - COLUMNS) % all];
        uint32_t *const spare = field;
        field = next;
        next = spare;
    }
    long wrong = 0;
    CHECK(cuMemcpyDtoH(come, address_of(from.words + COLUMNS), own * 4));
    for (size_t i = 0; i < own; i++)
        wrong += come[i] != field[own * (size_t)bench->rank + i];
    say(bench, "halo", "", wrong);
    free_area(&from);
    free_area(&to);
    free(field);
    free(next);
    free(come);
    return wrong;
}

static long broadcasts(const struct bench *bench)
{
    static const size_t counts[] = {1, 5000, 300000};
    long wrong = 0;
    const struct area area = make_area(DEVICE, 300000 * 4);
    for (int root = 0; root < bench->ranks; root++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            const uint32_t seed = (uint32_t)(root * 100 + (int)i);
            fill(&area, 0, counts[i], bench->rank == root ? seed : ~seed);
            MPI_Bcast(area.words, (int)counts[i], MPI_UINT32_T, root, MPI_COMM_WORLD);
            wrong += count_wrong(&area, 0, counts[i], seed);
        }
    say(bench, "broadcast", "", wrong);
    free_area(&area);
    return wrong;
}

/* For these the MPI itself reads and writes the memory: it adds up, copies its own part, or packs columns. */
static long collectives(const struct bench *bench)
{
    static const size_t counts[] = {1, 5000, 300000};
    const uint32_t ranks = (uint32_t)bench->ranks;
    long wrong = 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const size_t count = counts[i];
        const struct area ours = make_area(DEVICE, count * ranks * 4), got = make_area(DEVICE, count * ranks * 4);
        uint32_t *host = bench_allocate(count * ranks, 4);

        fill(&ours, 0, count, (uint32_t)bench->rank);
        MPI_Allreduce(ours.words, got.words, (int)count, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
        CHECK(cuMemcpyDtoH(host, address_of(got.words), count * 4));
        long found = 0;
        for (size_t at = 0; at < count; at++)
            found += host[at] != ranks * word(at, 0) + ranks * (ranks - 1) / 2;
        say(bench, "sum", "", found);
        wrong += found;

        MPI_Allgather(ours.words, (int)count, MPI_UINT32_T, got.words, (int)count, MPI_UINT32_T, MPI_COMM_WORLD);
        for (uint32_t rank = 0; rank < ranks; rank++)
            wrong += count_wrong(&got, rank * count, count, rank);

        for (uint32_t rank = 0; rank < ranks; rank++)
            fill(&ours, rank * count, count, (uint32_t)bench->rank * ranks + rank);
        MPI_Alltoall(ours.words, (int)count, MPI_UINT32_T, got.words, (int)count, MPI_UINT32_T, MPI_COMM_WORLD);
        for (uint32_t rank = 0; rank < ranks; rank++)
            wrong += count_wrong(&got, rank * count, count, rank * ranks + (uint32_t)bench->rank);
        free_area(&ours);
        free_area(&got);
        free(host);
    }

    /* A column of a field to one of a neighbour's. */
    const int left = (bench->rank + bench->ranks - 1) % bench->ranks, right = (bench->rank + 1) % bench->ranks;
    const struct area field = make_area(DEVICE, ROWS * COLUMNS * 4);
    uint32_t *host = bench_allocate(ROWS * COLUMNS, 4);
    MPI_Datatype column;
    MPI_Type_vector(ROWS, 2, COLUMNS, MPI_UINT32_T, &column);
    MPI_Type_commit(&column);
    fill(&field, 0, ROWS * COLUMNS, (uint32_t)bench->rank);
    MPI_Sendrecv(field.words + COLUMNS - 2, 1, column, right, TAG, field.words, 1, column, left, TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    CHECK(cuMemcpyDtoH(host, address_of(field.words), ROWS * COLUMNS * 4));
    long found = 0;
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        found += host[i] != (i % COLUMNS < 2 ? word(i + COLUMNS - 2, (uint32_t)left) : word(i, (uint32_t)bench->rank));
    say(bench, "column", "", found);
    MPI_Type_free(&column);
    free_area(&field);
    free(host);
    return wrong + found;
}

int main(int argc, char **argv)
{
    long device = -1;
    bool with_collectives = false;
    const struct option options[] = {
        {.name = "device", .value = "N", .help = "every rank uses device N [default: in turn]", .number = &device},
        {.name = "collectives", .help = "also what the MPI must compute on memory of devices", .flag = &with_collectives},
    };
    struct bench bench = {.workload = "device", .classes = "S"};
    bench_begin(&bench, &argc, &argv, "Pointers to memory of CUDA devices, given to MPI.", NULL, options,
                sizeof options / sizeof options[0]);
    if (bench.ranks < 2 || log2_exact(bench.ranks) < 0)
        bench_refuse(&bench, "this takes a power of two of ranks, not %d", bench.ranks);
    char name[96] = "", full_name[128];
    open_device(&bench, device, name, sizeof name);
    snprintf(full_name, sizeof full_name, "cuda: %s", name);

    long wrong = messages(&bench) + halo(&bench) + broadcasts(&bench);
    if (with_collectives)
        wrong += collectives(&bench);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = bench_now();
    double bytes = window(&bench, &wrong);
    const double seconds = bench_now() - begun;

    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    struct result result = {.iterations = 1, .seconds = seconds, .rate_key = "bandwidth_mb_per_s", .device = full_name};
    snprintf(result.size, sizeof result.size, "%zu", SIZES[SIZE_COUNT - 1]);
    result.work = bytes / 1e6;
    result.checked = true;
    result.passed = wrong == 0;
    result.max_error = (double)wrong;
    /* MPI gives up what it has on the device when it ends: not before is the context. */
    const int status = bench_end(&bench, &result);
    close_device();
    return status;
}
