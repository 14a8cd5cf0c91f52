/*
 * Has a buffer that the host may not touch, a part of it, an image, a mapped buffer, a profiled event and one of its own with a callback;
 * says "holds", and checks all of them when the test says a word.
 */
#include "program.h"

#define COUNT 4096
#define WIDTH 33
#define HEIGHT 17

static const cl_profiling_info TIMES[] = {CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_SUBMIT, CL_PROFILING_COMMAND_START,
                                          CL_PROFILING_COMMAND_END};

static void CL_CALLBACK called(cl_event event, cl_int status, void *data)
{
    (void)event;
    *(volatile cl_int *)data = status == CL_COMPLETE ? 1 : -1;
}

static void read_times(cl_event event, cl_ulong times[4])
{
    for (int i = 0; i < 4; i++)
        CHECK(clGetEventProfilingInfo(event, TIMES[i], sizeof times[i], &times[i], NULL));
}

static int is(int right, const char *what)
{
    if (!right)
        fprintf(stderr, "%s is not as it was\n", what);
    return right;
}

int main(void)
{
    const struct towline towline = open_towline();
    const size_t bytes = COUNT * sizeof(cl_int);
    cl_int status;
    const cl_command_queue queue =
        clCreateCommandQueue(towline.context, towline.devices[0], CL_QUEUE_PROFILING_ENABLE, &status);
    check(status, "clCreateCommandQueue");

    const cl_mem_flags hidden_flags = CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS;
    const cl_mem hidden = clCreateBuffer(towline.context, hidden_flags, bytes, NULL, &status);
    check(status, "clCreateBuffer");
    cl_buffer_region half = {bytes / 2, bytes / 2};
    const cl_mem part = clCreateSubBuffer(hidden, hidden_flags, CL_BUFFER_CREATE_TYPE_REGION, &half, &status);
    check(status, "clCreateSubBuffer");
    const cl_int seven = 7, nine = 9;
    CHECK(clEnqueueFillBuffer(queue, hidden, &seven, sizeof seven, 0, bytes, 0, NULL, NULL));
    CHECK(clEnqueueFillBuffer(queue, part, &nine, sizeof nine, 0, bytes / 2, 0, NULL, NULL));

    const cl_image_format format = {CL_R, CL_UNSIGNED_INT32};
    const cl_image_desc shape = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WIDTH, .image_height = HEIGHT};
    const cl_mem image = clCreateImage(towline.context, CL_MEM_READ_WRITE, &format, &shape, NULL, &status);
    check(status, "clCreateImage");
    static cl_uint texels[HEIGHT][WIDTH], again[HEIGHT][WIDTH];
    for (cl_uint i = 0; i < WIDTH * HEIGHT; i++)
        texels[i / WIDTH][i % WIDTH] = i * 2654435761u;
    const size_t origin[3] = {0}, region[3] = {WIDTH, HEIGHT, 1};
    CHECK(clEnqueueWriteImage(queue, image, CL_TRUE, origin, region, 0, 0, texels, 0, NULL, NULL));

    const cl_kernel kernel = make_kernel(&towline, ADD_ONE, "add_one");
    CHECK(clSetKernelArg(kernel, 0, sizeof hidden, &hidden));
    const size_t count = COUNT;
    cl_event profiled;
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, &profiled));
    CHECK(clFinish(queue));
    cl_ulong times[4], later[4];
    read_times(profiled, times);

    const cl_mem shown = make_buffer(&towline, bytes);
    cl_int *mapped = clEnqueueMapBuffer(queue, shown, CL_TRUE, CL_MAP_WRITE, 0, bytes, 0, NULL, NULL, &status);
    check(status, "clEnqueueMapBuffer");
    mapped[0] = 11;
    volatile cl_int told = 0;
    const cl_event own = clCreateUserEvent(towline.context, &status);
    check(status, "clCreateUserEvent");
    CHECK(clSetEventCallback(own, CL_COMPLETE, called, (void *)&told));
    say("holds");
    wait_for_word();

    int right = is(told == 0, "the callback");
    read_times(profiled, later);
    right &= is(memcmp(times, later, sizeof times) == 0, "a time");
    mapped[1] = 12;
    CHECK(clEnqueueUnmapMemObject(queue, shown, mapped, 0, NULL, NULL));
    cl_int values[COUNT];
    CHECK(clEnqueueReadBuffer(queue, shown, CL_TRUE, 0, 2 * sizeof(cl_int), values, 0, NULL, NULL));
    right &= is(values[0] == 11 && values[1] == 12, "the mapped buffer");
    launch_after(queue, kernel, COUNT, &own);
    CHECK(clSetUserEventStatus(own, CL_COMPLETE));
    CHECK(clEnqueueCopyBuffer(queue, hidden, shown, 0, 0, bytes, 0, NULL, NULL));
    CHECK(clEnqueueReadBuffer(queue, shown, CL_TRUE, 0, bytes, values, 0, NULL, NULL));
    for (int i = 0; i < COUNT && right; i++)
        right &= is(values[i] == (i < COUNT / 2 ? seven : nine) + 2, "the hidden buffer");
    CHECK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, again, 0, NULL, NULL));
    right &= is(memcmp(texels, again, sizeof texels) == 0, "the image");
    while (told == 0)
        CHECK(clFinish(queue));
    right &= is(told == 1, "the callback");
    if (right)
        say("right");
    return !right;
}
