/*
 * Two unlike devices in one context: the first brings a kernel along and compiles nothing, the second compiles. One buffer
 * goes from one to the other and back, ordered by events only.
 */
#include "program.h"

#define COUNT 4096

int main(void)
{
    const struct towline towline = open_towline();
    const cl_device_id first = towline.devices[0], second = towline.devices[1];
    const cl_command_queue queues[] = {make_queue(&towline, 0), make_queue(&towline, 1)};
    cl_int status;
    const cl_program built_in = clCreateProgramWithBuiltInKernels(towline.context, 1, &first, "add_one", &status);
    check(status, "clCreateProgramWithBuiltInKernels");
    const char *source = ADD_ONE;
    const cl_program compiled = clCreateProgramWithSource(towline.context, 1, &source, NULL, &status);
    check(status, "clCreateProgramWithSource");
    CHECK(clBuildProgram(compiled, 1, &second, NULL, NULL, NULL));
    const cl_program programs[] = {built_in, compiled};

    const cl_mem buffer = make_buffer(&towline, COUNT * sizeof(int));
    static int values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = i;
    cl_event before = NULL;
    CHECK(clEnqueueWriteBuffer(queues[0], buffer, CL_FALSE, 0, sizeof values, values, 0, NULL, &before));
    CHECK(clFlush(queues[0]));
    for (int step = 0; step < 6; step++) {
        const int device = step % 2;
        const cl_kernel kernel = clCreateKernel(programs[device], "add_one", &status);
        check(status, "clCreateKernel");
        CHECK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
        const size_t count = COUNT;
        cl_event after;
        CHECK(clEnqueueNDRangeKernel(queues[device], kernel, 1, NULL, &count, NULL, 1, &before, &after));
        CHECK(clFlush(queues[device]));
        CHECK(clReleaseKernel(kernel));
        CHECK(clReleaseEvent(before));
        before = after;
    }
    static int results[COUNT];
    CHECK(clEnqueueReadBuffer(queues[0], buffer, CL_TRUE, 0, sizeof results, results, 1, &before, NULL));
    for (int i = 0; i < COUNT; i++)
        if (results[i] != i + 6) {
            fprintf(stderr, "value %d is %d\n", i, results[i]);
            return 1;
        }
    say("right");
    return 0;
}
