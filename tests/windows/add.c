/*
 * A program of Windows over OpenCL: it loads the library that it is given, adds on its first device, and maps the result.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

#define COUNT ((size_t)4 << 20)
#define BYTES (COUNT * sizeof(float))

static const char *SOURCE =
    "kernel void add(global float *a, global const float *b)\n"
    "{\n"
    "    const size_t i = get_global_id(0);\n"
    "    a[i] += b[i];\n"
    "    if (i == 7) printf(\"item %d\\n\", (int)i);\n"
    "}\n";

static void *(*find)(const char *);
#define CALL(name) ((__typeof__(name) *)find(#name))

static void check(cl_int status, const char *call)
{
    if (status != CL_SUCCESS) {
        printf("%s failed with status %d\n", call, (int)status);
        exit(1);
    }
}

static void expect(const float *found, float by_place, float everywhere, const char *what)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (found[i] != by_place * (float)i + everywhere) {
            printf("%s: element %zu is %f\n", what, i, found[i]);
            exit(1);
        }
    }
}

int main(int argc, char **argv)
{
    HMODULE library = argc == 2 ? LoadLibraryA(argv[1]) : NULL;
    if (!library) {
        printf("usage: add LIBRARY (error %lu)\n", GetLastError());
        return 1;
    }
    find = (void *(*)(const char *))(void *)GetProcAddress(library, "clGetExtensionFunctionAddress");
    cl_int (*platforms)(cl_uint, cl_platform_id *, cl_uint *) =
        (cl_int(*)(cl_uint, cl_platform_id *, cl_uint *))(void *)GetProcAddress(library, "clIcdGetPlatformIDsKHR");

    cl_platform_id platform;
    cl_device_id device;
    cl_int status;
    char name[256];
    const size_t count = COUNT;
    check(platforms(1, &platform, NULL), "clIcdGetPlatformIDsKHR");
    check(CALL(clGetDeviceIDs)(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    check(CALL(clGetDeviceInfo)(device, CL_DEVICE_NAME, sizeof name, name, NULL), "clGetDeviceInfo");
    printf("device %s\n", name);

    cl_context context = CALL(clCreateContext)(NULL, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    cl_command_queue queue = CALL(clCreateCommandQueueWithProperties)(context, device, NULL, &status);
    check(status, "clCreateCommandQueueWithProperties");
    cl_program program = CALL(clCreateProgramWithSource)(context, 1, &SOURCE, NULL, &status);
    check(status, "clCreateProgramWithSource");
    check(CALL(clBuildProgram)(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    cl_kernel kernel = CALL(clCreateKernel)(program, "add", &status);
    check(status, "clCreateKernel");

    float *a = malloc(BYTES), *b = malloc(BYTES);
    if (!a || !b)
        return 1;
    for (size_t i = 0; i < COUNT; i++) {
        a[i] = (float)i;
        b[i] = 2.0f * (float)i;
    }
    cl_mem first = CALL(clCreateBuffer)(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, a, &status);
    check(status, "clCreateBuffer");
    cl_mem second = CALL(clCreateBuffer)(context, CL_MEM_READ_ONLY, BYTES, NULL, &status);
    check(status, "clCreateBuffer");
    check(CALL(clEnqueueWriteBuffer)(queue, second, CL_FALSE, 0, BYTES, b, 0, NULL, NULL), "clEnqueueWriteBuffer");
    check(CALL(clSetKernelArg)(kernel, 0, sizeof first, &first), "clSetKernelArg");
    check(CALL(clSetKernelArg)(kernel, 1, sizeof second, &second), "clSetKernelArg");
    check(CALL(clEnqueueNDRangeKernel)(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
    check(CALL(clEnqueueReadBuffer)(queue, first, CL_TRUE, 0, BYTES, a, 0, NULL, NULL), "clEnqueueReadBuffer");
    expect(a, 3, 0, "read");

    float *mapped = CALL(clEnqueueMapBuffer)(queue, first, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, BYTES, 0, NULL, NULL,
                                             &status);
    check(status, "clEnqueueMapBuffer");
    expect(mapped, 3, 0, "mapped");
    for (size_t i = 0; i < COUNT; i++)
        mapped[i] = 1;
    check(CALL(clEnqueueUnmapMemObject)(queue, first, mapped, 0, NULL, NULL), "clEnqueueUnmapMemObject");
    check(CALL(clEnqueueReadBuffer)(queue, first, CL_TRUE, 0, BYTES, a, 0, NULL, NULL), "clEnqueueReadBuffer");
    expect(a, 0, 1, "unmapped");
    puts("all elements are right");
    return 0;
}
