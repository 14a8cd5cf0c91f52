/*
 * One buffer goes to and fro between the first two devices; after each step the program says so and waits for a word.
 */
#include "program.h"

#define COUNT (2u << 20)
#define STEPS 6

int main(void)
{
    const struct towline towline = open_towline();
    const cl_command_queue queues[] = {make_queue(&towline, 0), make_queue(&towline, 1)};
    const cl_mem buffer = make_buffer(&towline, COUNT * sizeof(cl_int));
    const cl_kernel kernel = make_kernel(&towline, ADD_ONE, "add_one");
    cl_int *values = malloc(COUNT * sizeof *values);
    if (values == NULL)
        return 4;
    for (cl_uint i = 0; i < COUNT; i++)
        values[i] = (cl_int)i;
    CHECK(clEnqueueWriteBuffer(queues[0], buffer, CL_TRUE, 0, COUNT * sizeof *values, values, 0, NULL, NULL));
    CHECK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    for (int step = 0; step < STEPS; step++) {
        launch(queues[step % 2], kernel, COUNT);
        CHECK(clFinish(queues[step % 2]));
        say("passed");
        wait_for_word();
    }
    CHECK(clEnqueueReadBuffer(queues[1], buffer, CL_TRUE, 0, COUNT * sizeof *values, values, 0, NULL, NULL));
    for (cl_uint i = 0; i < COUNT; i++)
        if (values[i] != (cl_int)i + STEPS) {
            fprintf(stderr, "value %u is %d\n", i, values[i]);
            return 1;
        }
    say("right");
    return 0;
}
