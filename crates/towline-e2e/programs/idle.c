/* Computes, then does nothing until the test says so. */
#include "program.h"

#define COUNT 4096

int main(void)
{
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_mem buffer = make_buffer(&towline, COUNT * sizeof(int));
    const cl_kernel kernel = make_kernel(&towline, ADD_ONE, "add_one");
    static int values[COUNT];
    CHECK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    for (int round = 0; round < 50; round++) {
        CHECK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof values, values, 0, NULL, NULL));
        launch(queue, kernel, COUNT);
        CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
    }
    say("idle");
    wait_for_word();
    return 0;
}
