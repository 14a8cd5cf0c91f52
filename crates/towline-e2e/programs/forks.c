/* A child after fork calls OpenCL with the parent's objects and must get errors; the parent goes on. */
#include "program.h"

#include <sys/wait.h>
#include <unistd.h>

#define COUNT 1024

static int values[COUNT];

static int child(const struct towline *towline, cl_command_queue queue, cl_mem buffer)
{
    const cl_int finish = clFinish(queue);
    const cl_int read = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL);
    cl_int create;
    clCreateCommandQueue(towline->context, towline->devices[0], 0, &create);
    printf("child: clFinish %d, clEnqueueReadBuffer %d, clCreateCommandQueue %d\n", finish, read, create);
    return finish != CL_SUCCESS && read != CL_SUCCESS && create != CL_SUCCESS ? 0 : 1;
}

int main(void)
{
    const struct towline towline = open_towline();
    const cl_command_queue queue = make_queue(&towline, 0);
    const cl_mem buffer = make_buffer(&towline, sizeof values);
    const cl_kernel kernel = make_kernel(&towline, ADD_ONE, "add_one");
    CHECK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
    CHECK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    launch(queue, kernel, COUNT);
    CHECK(clFinish(queue));

    const pid_t pid = fork();
    /* By exit(), as programs do: exit handlers run in the child too. */
    if (pid == 0)
        exit(child(&towline, queue, buffer));
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 4;
    printf("child's status %d\n", status);

    launch(queue, kernel, COUNT);
    CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
    printf("parent: %d %d\n", values[0], values[COUNT - 1]);
    return 0;
}
