/* Launches the built-in kernel that aborts the device's runtime, and says what clFinish answers. */
#include "program.h"

int main(void)
{
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_kernel kernel = make_built_in_kernel(&towline, "abort");
    launch(queue, kernel, 1);
    printf("clFinish %d\n", clFinish(queue));
    return 0;
}
