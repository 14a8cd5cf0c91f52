/*
 * Computes and checks round after round until the test says stop.
 *
 *   steady [built-in]    with the devices' own kernel add_one instead of one from source
 */
#include "program.h"

#include <poll.h>

#define COUNT 4096

int main(int argc, char **argv)
{
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_mem buffer = make_buffer(&towline, COUNT * sizeof(int));
    const cl_kernel kernel = argc > 1 && strcmp(argv[1], "built-in") == 0
                                 ? make_built_in_kernel(&towline, "add_one")
                                 : make_kernel(&towline, ADD_ONE, "add_one");
    static int values[COUNT];
    CHECK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
    CHECK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    int round = 0;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    do {
        launch(queue, kernel, COUNT);
        CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
        round++;
        for (int i = 0; i < COUNT; i++)
            if (values[i] != round) {
                fprintf(stderr, "value %d is %d in round %d\n", i, values[i], round);
                return 1;
            }
        if (round == 1)
            say("computing");
    } while (poll(&input, 1, 0) == 0);
    printf("rounds %d\n", round);
    return 0;
}
