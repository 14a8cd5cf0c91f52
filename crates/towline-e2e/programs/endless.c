/* Waits in clFinish for a kernel that never ends, then says what that and the next calls answered. */
#include "program.h"

static const char SOURCE[] =
    "__kernel void wait_for_ever(__global volatile int *flag) { while (*flag == 0) ; *flag = 2; }";

int main(void)
{
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_mem flag = make_buffer(&towline, sizeof(int));
    const cl_kernel kernel = make_kernel(&towline, SOURCE, "wait_for_ever");
    int value = 0;
    CHECK(clEnqueueWriteBuffer(queue, flag, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    CHECK(clSetKernelArg(kernel, 0, sizeof flag, &flag));
    launch(queue, kernel, 1);
    CHECK(clFlush(queue));
    say("launched");

    printf("clFinish %d\n", clFinish(queue));
    printf("clEnqueueReadBuffer %d\n",
           clEnqueueReadBuffer(queue, flag, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    /* Objects of a lost session can still be let go. */
    CHECK(clReleaseKernel(kernel));
    CHECK(clReleaseMemObject(flag));
    CHECK(clReleaseCommandQueue(queue));
    CHECK(clReleaseContext(towline.context));
    say("end");
    return 0;
}
