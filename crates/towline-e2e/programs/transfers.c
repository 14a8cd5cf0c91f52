/* Transfers of every kind over a connection that the test breaks somewhere; see claims.h. */
#undef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 200
#include "program.h"

#include "claims.h"

enum { MOST = 900001, ROUNDS = 3 };

static cl_command_queue queue;
static cl_mem buffer;
static unsigned char *target, *right;

static void fresh(size_t size, unsigned seed)
{
    free(right);
    right = make_bytes(size, seed);
    memset(target, 0xee, size);
}

static void write_and_read(size_t size, unsigned seed, cl_bool blocking)
{
    fresh(size, seed);
    posted("clEnqueueWriteBuffer", clEnqueueWriteBuffer(queue, buffer, blocking, 0, size, right, 0, NULL, NULL));
    const cl_int read = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, target, 0, NULL, NULL);
    claimed("clEnqueueReadBuffer", read, target, right, size);
    if (!blocking)
        claimed("clFinish", clFinish(queue), NULL, NULL, 0);
}

static void read_by_event(size_t size)
{
    cl_event event;
    memset(target, 0xee, size);
    if (!posted("clEnqueueReadBuffer", clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, size, target, 0, NULL, &event)))
        return;
    claimed("clWaitForEvents", clWaitForEvents(1, &event), target, right, size);
    clReleaseEvent(event);
    memset(target, 0xee, size);
    if (posted("clEnqueueReadBuffer", clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, size, target, 0, NULL, NULL)))
        claimed("clFinish", clFinish(queue), target, right, size);
}

static void map(size_t size, unsigned seed)
{
    cl_int status;
    const cl_map_flags flags = CL_MAP_READ | CL_MAP_WRITE;
    unsigned char *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, flags, 0, size, 0, NULL, NULL, &status);
    if (!claimed("clEnqueueMapBuffer", status, mapped, right, status == CL_SUCCESS ? size : 0))
        return;
    fresh(size, seed);
    memcpy(mapped, right, size);
    posted("clEnqueueUnmapMemObject", clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    const cl_int read = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, target, 0, NULL, NULL);
    claimed("clEnqueueReadBuffer", read, target, right, size);
}

/* Rows of 700 bytes, 1,000 apart. */
static void rectangle(void)
{
    const size_t zero[3] = {0}, region[3] = {700, 400, 1};
    memset(target, 0xee, 700 * 400);
    const cl_int status = clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 1000, 0, 700, 0, target, 0, NULL, NULL);
    if (!claimed("clEnqueueReadBufferRect", status, NULL, NULL, 0))
        return;
    for (size_t row = 0; row < 400; row++)
        claimed("clEnqueueReadBufferRect", 0, target + row * 700, right + row * 1000, 700);
}

/* Shared virtual memory, where the device has it. */
static void shared(const struct towline *towline, size_t size, unsigned seed)
{
    cl_device_svm_capabilities can = 0;
    clGetDeviceInfo(towline->devices[0], CL_DEVICE_SVM_CAPABILITIES, sizeof can, &can, NULL);
    if ((can & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) == 0 || has_failed)
        return;
    unsigned char *memory = clSVMAlloc(towline->context, CL_MEM_READ_WRITE, size, 0);
    if (memory == NULL) {
        posted("clSVMAlloc", -1);
        return;
    }
    fresh(size, seed);
    if (claimed("clEnqueueSVMMap", clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_WRITE, memory, size, 0, NULL, NULL), NULL, NULL, 0)) {
        memcpy(memory, right, size);
        posted("clEnqueueSVMUnmap", clEnqueueSVMUnmap(queue, memory, 0, NULL, NULL));
    }
    const cl_int copied = clEnqueueSVMMemcpy(queue, CL_TRUE, target, memory, size, 0, NULL, NULL);
    claimed("clEnqueueSVMMemcpy", copied, target, right, size);
    const cl_int mapped = clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, memory, size, 0, NULL, NULL);
    claimed("clEnqueueSVMMap", mapped, memory, right, mapped == CL_SUCCESS ? size : 0);
}

int main(void)
{
    const struct towline towline = open_towline();
    queue = make_queue(&towline, 0);
    buffer = make_buffer(&towline, MOST);
    target = make_bytes(MOST, 0);
    say("start");
    for (unsigned round = 0; round < ROUNDS; round++) {
        write_and_read(100 + round, round, CL_TRUE);
        write_and_read(60000, 10 + round, CL_FALSE);
        write_and_read(MOST, 20 + round, CL_TRUE);
        read_by_event(MOST);
        rectangle();
        map(300000, 30 + round);
        shared(&towline, 300000, 40 + round);
    }
    claimed("clFinish", clFinish(queue), NULL, NULL, 0);
    return end_of_claims();
}
