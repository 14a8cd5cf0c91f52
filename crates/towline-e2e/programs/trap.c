/*
 * Where a naive remote queue deadlocks: queue A waits for a user event with 2,000 launches behind it. The event is set
 * only after a copy on queue B, by another thread, has come back. B is on the last device: with several servers, not
 * A's.
 */
#include "program.h"

#include <pthread.h>
#include <semaphore.h>

#define LAUNCHES 2000

static struct towline towline;
static cl_command_queue a, b;
static cl_mem counter, from, to;
static cl_event gate;
static sem_t queued;

static void *fill(void *unused)
{
    (void)unused;
    const cl_kernel kernel = make_kernel(&towline, ADD_ONE, "add_one");
    CHECK(clSetKernelArg(kernel, 0, sizeof counter, &counter));
    launch_after(a, kernel, 1, &gate);
    for (int i = 1; i < LAUNCHES; i++)
        launch(a, kernel, 1);
    CHECK(clFlush(a));
    sem_post(&queued);
    CHECK(clFinish(a));
    CHECK(clReleaseKernel(kernel));
    return NULL;
}

static void *release(void *unused)
{
    (void)unused;
    int value = 42;
    CHECK(clEnqueueWriteBuffer(b, from, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    sem_wait(&queued);
    CHECK(clEnqueueCopyBuffer(b, from, to, 0, 0, sizeof value, 0, NULL, NULL));
    value = 0;
    CHECK(clEnqueueReadBuffer(b, to, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    printf("copied %d\n", value);
    CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
    return NULL;
}

int main(void)
{
    towline = open_towline();
    a = make_queue(&towline, 0);
    b = make_queue(&towline, towline.count - 1);
    counter = make_buffer(&towline, sizeof(int));
    from = make_buffer(&towline, sizeof(int));
    to = make_buffer(&towline, sizeof(int));
    int value = 0;
    CHECK(clEnqueueWriteBuffer(a, counter, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    cl_int status;
    gate = clCreateUserEvent(towline.context, &status);
    check(status, "clCreateUserEvent");
    sem_init(&queued, 0, 0);

    pthread_t threads[2];
    if (pthread_create(&threads[0], NULL, fill, NULL) != 0 || pthread_create(&threads[1], NULL, release, NULL) != 0)
        return 4;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(clEnqueueReadBuffer(a, counter, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    printf("counted %d\n", value);
    return 0;
}
