/*
 * Two devices of unlike vendors in one context. Two buffers go from one to the other and back; the results tell which
 * kernels ran, and in which order. All commands are enqueued and flushed behind one user event, with wait lists that name
 * events of both devices, before it is set.
 */
#include "program.h"

#define COUNT 4096
#define STEPS 6

#define SOURCE \
    "__kernel void advance(__global uint *values, __global const uint *others, uint number) {" \
    "    const size_t i = get_global_id(0);" \
    "    values[i] = values[i] * 3 + others[i] + number;" \
    "}"

/* What the kernel does. */
static void advance(unsigned *values, const unsigned *others, unsigned number)
{
    for (int i = 0; i < COUNT; i++)
        values[i] = values[i] * 3 + others[i] + number;
}

static int compare(const char *name, const unsigned *got, const unsigned *expected)
{
    for (int i = 0; i < COUNT; i++)
        if (got[i] != expected[i]) {
            fprintf(stderr, "%s: value %d is %u, not %u\n", name, i, got[i], expected[i]);
            return 1;
        }
    return 0;
}

int main(void)
{
    const struct towline towline = open_towline();
    if (towline.count != 2) {
        fprintf(stderr, "%u devices, not 2\n", towline.count);
        return 1;
    }
    for (int d = 0; d < 2; d++) {
        char vendor[256] = "", version[256] = "";
        CHECK(clGetDeviceInfo(towline.devices[d], CL_DEVICE_VENDOR, sizeof vendor, vendor, NULL));
        CHECK(clGetDeviceInfo(towline.devices[d], CL_DEVICE_VERSION, sizeof version, version, NULL));
        printf("%s, %s\n", vendor, version);
    }
    const cl_command_queue queues[] = {make_queue(&towline, 0), make_queue(&towline, 1)};
    const cl_kernel kernel = make_kernel(&towline, SOURCE, "advance");
    const cl_mem buffers[] = {make_buffer(&towline, COUNT * sizeof(unsigned)),
                              make_buffer(&towline, COUNT * sizeof(unsigned))};
    static unsigned values[2][COUNT], expected[2][COUNT], results[2][COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        expected[0][i] = values[0][i] = i;
        expected[1][i] = values[1][i] = 7 * i + 1;
    }

    cl_int status;
    const cl_event gate = clCreateUserEvent(towline.context, &status);
    check(status, "clCreateUserEvent");
    /* The last command on each buffer; each buffer is first written by a server of its own. */
    cl_event last[2];
    for (int d = 0; d < 2; d++) {
        CHECK(clEnqueueWriteBuffer(queues[d], buffers[d], CL_FALSE, 0, sizeof values[d], values[d], 1, &gate,
                                   &last[d]));
        CHECK(clFlush(queues[d]));
    }
    const cl_event written = last[1];
    CHECK(clRetainEvent(written));
    for (unsigned number = 0; number < STEPS; number++) {
        const int device = number % 2, own = number / 2 % 2;
        const size_t count = COUNT;
        CHECK(clSetKernelArg(kernel, 0, sizeof(cl_mem), &buffers[own]));
        CHECK(clSetKernelArg(kernel, 1, sizeof(cl_mem), &buffers[1 - own]));
        CHECK(clSetKernelArg(kernel, 2, sizeof number, &number));
        cl_event done;
        CHECK(clEnqueueNDRangeKernel(queues[device], kernel, 1, NULL, &count, NULL, 2, last, &done));
        CHECK(clFlush(queues[device]));
        CHECK(clReleaseEvent(last[own]));
        last[own] = done;
        advance(expected[own], expected[1 - own], number);
    }
    /* Each buffer is read through the server that did not write it first. */
    cl_event read[2];
    for (int d = 0; d < 2; d++) {
        CHECK(clEnqueueReadBuffer(queues[1 - d], buffers[d], CL_FALSE, 0, sizeof results[d], results[d], 2, last,
                                  &read[d]));
        CHECK(clFlush(queues[1 - d]));
    }

    cl_int progress;
    CHECK(clGetEventInfo(written, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof progress, &progress, NULL));
    if (progress != CL_QUEUED && progress != CL_SUBMITTED) {
        fprintf(stderr, "a write began before the user event was set: %d\n", progress);
        return 1;
    }
    CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK(clWaitForEvents(2, read));
    if (compare("first", results[0], expected[0]) || compare("second", results[1], expected[1]))
        return 1;
    say("right");
    return 0;
}
