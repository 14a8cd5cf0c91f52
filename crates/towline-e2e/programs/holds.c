/*
 * Holds so many MiB on the first device, says so, and computes with them when the test says a word.
 *
 *   holds MIB
 */
#include "program.h"

#define ROUNDS 2

int main(int argc, char **argv)
{
    const size_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1) << 20, count = bytes / sizeof(cl_int);
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_mem buffer = make_buffer(&towline, bytes);
    const cl_kernel kernel = make_kernel(&towline, ADD_ONE, "add_one");
    cl_int *values = malloc(bytes);
    if (values == NULL)
        return 4;
    for (size_t i = 0; i < count; i++)
        values[i] = (cl_int)i;
    CHECK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, bytes, values, 0, NULL, NULL));
    CHECK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    for (int round = 0; round < ROUNDS; round++) {
        launch(queue, kernel, count);
        CHECK(clFinish(queue));
        say("holds");
        wait_for_word();
    }
    CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, values, 0, NULL, NULL));
    for (size_t i = 0; i < count; i++)
        if (values[i] != (cl_int)i + ROUNDS) {
            fprintf(stderr, "value %zu is %d\n", i, values[i]);
            return 1;
        }
    say("right");
    return 0;
}
