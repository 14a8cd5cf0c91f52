/*
 * Launches a kernel of so many rounds again and again, with two batches ahead, and counts from the test's first line to its second.
 *
 *   counts ROUNDS BATCH
 */
#include "program.h"

#include <poll.h>

enum { AHEAD = 2 };

static const char SOURCE[] =
    "__kernel void work(__global uint *at, uint rounds) {\n"
    "    uint value = 1;\n"
    "    for (uint i = 0; i < rounds; i++) { value = value * 1664525u + 1013904223u; if (value == 7u) at[1] = i; }\n"
    "    at[0] = value;\n"
    "}\n";

static int is_told(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    if (poll(&input, 1, 0) == 0)
        return 0;
    wait_for_word();
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const cl_uint rounds = atoi(argv[1]);
    const int batch = atoi(argv[2]);
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_mem memory = make_buffer(&towline, 4096);
    const cl_kernel kernel = make_kernel(&towline, SOURCE, "work");
    CHECK(clSetKernelArg(kernel, 0, sizeof memory, &memory));
    CHECK(clSetKernelArg(kernel, 1, sizeof rounds, &rounds));
    cl_event events[AHEAD];
    long done = 0;
    int counts = 0;
    for (long turn = 0;; turn++) {
        cl_event *event = &events[turn % AHEAD];
        if (turn >= AHEAD) {
            CHECK(clWaitForEvents(1, event));
            CHECK(clReleaseEvent(*event));
            done += batch;
        }
        for (int i = 0; i < batch; i++)
            launch(queue, kernel, 1);
        CHECK(clEnqueueMarkerWithWaitList(queue, 0, NULL, event));
        CHECK(clFlush(queue));
        if (turn == AHEAD)
            say("busy");
        if (!is_told())
            continue;
        if (counts) {
            printf("done %ld\n", done);
            return 0;
        }
        counts = 1;
        done = 0;
    }
}
