#define CL_TARGET_OPENCL_VERSION 120
#include "gpu.h"

#include <CL/cl.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PLATFORMS 16
#define MOST_DEVICES 64

extern const char lj_cl[]; /* the kernel's source */

struct engine {
    struct staging staging;
    char name[128];
    cl_context context;
    cl_command_queue queue;
    cl_program program;
    cl_kernel kernel;
    cl_mem positions, counts, lists, forces, sums;
    size_t positions_room, own_room, lists_room; /* of buffers: atoms, own atoms, entries */
};

static void check(cl_int status, const char *call)
{
    if (status != CL_SUCCESS)
        bench_abort(EXIT_DEVICE_ERROR, "lj: %s answered %d", call, status);
}

#define CHECK(call) check((call), #call)

/* Devices of the platforms whose name has `wanted` in it: GPUs and accelerators where there are any, else all. */
static cl_uint find_devices(const char *wanted, cl_device_id devices[MOST_DEVICES])
{
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint platform_count = 0;
    const cl_device_type kinds[2] = {CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_ALL};
    if (clGetPlatformIDs(MOST_PLATFORMS, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    for (int kind = 0; kind < 2; kind++) {
        for (cl_uint i = 0; i < platform_count && i < MOST_PLATFORMS; i++) {
            char name[256] = "";
            cl_uint count = 0;
            clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
            if (wanted != NULL && strstr(name, wanted) == NULL)
                continue;
            if (clGetDeviceIDs(platforms[i], kinds[kind], MOST_DEVICES, devices, &count) == CL_SUCCESS && count > 0)
                return count < MOST_DEVICES ? count : MOST_DEVICES;
        }
    }
    return 0;
}

static void build(struct engine *engine, cl_device_id device)
{
    cl_int status;
    const char *source = lj_cl;
    engine->program = clCreateProgramWithSource(engine->context, 1, &source, NULL, &status);
    check(status, "clCreateProgramWithSource");
    status = clBuildProgram(engine->program, 1, &device, "", NULL, NULL);
    if (status != CL_SUCCESS) {
        char log[8192] = "";
        clGetProgramBuildInfo(engine->program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        bench_abort(EXIT_DEVICE_ERROR, "lj: the kernel was not built (%d):\n%s", status, log);
    }
    engine->kernel = clCreateKernel(engine->program, "lj_forces", &status);
    check(status, "clCreateKernel");
}

struct engine *engine_open(const struct bench *bench, long device, const char *platform)
{
    struct engine *engine = bench_allocate(1, sizeof *engine);
    cl_device_id devices[MOST_DEVICES];
    cl_int status;
    const cl_uint count = find_devices(platform, devices);
    int least = (int)count;
    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (least == 0) {
        if (bench->rank == 0)
            fprintf(stderr, "lj_opencl: there is no OpenCL device%s%s\n", platform ? " on a platform named " : "",
                    platform ? platform : "");
        MPI_Finalize();
        exit(EXIT_SKIPPED);
    }
    if (device >= least)
        bench_refuse(bench, "--device %ld: there are only %d devices", device, least);
    const cl_device_id chosen = devices[device >= 0 ? (cl_uint)device : (cl_uint)node_rank() % count];
    char name[96] = "";
    clGetDeviceInfo(chosen, CL_DEVICE_NAME, sizeof name - 1, name, NULL);
    for (char *at = name; *at != '\0'; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < 0x20)
            *at = ' ';
    snprintf(engine->name, sizeof engine->name, "opencl: %s", name);
    engine->context = clCreateContext(NULL, 1, &chosen, NULL, NULL, &status);
    check(status, "clCreateContext");
    engine->queue = clCreateCommandQueue(engine->context, chosen, 0, &status);
    check(status, "clCreateCommandQueue");
    build(engine, chosen);
    return engine;
}

void engine_close(struct engine *engine)
{
    cl_mem buffers[] = {engine->positions, engine->counts, engine->lists, engine->forces, engine->sums};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i] != NULL)
            clReleaseMemObject(buffers[i]);
    clReleaseKernel(engine->kernel);
    clReleaseProgram(engine->program);
    clReleaseCommandQueue(engine->queue);
    clReleaseContext(engine->context);
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

static void replace(struct engine *engine, cl_mem *buffer, cl_mem_flags flags, size_t bytes)
{
    cl_int status;
    if (*buffer != NULL)
        CHECK(clReleaseMemObject(*buffer));
    *buffer = clCreateBuffer(engine->context, flags, bytes, NULL, &status);
    check(status, "clCreateBuffer");
}

/* Buffers follow the room that the staging has. */
static void make_buffers(struct engine *engine)
{
    const struct staging *staging = &engine->staging;
    if (staging->positions_capacity > engine->positions_room) {
        engine->positions_room = staging->positions_capacity;
        replace(engine, &engine->positions, CL_MEM_READ_ONLY, engine->positions_room * 4 * sizeof(float));
    }
    if (staging->own_capacity > engine->own_room) {
        engine->own_room = staging->own_capacity;
        replace(engine, &engine->counts, CL_MEM_READ_ONLY, engine->own_room * sizeof(int));
        replace(engine, &engine->forces, CL_MEM_WRITE_ONLY, engine->own_room * 4 * sizeof(float));
        replace(engine, &engine->sums, CL_MEM_WRITE_ONLY, engine->own_room * 2 * sizeof(float));
    }
    if (staging->lists_capacity > engine->lists_room) {
        engine->lists_room = staging->lists_capacity;
        replace(engine, &engine->lists, CL_MEM_READ_ONLY, engine->lists_room * sizeof(int));
    }
}

void engine_set_neighbours(struct engine *engine, const struct atoms *atoms, const struct neighbours *neighbours)
{
    struct staging *staging = &engine->staging;
    const cl_uint own = (cl_uint)atoms->own;
    const float cutoff_squared = (float)(CUTOFF * CUTOFF);
    staging_set_neighbours(staging, atoms, neighbours);
    make_buffers(engine);
    if (staging->own == 0 || staging->entries == 0)
        return;
    CHECK(clEnqueueWriteBuffer(engine->queue, engine->counts, CL_FALSE, 0, staging->own * sizeof(int), staging->counts, 0,
                               NULL, NULL));
    CHECK(clEnqueueWriteBuffer(engine->queue, engine->lists, CL_FALSE, 0, staging->entries * sizeof(int), staging->lists, 0,
                               NULL, NULL));
    CHECK(clSetKernelArg(engine->kernel, 0, sizeof own, &own));
    CHECK(clSetKernelArg(engine->kernel, 1, sizeof(cl_mem), &engine->positions));
    CHECK(clSetKernelArg(engine->kernel, 2, sizeof(cl_mem), &engine->counts));
    CHECK(clSetKernelArg(engine->kernel, 3, sizeof(cl_mem), &engine->lists));
    CHECK(clSetKernelArg(engine->kernel, 4, sizeof cutoff_squared, &cutoff_squared));
    CHECK(clSetKernelArg(engine->kernel, 5, sizeof(cl_mem), &engine->forces));
    CHECK(clSetKernelArg(engine->kernel, 6, sizeof(cl_mem), &engine->sums));
}

/* One wait: for the forces. */
void engine_forces(struct engine *engine, struct atoms *atoms, struct sums *sums)
{
    struct staging *staging = &engine->staging;
    const size_t group = 64, items = (staging->own + group - 1) / group * group;
    staging_take_positions(staging, atoms);
    if (staging->own > 0 && staging->entries > 0) {
        CHECK(clEnqueueWriteBuffer(engine->queue, engine->positions, CL_FALSE, 0, staging->known * 4 * sizeof(float),
                                   staging->positions, 0, NULL, NULL));
        CHECK(clEnqueueNDRangeKernel(engine->queue, engine->kernel, 1, NULL, &items, &group, 0, NULL, NULL));
        if (sums != NULL)
            CHECK(clEnqueueReadBuffer(engine->queue, engine->sums, CL_FALSE, 0, staging->own * 2 * sizeof(float),
                                      staging->sums, 0, NULL, NULL));
        CHECK(clEnqueueReadBuffer(engine->queue, engine->forces, CL_TRUE, 0, staging->own * 4 * sizeof(float),
                                  staging->forces, 0, NULL, NULL));
    }
    staging_give_forces(staging, atoms, sums);
}
