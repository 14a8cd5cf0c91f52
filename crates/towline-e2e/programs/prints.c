/* A kernel prints between two lines of the program, which leaves them to the C library to write. */
#include "program.h"

static const char SOURCE[] =
    "__kernel void talk(int number) { printf(\"kernel %d of %s\\n\", number, \"the device\"); }";

int main(void)
{
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_kernel kernel = make_kernel(&towline, SOURCE, "talk");
    for (int round = 1; round <= 20; round++) {
        printf("before %d\n", round);
        CHECK(clSetKernelArg(kernel, 0, sizeof round, &round));
        launch(queue, kernel, 1);
        CHECK(clFinish(queue));
        printf("after %d\n", round);
    }
    return 0;
}
