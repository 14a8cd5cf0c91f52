/*
 * Does one thing without end, until a call fails: "launches" a kernel, "copies" to the device and back, "captures" launches into graphs
 * that it runs, "records" them into graphs that it does not, or "waits" for a kernel that does not end. Then it tells what calls answer: the failure stays, and none hangs.
 */
#include "driver.h"

enum { COUNT = 1 << 16, BYTES = 64 << 20, BURST = 500 };

static void *function, *stream;
static uint64_t memory;

static int launches(void)
{
    for (int i = 0; i < BURST; i++) {
        const int status = launch_add_one(function, stream, memory, COUNT);
        if (status != 0)
            return status;
    }
    return 0;
}

static int copies(void)
{
    static char *bytes;
    if (bytes == NULL && (bytes = calloc(1, BYTES)) == NULL)
        exit(4);
    const int status = STATUS(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *), memory, bytes, BYTES, stream);
    return status != 0 ? status : STATUS(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), bytes, memory, BYTES);
}

static int capture(void **graph)
{
    int status = STATUS(cuStreamBeginCapture_v2, (void *, int), stream, 0);
    for (int i = 0; i < BURST && status == 0; i++)
        status = launch_add_one(function, stream, memory, 16);
    const int ended = STATUS(cuStreamEndCapture, (void *, void **), stream, graph);
    return status != 0 ? status : ended;
}

static int records(void)
{
    void *graph;
    const int status = capture(&graph);
    return status != 0 ? status : STATUS(cuGraphDestroy, (void *), graph);
}

static int captures(void)
{
    void *graph, *executable;
    int status = capture(&graph);
    if (status != 0)
        return status;
    if ((status = STATUS(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &executable, graph, 0)) != 0)
        return status;
    status = STATUS(cuGraphLaunch, (void *, void *), executable, stream);
    STATUS(cuGraphExecDestroy, (void *), executable);
    STATUS(cuGraphDestroy, (void *), graph);
    return status;
}

static int waits(void)
{
    void *spin = null_kernel("spin_until");
    void *params[] = {&memory};
    CALL(cuMemsetD32_v2, (uint64_t, unsigned, size_t), memory, 0, 1);
    CALL(cuCtxSynchronize, (void), );
    const int status = STATUS(cuLaunchKernel, LAUNCH_TYPES, spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    puts("busy");
    return status != 0 ? status : STATUS(cuStreamSynchronize, (void *), stream);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } modes[] = {{"launches", launches}, {"copies", copies}, {"captures", captures}, {"records", records}, {"waits", waits}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    int (*run)(void) = NULL;
    for (size_t i = 0; count == 2 && i < sizeof modes / sizeof *modes; i++)
        if (strcmp(arguments[1], modes[i].name) == 0)
            run = modes[i].run;
    if (run == NULL)
        return 2;
    open_device();
    function = null_kernel("add_one");
    stream = make_cuda_stream();
    memory = device_memory(BYTES);
    int status = run == waits ? 0 : run();
    if (run != waits)
        puts("busy");
    while (status == 0)
        status = run();
    uint64_t more;
    const int later[] = {
        STATUS(cuCtxSynchronize, (void), ),
        STATUS(cuMemAlloc_v2, (uint64_t *, size_t), &more, 4096),
        launch_add_one(function, stream, memory, 1),
    };
    printf("failed %d, then %d %d %d\n", status, later[0], later[1], later[2]);
    return 0;
}
