/*
 * 256 MiB of non-blocking writes of 1 MiB each that wait for a user event. The program stops at each stage until the
 * test has looked at the memory of both sides, and checks in the end what arrived.
 */
#include "program.h"

#define PIECE ((size_t)1 << 20)
#define PIECES 256

int main(void)
{
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_mem buffer = make_buffer(&towline, PIECES * PIECE);
    unsigned char *source = malloc(PIECES * PIECE), *back = malloc(PIECE);
    if (source == NULL || back == NULL)
        return 4;
    for (size_t i = 0; i < PIECES * PIECE; i++)
        source[i] = (unsigned char)(i / PIECE + i % 251);
    memset(back, 0, PIECE);
    cl_int status;
    const cl_event gate = clCreateUserEvent(towline.context, &status);
    check(status, "clCreateUserEvent");
    say("start");
    wait_for_word();

    for (size_t i = 0; i < PIECES; i++)
        CHECK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, i * PIECE, PIECE, source + i * PIECE, 1, &gate, NULL));
    CHECK(clFlush(queue));
    say("queued");
    wait_for_word();

    CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK(clFinish(queue));
    say("written");
    wait_for_word();

    for (size_t i = 0; i < PIECES; i++) {
        CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, i * PIECE, PIECE, back, 0, NULL, NULL));
        if (memcmp(back, source + i * PIECE, PIECE) != 0) {
            fprintf(stderr, "piece %zu differs\n", i);
            return 1;
        }
    }
    say("right");
    return 0;
}
