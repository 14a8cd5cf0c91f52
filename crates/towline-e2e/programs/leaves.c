/*
 * Leaves by exit() with work under way and without releasing anything.
 *
 *   leaves [at-once]    else when the test says so
 */
#include "program.h"

#define BYTES ((size_t)4 << 20)

static void CL_CALLBACK done(cl_event event, cl_int status, void *data)
{
    (void)event, (void)status, (void)data;
}

int main(int argc, char **argv)
{
    (void)argv;
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_mem buffer = make_buffer(&towline, BYTES);
    const cl_kernel kernel = make_kernel(&towline, ADD_ONE, "add_one");
    static char source[BYTES];
    CHECK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    for (int i = 0; i < 20; i++) {
        cl_event written;
        CHECK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, BYTES, source, 0, NULL, &written));
        CHECK(clSetEventCallback(written, CL_COMPLETE, done, NULL));
        launch(queue, kernel, 1024);
    }
    CHECK(clFlush(queue));
    say("ready");
    if (argc == 1)
        wait_for_word();
    exit(5);
}
