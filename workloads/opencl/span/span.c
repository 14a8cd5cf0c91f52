/*
 * One context that spans all devices of a platform: one buffer goes from device to device, each on a queue of its
 * own and ordered only by events, and each leaves its mark on every byte.
 *
 * A user event holds everything back until all commands are issued. In the end the host computes the same marks and
 * compares all bytes. (Oclgrind 21.10 cannot do that: its clFlush waits until the queue is empty, so it would wait for
 * the user event for ever. --no-user-event is for such implementations.)
 */
#include "../common/measure.h"
#include "../common/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char span_cl[];

#define MAX_DEVICES 255

struct ring {
    const struct devices *devices;
    size_t size, rounds;
    bool no_user_event;
    unsigned char *input, *output;
    cl_mem buffer;
    cl_kernel *kernels; /* one per device */
    bool started_early; /* a command ran before the user event allowed it */
};

/* Enqueues one device's mark after `event`, and replaces `event` by the kernel's. */
static void enqueue_mark(struct ring *ring, struct run *run, cl_uint device, cl_event *event)
{
    const struct launch launch = {.dimensions = 1, .global = {ring->size}, .after = event};
    cl_event done;
    run_kernel(run, device, ring->kernels[device], &launch, &done);
    /* The next device's queue may wait for this event only once this queue is flushed. */
    CL_CHECK(clFlush(run->queues[device]));
    CL_CHECK(clReleaseEvent(*event));
    *event = done;
}

static void pass_around(void *state, struct run *run)
{
    struct ring *ring = state;
    const cl_uint count = ring->devices->count;
    cl_event start = NULL;
    if (!ring->no_user_event) {
        cl_int status;
        start = clCreateUserEvent(ring->devices->context, &status);
        CL_CHECK_STATUS(status, "clCreateUserEvent");
    }
    cl_event written, event, read;
    CL_CHECK(clEnqueueWriteBuffer(run->queues[0], ring->buffer, CL_FALSE, 0, ring->size, ring->input,
                                  start != NULL, start != NULL ? &start : NULL, &written));
    CL_CHECK(clFlush(run->queues[0]));
    event = written;
    CL_CHECK(clRetainEvent(written));
    for (size_t round = 0; round < ring->rounds; round++)
        for (cl_uint d = 0; d < count; d++)
            enqueue_mark(ring, run, d, &event);
    CL_CHECK(clEnqueueReadBuffer(run->queues[count - 1], ring->buffer, CL_FALSE, 0, ring->size, ring->output, 1,
                                 &event, &read));
    CL_CHECK(clFlush(run->queues[count - 1]));

    if (start != NULL) {
        cl_int progress = CL_COMPLETE;
        CL_CHECK(clGetEventInfo(written, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof progress, &progress, NULL));
        if (progress != CL_QUEUED && progress != CL_SUBMITTED)
            ring->started_early = true;
        CL_CHECK(clSetUserEventStatus(start, CL_COMPLETE));
        CL_CHECK(clReleaseEvent(start));
    }
    CL_CHECK(clWaitForEvents(1, &read));

    CL_CHECK(clReleaseEvent(written));
    CL_CHECK(clReleaseEvent(event));
    CL_CHECK(clReleaseEvent(read));
}

static struct verdict check(const struct ring *ring)
{
    size_t wrong = 0;
    for (size_t i = 0; i < ring->size; i++) {
        unsigned char expected = ring->input[i];
        for (size_t round = 0; round < ring->rounds; round++)
            for (cl_uint d = 0; d < ring->devices->count; d++)
                expected = (unsigned char)(expected * 5 + d + 1);
        wrong += ring->output[i] != expected;
    }
    if (wrong > 0)
        fprintf(stderr, "span: %zu of %zu bytes are wrong\n", wrong, ring->size);
    if (ring->started_early)
        fprintf(stderr, "span: a command ran before the user event that it waits for was set\n");
    return (struct verdict){
        .passed = wrong == 0 && !ring->started_early,
        .max_error = (double)wrong / (double)ring->size,
    };
}

int main(int argc, char **argv)
{
    struct options options = {DEFAULT_OPTIONS, .workload = "span", .size = 1 << 16};
    size_t rounds = 2;
    bool no_user_event = false;
    const struct option own[] = {
        {"rounds", OPTION_COUNT, &rounds, 1, "R", "times that the buffer goes around (default: 2)"},
        {"no-user-event", OPTION_FLAG, &no_user_event, 0, NULL, "do not hold the commands back until all are issued"},
    };
    options.devices = ALL_DEVICES;
    options_parse(&options, argc, argv,
                  "Passes one buffer around all devices of a platform (or those of --devices) in one context.",
                  "bytes of the buffer", (struct option_table){own, 2});
    if (options.size > (size_t)1 << 31)
        usage_error(&options, "--size %zu: at most 2147483648", options.size);
    if (options.instances != 1)
        usage_error(&options, "there is only one buffer: --instances does not apply");

    struct devices devices;
    devices_open(&devices, &options);
    if (devices.count > MAX_DEVICES)
        usage_error(&options, "%u devices: at most %d, since each adds its number to a byte", devices.count,
                    MAX_DEVICES);

    struct ring ring = {
        .devices = &devices,
        .size = options.size,
        .rounds = rounds,
        .no_user_event = no_user_event,
        .input = host_allocate(options.size),
        .output = host_allocate(options.size),
        .buffer = buffer_create(&devices, CL_MEM_READ_WRITE, options.size),
        .kernels = host_allocate(devices.count * sizeof *ring.kernels),
    };
    uint64_t random = options.seed;
    for (size_t i = 0; i < options.size; i++)
        ring.input[i] = (unsigned char)random_next(&random);
    memset(ring.output, 0, options.size);

    cl_program program = program_build(&devices, span_cl, "");
    const cl_uint count = (cl_uint)options.size;
    for (cl_uint d = 0; d < devices.count; d++) {
        /* Counted from 1, so that the first device leaves more than a product. */
        const cl_uchar number = (cl_uchar)(d + 1);
        ring.kernels[d] = kernel_create(program, "leave_mark");
        SET_ARGUMENT(ring.kernels[d], 0, ring.buffer);
        SET_ARGUMENT(ring.kernels[d], 1, count);
        SET_ARGUMENT(ring.kernels[d], 2, number);
    }

    const struct measurement measurement = measure(&devices, pass_around, &ring);
    struct verdict verdict;
    if (!options.skip_check)
        verdict = check(&ring);
    /* Bytes read and written by all kernels. */
    const struct rate rate = {"gbytes_per_s", "GB/s",
                              2.0 * (double)options.size * (double)(rounds * devices.count) * 1e-9};
    const int status = report(&devices, &measurement, rate, NULL, options.skip_check ? NULL : &verdict);

    for (cl_uint d = 0; d < devices.count; d++)
        CL_CHECK(clReleaseKernel(ring.kernels[d]));
    CL_CHECK(clReleaseMemObject(ring.buffer));
    CL_CHECK(clReleaseProgram(program));
    free(ring.kernels);
    free(ring.input);
    free(ring.output);
    devices_close(&devices);
    return status;
}
