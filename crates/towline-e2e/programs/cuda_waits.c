/* Waits hundreds of times, for streams and for all of a context, and looks each time whether kernels have written; then one prints, and
 * one strays. They write to pinned memory, or with `registered` to some that the program has registered. */
#include "driver.h"

enum { WAITS = 200, SLOW_EVERY = 60, SPINS = 200000, STREAMS = 12, NON_BLOCKING = 1 };

/* Writes a number, after so many turns of a loop. */
static const char SILENT[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".visible .entry tells(.param .u64 at, .param .u32 number, .param .u32 turns) {\n"
    ".reg .b64 %d<2>; .reg .b32 %r<3>; .reg .pred %p<1>;\n"
    "ld.param.u64 %d0, [at]; ld.param.u32 %r0, [number]; ld.param.u32 %r1, [turns];\n"
    "again: sub.u32 %r1, %r1, 1; setp.gt.s32 %p0, %r1, 0; @%p0 bra again;\n"
    "st.volatile.global.u32 [%d0], %r0; ret; }\n";

static const char PRINTING[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".extern .func (.param .b32 r) vprintf (.param .b64 format, .param .b64 list);\n"
    ".global .align 1 .b8 text[] = {115, 97, 121, 115, 32, 105, 116, 10, 0};\n"
    ".visible .entry says() {\n"
    ".reg .b32 %r<1>; .reg .b64 %d<2>; mov.u64 %d0, text; cvta.global.u64 %d1, %d0;\n"
    "{ .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %d1; st.param.b64 [b], 0;\n"
    "call.uni (c), vprintf, (a, b); }\n"
    "ret; }\n";

static void *kernel(const char *image, const char *name)
{
    void *module, *function;
    CALL(cuModuleLoadData, (void **, const void *), &module, image);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, name);
    return function;
}

static void launch(void *function, void *stream, void **params)
{
    CALL(cuLaunchKernel, LAUNCH_TYPES, function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void *tells;
static volatile uint32_t *memory;
static uint64_t address;

/* Has kernels on so many streams write a number each, waits for the last of them or for all, and says whether one has not written. */
static int is_wrong(void **streams, int count, uint32_t number, int all)
{
    for (int i = 0; i < count; i++) {
        uint64_t place = address + 4 * i;
        uint32_t value = number + i, turns = number % SLOW_EVERY == 0 ? SPINS : 1;
        void *params[] = {&place, &value, &turns};
        launch(tells, streams[i], params);
    }
    if (all)
        CALL(cuCtxSynchronize, (void));
    else
        CALL(cuStreamSynchronize, (void *), streams[count - 1]);
    int wrong = 0;
    for (int i = all ? 0 : count - 1; i < count; i++)
        wrong |= memory[i] != number + i;
    return wrong;
}

/* Waits for a stream and for all of these in turns. */
static void wait_often(const char *what, void **streams, int count)
{
    int wrong = 0;
    for (uint32_t i = 1; i <= WAITS; i++)
        wrong += is_wrong(streams, count, i, i % 2);
    /* What was not waited for would write where other streams do next. */
    CALL(cuCtxSynchronize, (void));
    printf("%s: %d waits, %d wrong\n", what, WAITS, wrong);
}

int main(int argc, char **argv)
{
    open_device();
    tells = kernel(SILENT, "tells");
    const unsigned mapped = 2;
    if (argc > 1 && strcmp(argv[1], "registered") == 0) {
        memory = calloc(STREAMS, sizeof *memory);
        CALL(cuMemHostRegister_v2, (void *, size_t, unsigned), (void *)memory, STREAMS * sizeof *memory, mapped);
    } else {
        CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&memory, 4096, mapped);
    }
    CALL(cuMemHostGetDevicePointer_v2, (uint64_t *, void *, unsigned), &address, (void *)memory, 0);
    void *streams[STREAMS] = {NULL};
    wait_often("default stream", streams, 1);
    CALL(cuStreamCreate, (void **, unsigned), &streams[1], NON_BLOCKING);
    wait_often("beside one that is not behind it", streams, 2);
    for (int i = 2; i < STREAMS; i++)
        streams[i] = make_cuda_stream();
    wait_often("before others", streams, 3);
    wait_often("created streams", streams + 1, 2);
    wait_often("many streams", streams, STREAMS);
    fflush(stdout);
    launch(kernel(PRINTING, "says"), streams[1], NULL);
    CALL(cuStreamSynchronize, (void *), streams[1]);
    printf("then this\n");
    uint64_t nowhere = 4096;
    uint32_t one = 1;
    void *params[] = {&nowhere, &one, &one};
    launch(tells, streams[1], params);
    printf("fault %d\n", STATUS(cuStreamSynchronize, (void *), streams[1]));
    return 0;
}
