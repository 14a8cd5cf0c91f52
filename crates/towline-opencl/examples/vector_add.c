/*
 * A program over OpenCL that knows nothing of Towline: it adds two vectors on a device of the platform that is named, else of the first.
 *
 *   cc -o vector_add vector_add.c -lOpenCL
 *   towline run --server gpubox -- ./vector_add Towline
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT (1 << 20)

static const char *const SOURCE =
    "kernel void add(global const float *a, global const float *b, global float *sum)\n"
    "{\n"
    "    const size_t i = get_global_id(0);\n"
    "    sum[i] = a[i] + b[i];\n"
    "}\n";

static void check(cl_int status, const char *call)
{
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s failed with status %d\n", call, status);
        exit(1);
    }
}

/* The platform whose name begins with `wanted`. */
static cl_platform_id find_platform(const char *wanted)
{
    cl_platform_id platforms[16];
    cl_uint count = 0;
    check(clGetPlatformIDs(16, platforms, &count), "clGetPlatformIDs");
    for (cl_uint i = 0; i < count && i < 16; i++) {
        char name[256] = "";
        check(clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL), "clGetPlatformInfo");
        if (strncmp(name, wanted, strlen(wanted)) == 0)
            return platforms[i];
    }
    fprintf(stderr, "there is no OpenCL platform `%s`: clinfo -l lists those there are\n", wanted);
    exit(1);
}

int main(int argc, char **argv)
{
    static float a[COUNT], b[COUNT], sum[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        a[i] = (float)i;
        b[i] = 1.0f;
    }

    cl_int status;
    cl_device_id device;
    check(clGetDeviceIDs(find_platform(argc > 1 ? argv[1] : ""), CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    char name[256];
    check(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL), "clGetDeviceInfo");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    check(status, "clCreateCommandQueue");

    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&SOURCE, NULL, &status);
    check(status, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    cl_kernel kernel = clCreateKernel(program, "add", &status);
    check(status, "clCreateKernel");

    cl_mem buffers[3];
    float *const contents[3] = {a, b, sum};
    for (cl_uint i = 0; i < 3; i++) {
        buffers[i] = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof sum, contents[i], &status);
        check(status, "clCreateBuffer");
        check(clSetKernelArg(kernel, i, sizeof buffers[i], &buffers[i]), "clSetKernelArg");
    }
    const size_t global = COUNT;
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
    check(clEnqueueReadBuffer(queue, buffers[2], CL_TRUE, 0, sizeof sum, sum, 0, NULL, NULL), "clEnqueueReadBuffer");

    size_t right = 0;
    for (size_t i = 0; i < COUNT; i++)
        right += sum[i] == a[i] + b[i];
    printf("%s: %zu of %d sums are right\n", name, right, COUNT);

    for (int i = 0; i < 3; i++)
        clReleaseMemObject(buffers[i]);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return right == COUNT ? 0 : 1;
}
