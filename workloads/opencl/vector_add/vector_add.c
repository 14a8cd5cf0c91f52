/*
 * The "hello world" of OpenCL: adds two vectors on one device.
 *
 * Everything between choosing the device and printing the result is plain OpenCL, in the order in which any program
 * does it. The other workloads wrap these steps.
 */
#include "../common/devices.h"

#include <stdio.h>
#include <stdlib.h>

extern const char vector_add_cl[];

/* Small integers, so that every sum is exact in single precision. */
static float element_a(size_t i)
{
    return (float)(i % 1000);
}

static float element_b(size_t i)
{
    return (float)(2 * (i % 1000));
}

int main(int argc, char **argv)
{
    struct options options = {.workload = "vector_add", .size = 1 << 20, .device = ANY_DEVICE, .devices = 1};
    options_parse(&options, argc, argv, "Adds two vectors on one device and checks the sum.",
                  "elements of the vectors", (struct option_table){NULL, 0});
    if (options.size > (size_t)1 << 31)
        usage_error(&options, "--size %zu: at most 2147483648", options.size);
    struct devices devices;
    devices_open(&devices, &options);
    cl_command_queue queue = devices.queues[0];

    const size_t bytes = options.size * sizeof(float);
    float *a = host_allocate(bytes), *b = host_allocate(bytes), *sum = host_allocate(bytes);
    for (size_t i = 0; i < options.size; i++) {
        a[i] = element_a(i);
        b[i] = element_b(i);
    }

    cl_int status;
    cl_mem a_buffer = clCreateBuffer(devices.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes, a, &status);
    CL_CHECK_STATUS(status, "clCreateBuffer");
    cl_mem b_buffer = clCreateBuffer(devices.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes, b, &status);
    CL_CHECK_STATUS(status, "clCreateBuffer");
    cl_mem sum_buffer = clCreateBuffer(devices.context, CL_MEM_WRITE_ONLY, bytes, NULL, &status);
    CL_CHECK_STATUS(status, "clCreateBuffer");

    cl_program program = program_build(&devices, vector_add_cl, "");
    cl_kernel kernel = clCreateKernel(program, "vector_add", &status);
    CL_CHECK_STATUS(status, "clCreateKernel");
    const cl_uint count = (cl_uint)options.size;
    CL_CHECK(clSetKernelArg(kernel, 0, sizeof a_buffer, &a_buffer));
    CL_CHECK(clSetKernelArg(kernel, 1, sizeof b_buffer, &b_buffer));
    CL_CHECK(clSetKernelArg(kernel, 2, sizeof sum_buffer, &sum_buffer));
    CL_CHECK(clSetKernelArg(kernel, 3, sizeof count, &count));

    /* No local size: the implementation chooses. */
    CL_CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &options.size, NULL, 0, NULL, NULL));
    CL_CHECK(clEnqueueReadBuffer(queue, sum_buffer, CL_TRUE, 0, bytes, sum, 0, NULL, NULL));

    size_t wrong = 0;
    for (size_t i = 0; i < options.size; i++)
        wrong += sum[i] != element_a(i) + element_b(i);
    printf("%s (%s): sum of two vectors of %zu elements: %s\n", devices.name, devices.platform_name,
           options.size, wrong == 0 ? "right" : "WRONG");

    CL_CHECK(clReleaseKernel(kernel));
    CL_CHECK(clReleaseProgram(program));
    CL_CHECK(clReleaseMemObject(a_buffer));
    CL_CHECK(clReleaseMemObject(b_buffer));
    CL_CHECK(clReleaseMemObject(sum_buffer));
    free(a);
    free(b);
    free(sum);
    devices_close(&devices);
    return wrong == 0 ? EXIT_PASSED : EXIT_WRONG_RESULT;
}
