/*
 * Waits for commands that fail, since a user event that they wait for does, some time after the program has begun to wait: for a queue,
 * for an event and for a read. Then it does so again while another thread keeps the connection busy.
 */
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define COUNT 1024

static void *fail_later(void *event)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    nanosleep(&pause, NULL);
    CHECK(clSetUserEventStatus(event, -7));
    return NULL;
}

static atomic_int is_over;

static void *keep_busy(void *queue)
{
    while (!is_over) {
        cl_event marker;
        CHECK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker));
        CHECK(clReleaseEvent(marker));
        CHECK(clFlush(queue));
    }
    return NULL;
}

int main(void)
{
    const struct towline towline = open_towline();
    pthread_t busy;
    const cl_kernel kernel = make_kernel(&towline, ADD_ONE, "add_one");
    const cl_mem buffer = make_buffer(&towline, COUNT * sizeof(cl_int));
    CHECK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    const char *const waits[] = {"finish", "wait", "read"};
    for (int turn = 0; turn < 6; turn++) {
        const int i = turn % 3;
        if (turn == 3 && pthread_create(&busy, NULL, keep_busy, make_queue(&towline, 0)) != 0)
            return 4;
        const cl_command_queue queue = make_queue(&towline, 0);
        cl_int status, value;
        const cl_event gate = clCreateUserEvent(towline.context, &status);
        check(status, "clCreateUserEvent");
        const size_t size = COUNT;
        cl_event done;
        CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &size, NULL, 1, &gate, &done));
        pthread_t thread;
        if (pthread_create(&thread, NULL, fail_later, gate) != 0)
            return 4;
        if (i == 0)
            clFinish(queue);
        else if (i == 1)
            status = clWaitForEvents(1, &done);
        else
            status = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 1, &done, NULL);
        pthread_join(thread, NULL);
        printf("%s: %s\n", waits[i], i == 0 || status == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST ? "over" : "no error");
        fflush(stdout);
        CHECK(clReleaseEvent(done));
        CHECK(clReleaseEvent(gate));
        CHECK(clReleaseCommandQueue(queue));
    }
    is_over = 1;
    pthread_join(busy, NULL);
    return 0;
}
