/*
 * Four threads in one context, each with a queue, a kernel and a buffer of its own. Each round of each thread waits for
 * a user event that a fifth thread sets.
 */
#include "program.h"

#include <pthread.h>

#define THREADS 4
#define ROUNDS 100
#define COUNT 2048

static struct towline towline;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static cl_event waiting[THREADS];
static int wrong;

static void *compute(void *argument)
{
    const cl_uint number = *(const cl_uint *)argument;
    const cl_command_queue queue = make_queue(&towline, number % towline.count);
    const cl_mem buffer = make_buffer(&towline, COUNT * sizeof(int));
    const cl_kernel kernel = make_kernel(&towline, ADD_ONE, "add_one");
    int values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = (int)number * 1000;
    CHECK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
    CHECK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    for (int round = 1; round <= ROUNDS; round++) {
        cl_int status;
        const cl_event gate = clCreateUserEvent(towline.context, &status);
        check(status, "clCreateUserEvent");
        launch_after(queue, kernel, COUNT, &gate);
        CHECK(clFlush(queue));
        pthread_mutex_lock(&lock);
        waiting[number] = gate;
        pthread_cond_signal(&arrived);
        pthread_mutex_unlock(&lock);
        CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
        CHECK(clReleaseEvent(gate));
        for (int i = 0; i < COUNT; i++)
            if (values[i] != (int)number * 1000 + round)
                __atomic_store_n(&wrong, 1, __ATOMIC_RELAXED);
    }
    CHECK(clReleaseKernel(kernel));
    CHECK(clReleaseMemObject(buffer));
    CHECK(clReleaseCommandQueue(queue));
    return NULL;
}

static void *release(void *unused)
{
    (void)unused;
    for (int released = 0; released < THREADS * ROUNDS;) {
        cl_event found[THREADS];
        int count = 0;
        pthread_mutex_lock(&lock);
        while (count == 0) {
            for (int i = 0; i < THREADS; i++)
                if (waiting[i] != NULL) {
                    found[count++] = waiting[i];
                    waiting[i] = NULL;
                }
            if (count == 0)
                pthread_cond_wait(&arrived, &lock);
        }
        pthread_mutex_unlock(&lock);
        for (int i = 0; i < count; i++)
            CHECK(clSetUserEventStatus(found[i], CL_COMPLETE));
        released += count;
    }
    return NULL;
}

int main(void)
{
    towline = open_towline();
    pthread_t threads[THREADS + 1];
    cl_uint numbers[THREADS];
    for (cl_uint i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, compute, &numbers[i]) != 0)
            return 4;
    }
    if (pthread_create(&threads[THREADS], NULL, release, NULL) != 0)
        return 4;
    for (int i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    say(wrong ? "wrong" : "right");
    return wrong;
}
