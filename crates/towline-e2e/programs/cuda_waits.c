/* Waits for a stream hundreds of times, and looks each time whether its kernel has written; then a kernel prints, and one strays. */
#include "driver.h"

enum { WAITS = 300, SLOW_EVERY = 60, SPINS = 200000 };

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

int main(void)
{
    open_device();
    void *tells = kernel(SILENT, "tells"), *streams[] = {make_cuda_stream(), make_cuda_stream()};
    volatile uint32_t *memory;
    uint64_t address;
    const unsigned mapped = 2;
    CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&memory, 4096, mapped);
    CALL(cuMemHostGetDevicePointer_v2, (uint64_t *, void *, unsigned), &address, (void *)memory, 0);
    int wrong = 0;
    for (uint32_t i = 1; i <= WAITS; i++) {
        uint32_t turns = i % SLOW_EVERY == 0 ? SPINS : 1;
        void *params[] = {&address, &i, &turns}, *stream = streams[i % 2];
        launch(tells, stream, params);
        CALL(cuStreamSynchronize, (void *), stream);
        wrong += *memory != i;
    }
    printf("%d waits, %d wrong\n", WAITS, wrong);
    fflush(stdout);
    launch(kernel(PRINTING, "says"), streams[0], NULL);
    CALL(cuStreamSynchronize, (void *), streams[0]);
    printf("then this\n");
    uint64_t nowhere = 4096;
    uint32_t one = 1;
    void *params[] = {&nowhere, &one, &one};
    launch(tells, streams[1], params);
    printf("fault %d\n", STATUS(cuStreamSynchronize, (void *), streams[1]));
    return 0;
}
