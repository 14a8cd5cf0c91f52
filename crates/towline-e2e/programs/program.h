/*
 * What every program here needs: the platform "Towline", one context over all of its devices, and errors that end the
 * program. The programs know nothing of Towline but that name.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <CL/cl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 64

/* For calls that return their status. */
#define CHECK(call) check((call), #call)

static inline void check(cl_int status, const char *call)
{
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s: status %d\n", call, status);
        exit(3);
    }
}

/* Tells the test where the program is. */
static inline void say(const char *line)
{
    puts(line);
    fflush(stdout);
}

/* Waits until the test says something, or closes the pipe. */
static inline void wait_for_word(void)
{
    char word[64];
    if (fgets(word, sizeof word, stdin) == NULL)
        return;
}

/* The platform, or NULL. */
static inline cl_platform_id find_towline(void)
{
    cl_platform_id platforms[16];
    cl_uint count = 0;
    if (clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS)
        return NULL;
    for (cl_uint i = 0; i < count && i < 16; i++) {
        char name[256] = "";
        CHECK(clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL));
        if (strcmp(name, "Towline") == 0)
            return platforms[i];
    }
    return NULL;
}

struct towline {
    cl_uint count;
    cl_device_id devices[MAX_DEVICES];
    cl_context context;
};

/* One context over all devices. */
static inline struct towline open_towline(void)
{
    struct towline towline = {0};
    const cl_platform_id platform = find_towline();
    if (platform == NULL) {
        fputs("there is no platform Towline\n", stderr);
        exit(3);
    }
    CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MAX_DEVICES, towline.devices, &towline.count));
    cl_int status;
    towline.context = clCreateContext(NULL, towline.count, towline.devices, NULL, NULL, &status);
    check(status, "clCreateContext");
    return towline;
}

static inline cl_command_queue make_queue(const struct towline *towline, cl_uint device)
{
    cl_int status;
    const cl_command_queue queue = clCreateCommandQueue(towline->context, towline->devices[device], 0, &status);
    check(status, "clCreateCommandQueue");
    return queue;
}

static inline cl_mem make_buffer(const struct towline *towline, size_t bytes)
{
    cl_int status;
    const cl_mem buffer = clCreateBuffer(towline->context, CL_MEM_READ_WRITE, bytes, NULL, &status);
    check(status, "clCreateBuffer");
    return buffer;
}

/* A kernel of a program from source. */
static inline cl_kernel make_kernel(const struct towline *towline, const char *source, const char *name)
{
    cl_int status;
    const cl_program program = clCreateProgramWithSource(towline->context, 1, &source, NULL, &status);
    check(status, "clCreateProgramWithSource");
    CHECK(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    const cl_kernel kernel = clCreateKernel(program, name, &status);
    check(status, "clCreateKernel");
    CHECK(clReleaseProgram(program));
    return kernel;
}

/* A kernel that the devices bring along. */
static inline cl_kernel make_built_in_kernel(const struct towline *towline, const char *name)
{
    cl_int status;
    const cl_program program =
        clCreateProgramWithBuiltInKernels(towline->context, towline->count, towline->devices, name, &status);
    check(status, "clCreateProgramWithBuiltInKernels");
    const cl_kernel kernel = clCreateKernel(program, name, &status);
    check(status, "clCreateKernel");
    CHECK(clReleaseProgram(program));
    return kernel;
}

static inline void launch_after(cl_command_queue queue, cl_kernel kernel, size_t count, const cl_event *after)
{
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, after != NULL, after, NULL));
}

static inline void launch(cl_command_queue queue, cl_kernel kernel, size_t count)
{
    launch_after(queue, kernel, count, NULL);
}

#define ADD_ONE "__kernel void add_one(__global int *values) { values[get_global_id(0)] += 1; }"

#endif
