#include "gpu.h"

#include <cuda.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#define GROUP 128

extern const char lj_ptx[]; /* the kernel */

struct engine {
    struct staging staging;
    char name[128];
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction kernel;
    CUdeviceptr positions, counts, lists, forces, sums;
    size_t positions_room, own_room, lists_room; /* atoms, own atoms, entries */
};

static void check(CUresult status, const char *call)
{
    const char *name = NULL;
    if (status == CUDA_SUCCESS)
        return;
    cuGetErrorName(status, &name);
    bench_abort(EXIT_DEVICE_ERROR, "lj: %s answered %s", call, name != NULL ? name : "an unknown error");
}

#define CHECK(call) check((call), #call)

struct engine *engine_open(const struct bench *bench, long device, const char *platform)
{
    struct engine *engine = bench_allocate(1, sizeof *engine);
    int count = 0;
    if (platform != NULL)
        bench_refuse(bench, "--platform is for lj_opencl; CUDA has one");
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS)
        count = 0;
    int least = count;
    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (least == 0) {
        if (bench->rank == 0)
            fprintf(stderr, "lj_cuda: there is no CUDA device\n");
        MPI_Finalize();
        exit(EXIT_SKIPPED);
    }
    if (device >= least)
        bench_refuse(bench, "--device %ld: there are only %d devices", device, least);
    CHECK(cuDeviceGet(&engine->device, device >= 0 ? (int)device : node_rank() % count));
    char name[96] = "";
    CHECK(cuDeviceGetName(name, sizeof name, engine->device));
    snprintf(engine->name, sizeof engine->name, "cuda: %s", name);
    CHECK(cuDevicePrimaryCtxRetain(&engine->context, engine->device));
    CHECK(cuCtxSetCurrent(engine->context));
    CHECK(cuModuleLoadData(&engine->module, lj_ptx));
    CHECK(cuModuleGetFunction(&engine->kernel, engine->module, "lj_forces"));
    return engine;
}

void engine_close(struct engine *engine)
{
    CUdeviceptr buffers[] = {engine->positions, engine->counts, engine->lists, engine->forces, engine->sums};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i] != 0)
            cuMemFree(buffers[i]);
    cuModuleUnload(engine->module);
    cuDevicePrimaryCtxRelease(engine->device);
    staging_free(&engine->staging);
    free(engine);
}

const char *engine_device(const struct engine *engine)
{
    return engine->name;
}

double engine_roundoff(const struct engine *engine)
{
    (void)engine;
    return FLT_EPSILON / 2;
}

static void replace(CUdeviceptr *buffer, size_t bytes)
{
    if (*buffer != 0)
        CHECK(cuMemFree(*buffer));
    CHECK(cuMemAlloc(buffer, bytes));
}

/* Buffers follow the room that the staging has. */
static void make_buffers(struct engine *engine)
{
    const struct staging *staging = &engine->staging;
    if (staging->positions_capacity > engine->positions_room) {
        engine->positions_room = staging->positions_capacity;
        replace(&engine->positions, engine->positions_room * 4 * sizeof(float));
    }
    if (staging->own_capacity > engine->own_room) {
        engine->own_room = staging->own_capacity;
        replace(&engine->counts, engine->own_room * sizeof(int));
        replace(&engine->forces, engine->own_room * 4 * sizeof(float));
        replace(&engine->sums, engine->own_room * 2 * sizeof(float));
    }
    if (staging->lists_capacity > engine->lists_room) {
        engine->lists_room = staging->lists_capacity;
        replace(&engine->lists, engine->lists_room * sizeof(int));
    }
}

void engine_set_neighbours(struct engine *engine, const struct atoms *atoms, const struct neighbours *neighbours)
{
    struct staging *staging = &engine->staging;
    staging_set_neighbours(staging, atoms, neighbours);
    make_buffers(engine);
    if (staging->own == 0 || staging->entries == 0)
        return;
    CHECK(cuMemcpyHtoDAsync(engine->counts, staging->counts, staging->own * sizeof(int), NULL));
    CHECK(cuMemcpyHtoDAsync(engine->lists, staging->lists, staging->entries * sizeof(int), NULL));
}

/* One wait: for the forces. */
void engine_forces(struct engine *engine, struct atoms *atoms, struct sums *sums)
{
    struct staging *staging = &engine->staging;
    unsigned int own = (unsigned int)staging->own;
    float cutoff_squared = (float)(CUTOFF * CUTOFF);
    void *arguments[] = {&own,           &engine->positions, &engine->counts, &engine->lists,
                         &cutoff_squared, &engine->forces,    &engine->sums};
    staging_take_positions(staging, atoms);
    if (staging->own > 0 && staging->entries > 0) {
        CHECK(cuMemcpyHtoDAsync(engine->positions, staging->positions, staging->known * 4 * sizeof(float), NULL));
        CHECK(cuLaunchKernel(engine->kernel, (own + GROUP - 1) / GROUP, 1, 1, GROUP, 1, 1, 0, NULL, arguments, NULL));
        if (sums != NULL)
            CHECK(cuMemcpyDtoHAsync(staging->sums, engine->sums, staging->own * 2 * sizeof(float), NULL));
        CHECK(cuMemcpyDtoHAsync(staging->forces, engine->forces, staging->own * 4 * sizeof(float), NULL));
        CHECK(cuStreamSynchronize(NULL));
    }
    staging_give_forces(staging, atoms, sums);
}
