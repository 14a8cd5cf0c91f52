/*
 * Has kernels run side by side until the host ends them, says how long that took, and waits until the test says something.
 *
 *   takes_time QUEUES MILLISECONDS [built-in]    with the devices' own kernel spin_until instead of one from source
 */
#include "program.h"

#include <time.h>

#define MOST 16

static const char SOURCE[] = "__kernel void spin_until(__global volatile int *flag) { while (*flag == 0) ; }";

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
    const int count = argc > 2 ? atoi(argv[1]) : 0, ms = argc > 2 ? atoi(argv[2]) : 0;
    if (count < 1 || count > MOST)
        return 2;
    const struct towline towline = open_towline();
    const cl_command_queue writes = make_queue(&towline, 0);
    const cl_mem flag = make_buffer(&towline, sizeof(int));
    const cl_kernel kernel =
        argc > 3 ? make_built_in_kernel(&towline, "spin_until") : make_kernel(&towline, SOURCE, "spin_until");
    int value = 0;
    CHECK(clEnqueueWriteBuffer(writes, flag, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    CHECK(clSetKernelArg(kernel, 0, sizeof flag, &flag));
    cl_command_queue queues[MOST];
    for (int i = 0; i < count; i++)
        queues[i] = make_queue(&towline, 0);
    const long start = now_ms();
    for (int i = 0; i < count; i++) {
        launch(queues[i], kernel, 1);
        CHECK(clFlush(queues[i]));
    }
    say("launched");
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
    value = 1;
    CHECK(clEnqueueWriteBuffer(writes, flag, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    for (int i = 0; i < count; i++)
        CHECK(clFinish(queues[i]));
    printf("took %ld\n", now_ms() - start);
    fflush(stdout);
    wait_for_word();
    return 0;
}
