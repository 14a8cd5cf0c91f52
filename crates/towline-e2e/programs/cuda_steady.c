/*
 * Computes and checks round after round until the test says stop, with something of each kind that a program has: memory of its own and of a
 * pool, mapped, pinned and managed memory, a variable of its module, a library, streams, events, an executable graph.
 *
 *   cuda_steady [MIB [none|asks|stores]]
 *
 * It holds so many MiB more, and "asks" where the module's variable lies and copies from there, or "stores" in device memory where it lies.
 */
#include "driver.h"

#include <poll.h>

enum { COUNT = 4096, BYTES = COUNT * 4 };
#define CHUNK ((size_t)2 << 20)

/* "step" adds 1 to each of so many words, "count" to the module's variable, and tells it. */
static const char STEP[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".visible .global .align 4 .u32 rounds = 7;\n"
    ".visible .entry step(.param .u64 at, .param .u32 words) {\n"
    ".reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %d<3>;\n"
    "ld.param.u64 %d0, [at]; ld.param.u32 %r0, [words];\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;\n"
    "setp.ge.u32 %p0, %r1, %r0; @%p0 ret; mul.wide.u32 %d1, %r1, 4; add.u64 %d0, %d0, %d1;\n"
    "ld.global.u32 %r4, [%d0]; add.u32 %r4, %r4, 1; st.global.u32 [%d0], %r4; ret; }\n"
    ".visible .entry count(.param .u64 at) {\n"
    ".reg .b32 %r<2>; .reg .b64 %d<2>; ld.param.u64 %d0, [at];\n"
    "ld.global.u32 %r0, [rounds]; add.u32 %r0, %r0, 1; st.global.u32 [rounds], %r0; st.global.u32 [%d0], %r0; ret; }\n";


static void launch(void *function, void *stream, uint64_t at, uint32_t count)
{
    const unsigned block = count < 256 ? count : 256;
    void *params[] = {&at, &count};
    CALL(cuLaunchKernel, LAUNCH_TYPES, function, count / block, 1, 1, block, 1, 1, 0, stream, params, NULL);
}

static void expect(const char *what, const uint32_t *values, int count, uint32_t wanted)
{
    for (int i = 0; i < count; i++)
        if (values[i] != wanted) {
            fprintf(stderr, "%s: value %d is %u, and should be %u\n", what, i, values[i], wanted);
            exit(1);
        }
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_device();
    const size_t more = argc > 1 ? (size_t)atoi(argv[1]) << 20 : 0;
    void *module, *step, *counter, *library, *kernel, *streams[2], *first, *second, *early, *graph, *executable;
    CALL(cuModuleLoadData, (void **, const void *), &module, STEP);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &step, module, "step");
    CALL(cuModuleGetFunction, (void **, void *, const char *), &counter, module, "count");
    CALL(cuLibraryLoadData, (void **, const void *, void *, void *, unsigned, void *, void *, unsigned), &library, STEP, NULL, NULL,
         0, NULL, NULL, 0);
    CALL(cuLibraryGetKernel, (void **, void *, const char *), &kernel, library, "step");
    uint64_t variable = 0;
    if (argc > 2 && strcmp(argv[2], "none") != 0)
        CALL(cuModuleGetGlobal_v2, (uint64_t *, size_t *, void *, const char *), &variable, NULL, module, "rounds");
    for (int i = 0; i < 2; i++)
        streams[i] = make_cuda_stream();
    CALL(cuEventCreate, (void **, unsigned), &first, 0);
    CALL(cuEventCreate, (void **, unsigned), &second, 0);
    CALL(cuEventCreate, (void **, unsigned), &early, 0);

    /* Of what lies between, nothing stays. */
    const uint64_t gone = device_memory(BYTES);
    const uint64_t memory = device_memory(BYTES), told = device_memory(4);
    CALL(cuMemFree_v2, (uint64_t), gone);
    uint64_t pooled, managed, mapped, parts[2], large = 0;
    CALL(cuMemAllocAsync, (uint64_t *, size_t, void *), &pooled, BYTES, streams[0]);
    CALL(cuMemAllocManaged, (uint64_t *, size_t, unsigned), &managed, BYTES, 1);
    uint32_t *pinned, *shared = (uint32_t *)(uintptr_t)managed, *held = NULL;
    CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&pinned, BYTES, 0);
    CALL(cuMemsetD32Async, (uint64_t, unsigned, size_t, void *), memory, 0, COUNT, streams[0]);
    /* Two pieces, rights to both at once, and the first piece anew: it gets its rights alone. */
    Properties properties = {.type = 1, .location = {.type = 1}};
    const Access access = {.location = {.type = 1}, .flags = 3};
    CALL(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long), &mapped, 2 * CHUNK, 0, 0, 0);
    for (int i = 0; i < 2; i++) {
        CALL(cuMemCreate, (uint64_t *, size_t, const Properties *, unsigned long long), &parts[i], CHUNK, &properties, 0);
        CALL(cuMemMap, (uint64_t, size_t, size_t, uint64_t, unsigned long long), mapped + i * CHUNK, CHUNK, 0, parts[i], 0);
    }
    CALL(cuMemSetAccess, (uint64_t, size_t, const Access *, size_t), mapped, 2 * CHUNK, &access, 1);
    CALL(cuMemUnmap, (uint64_t, size_t), mapped, CHUNK);
    CALL(cuMemMap, (uint64_t, size_t, size_t, uint64_t, unsigned long long), mapped, CHUNK, 0, parts[0], 0);
    CALL(cuMemSetAccess, (uint64_t, size_t, const Access *, size_t), mapped, CHUNK, &access, 1);
    for (int i = 0; i < 2; i++)
        CALL(cuMemRelease, (uint64_t), parts[i]);
    const uint64_t seam = mapped + CHUNK - BYTES / 2;
    CALL(cuMemsetD32Async, (uint64_t, unsigned, size_t, void *), seam, 0, COUNT, streams[0]);
    CALL(cuMemsetD32Async, (uint64_t, unsigned, size_t, void *), pooled, 0, COUNT, streams[0]);
    memset(shared, 0, BYTES);
    if (more > 0) {
        large = device_memory(more);
        held = malloc(more);
        for (size_t i = 0; i < more / 4; i++)
            held[i] = (uint32_t)(i * 2654435761u);
        CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), large, held, more);
    }
    if (argc > 2 && strcmp(argv[2], "stores") == 0) {
        const uint64_t there = device_memory(8);
        CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), there, &variable, 8);
    }
    CALL(cuStreamBeginCapture_v2, (void *, int), streams[0], 0);
    launch(step, streams[0], memory, COUNT);
    launch(step, streams[0], memory, COUNT);
    CALL(cuStreamEndCapture, (void *, void **), streams[0], &graph);
    CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &executable, graph, 0);
    CALL(cuEventRecord, (void *, void *), first, streams[0]);

    static uint32_t values[COUNT];
    uint32_t round = 0;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    do {
        round++;
        CALL(cuGraphLaunch, (void *, void *), executable, streams[0]);
        launch(kernel, streams[0], pooled, COUNT);
        launch(step, streams[0], managed, COUNT);
        launch(step, streams[0], seam, COUNT);
        CALL(cuEventRecord, (void *, void *), second, streams[0]);
        CALL(cuStreamWaitEvent, (void *, void *, unsigned), streams[1], second, 0);
        launch(counter, streams[1], told, 1);
        CALL(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), pinned, memory, BYTES, streams[1]);
        CALL(cuStreamSynchronize, (void *), streams[1]);
        expect("memory", pinned, COUNT, 2 * round);
        CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), values, pooled, BYTES);
        expect("memory of a pool", values, COUNT, round);
        CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), values, seam, BYTES);
        expect("mapped memory", values, COUNT, round);
        CALL(cuCtxSynchronize, (void), );
        expect("managed memory", shared, COUNT, round);
        CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), values, told, 4);
        expect("variable", values, 1, 7 + round);
        if (variable != 0) {
            CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), values, variable, 4);
            expect("variable by its address", values, 1, 7 + round);
            /* Its address as a parameter: up by one, and down again. */
            launch(step, streams[1], variable, 1);
            CALL(cuStreamSynchronize, (void *), streams[1]);
            CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), values, variable, 4);
            expect("variable as a parameter", values, 1, 8 + round);
            values[0]--;
            CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), variable, values, 4);
        }
        float elapsed = -1;
        CALL(cuEventElapsedTime, (float *, void *, void *), &elapsed, first, second);
        static float longest;
        if (elapsed < longest) {
            fprintf(stderr, "time went back from %f to %f ms\n", longest, elapsed);
            return 1;
        }
        longest = elapsed;
        static float once;
        if (round == 1) {
            CALL(cuEventRecord, (void *, void *), early, streams[0]);
            CALL(cuEventSynchronize, (void *), early);
            CALL(cuEventElapsedTime, (float *, void *, void *), &once, first, early);
            puts("computing");
        }
        CALL(cuEventElapsedTime, (float *, void *, void *), &elapsed, first, early);
        if (elapsed < once - 0.05f || elapsed > once + 0.05f) {
            fprintf(stderr, "between two events were %f ms, and now %f\n", once, elapsed);
            return 1;
        }
    } while (poll(&input, 1, 0) == 0);
    for (size_t at = 0; at < more; at += BYTES) {
        CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), values, large + at, BYTES);
        if (memcmp(values, (char *)held + at, BYTES) != 0) {
            fprintf(stderr, "contents differ at %zu\n", at);
            return 1;
        }
    }
    /* What was made before a move ends as what was not. */
    CALL(cuMemFree_v2, (uint64_t), memory);
    CALL(cuMemFree_v2, (uint64_t), told);
    CALL(cuMemFree_v2, (uint64_t), managed);
    CALL(cuMemUnmap, (uint64_t, size_t), mapped, 2 * CHUNK);
    CALL(cuMemAddressFree, (uint64_t, size_t), mapped, 2 * CHUNK);
    CALL(cuMemFreeAsync, (uint64_t, void *), pooled, streams[0]);
    CALL(cuMemFreeHost, (void *), pinned);
    CALL(cuGraphExecDestroy, (void *), executable);
    CALL(cuModuleUnload, (void *), module);
    CALL(cuLibraryUnload, (void *), library);
    CALL(cuCtxSynchronize, (void), );
    printf("rounds %u\n", round);
    return 0;
}
