/*
 * A program of the CUDA runtime without nvcc: C, a kernel in PTX, and what nvcc's host code does by hand. It is linked with nothing: it
 * finds libcudart.so.12 or .13 as programs do, by the major version that its first
 * argument says. With a second argument it launches a graph as well, which not every device can.
 *
 * Prints the devices, checks y = a x + y, variables by their shadows, and errors.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT (1 << 16)

typedef struct {
    unsigned x, y, z;
} dim3;

/* A wrapper of a fat binary, and a container that holds one text of PTX. */
struct wrapper {
    uint32_t magic, version;
    const void *data;
    void *unused;
};

static const char PTX[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".visible .global .align 4 .f32 factor = 0f3F800000;\n"
    ".visible .entry saxpy(.param .u32 count, .param .u64 x, .param .u64 y) {\n"
    ".reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<7>; .reg .f32 %f<5>;\n"
    "ld.param.u32 %r0, [count]; ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "setp.ge.u32 %p, %r4, %r0; @%p ret;\n"
    "mul.wide.u32 %d2, %r4, 4; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;\n"
    "ld.global.f32 %f0, [factor]; ld.global.f32 %f1, [%d3]; ld.global.f32 %f2, [%d4]; fma.rn.f32 %f3, %f0, %f1, %f2;\n"
    "st.global.f32 [%d4], %f3; ret; }\n";

static void *library;

static void *find(const char *name)
{
    void *function = dlsym(library, name);
    if (function == NULL) {
        fprintf(stderr, "the runtime has no %s\n", name);
        exit(3);
    }
    return function;
}

/* Calls a function of the runtime by its symbol; the list after the name is its C prototype's. */
#define CALL(name, types, ...) (((int (*) types)find(#name))(__VA_ARGS__))
#define CHECK(name, types, ...) check(CALL(name, types, __VA_ARGS__), #name)

static void check(int status, const char *call)
{
    if (status != 0) {
        const char *text = ((const char *(*)(int))find("cudaGetErrorName"))(status);
        fprintf(stderr, "%s: %d (%s)\n", call, status, text);
        exit(3);
    }
}

/* A fat binary with one entry of PTX, as nvcc lays it out: a header of 16 bytes, and an entry's of 64. */
static void *fat_binary(const char *text)
{
    const uint64_t size = (strlen(text) + 1 + 7) / 8 * 8;
    char *bytes = calloc(1, 16 + 64 + size);
    const uint32_t magic = 0xBA55ED50, header = 64, version = 0x00100001, sm = 75;
    const uint64_t all = 64 + size;
    const uint16_t kind = 1, entry_version = 0x0101;
    memcpy(bytes, &magic, 4), memcpy(bytes + 4, &version, 4), memcpy(bytes + 8, &all, 8);
    char *entry = bytes + 16;
    memcpy(entry, &kind, 2), memcpy(entry + 2, &entry_version, 2), memcpy(entry + 4, &header, 4);
    memcpy(entry + 8, &size, 8), memcpy(entry + 28, &sm, 4);
    memcpy(entry + 64, text, strlen(text));
    return bytes;
}

/* What stands for the kernel and the variable in host code. */
static void saxpy_stub(void) {}
static float factor_shadow;

static void launch(void *stream, unsigned count, void *x, void *y)
{
    const dim3 block = {256, 1, 1}, grid = {(count + 255) / 256, 1, 1};
    void *args[] = {&count, &x, &y};
    check((int)CALL(__cudaPushCallConfiguration, (dim3, dim3, size_t, void *), grid, block, 0, stream), "push");
    dim3 popped_grid, popped_block;
    size_t shared;
    void *popped;
    CHECK(__cudaPopCallConfiguration, (dim3 *, dim3 *, size_t *, void *), &popped_grid, &popped_block, &shared, &popped);
    CHECK(cudaLaunchKernel, (const void *, dim3, dim3, void **, size_t, void *), (const void *)(uintptr_t)saxpy_stub, popped_grid,
          popped_block, args, shared, popped);
}

/* A launch of a program's last functions: this thread's locals have ended by then. */
__attribute__((destructor)) static void launch_late(void)
{
    if (library == NULL)
        return;
    const dim3 one = {1, 1, 1};
    dim3 grid, block;
    size_t shared;
    void *stream;
    const int pushed = CALL(__cudaPushCallConfiguration, (dim3, dim3, size_t, void *), one, one, 0, NULL);
    printf("after main: %d %d\n", pushed,
           CALL(__cudaPopCallConfiguration, (dim3 *, dim3 *, size_t *, void *), &grid, &block, &shared, &stream));
}

static void wrong(const float *y, float expected, const char *what)
{
    unsigned wrong = 0;
    for (unsigned i = 0; i < COUNT; i++) wrong += y[i] != expected * (float)(i % 97) + 1;
    printf("%s: %u numbers, %u wrong\n", what, COUNT, wrong);
}

/* The same launch three times more, as a graph. */
static void captured(void *stream, void *device_x, void *device_y, float *y)
{
    void *graph, *instance;
    CHECK(cudaStreamBeginCapture, (void *, int), stream, 0);
    launch(stream, COUNT, device_x, device_y);
    CHECK(cudaStreamEndCapture, (void *, void **), stream, &graph);
    CHECK(cudaGraphInstantiate, (void **, void *, unsigned long long), &instance, graph, 0);
    for (int times = 0; times < 3; times++) CHECK(cudaGraphLaunch, (void *, void *), instance, stream);
    CHECK(cudaMemcpyAsync, (void *, const void *, size_t, int, void *), y, device_y, COUNT * sizeof *y, 2, stream);
    CHECK(cudaStreamSynchronize, (void *), stream);
    wrong(y, 8, "captured");
}

int main(int argc, char **argv)
{
    char name[64];
    snprintf(name, sizeof name, "libcudart.so.%s", argc > 1 ? argv[1] : "13");
    library = dlopen(name, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    const struct wrapper wrapper = {0x466243b1, 1, fat_binary(PTX), NULL};
    void **handle = ((void **(*)(const void *))find("__cudaRegisterFatBinary"))(&wrapper);
    ((void (*)(void **, const void *, const char *, const char *, int, void *, void *, void *, void *, int *))find(
        "__cudaRegisterFunction"))(handle, (const void *)(uintptr_t)saxpy_stub, "saxpy", "saxpy", -1, NULL, NULL, NULL, NULL, NULL);
    ((void (*)(void **, void *, const char *, const char *, int, size_t, int, int))find("__cudaRegisterVar"))(
        handle, &factor_shadow, "factor", "factor", 0, sizeof factor_shadow, 0, 0);
    ((void (*)(void **))find("__cudaRegisterFatBinaryEnd"))(handle);

    int devices, version, wanted = atoi(argc > 1 ? argv[1] : "13");
    CHECK(cudaGetDeviceCount, (int *), &devices);
    CHECK(cudaRuntimeGetVersion, (int *), &version);
    static union {
        char name[256];
        char bytes[4096];
    } properties;
    memset(&properties, 0x5a, sizeof properties);
    const char *get = wanted == 12 ? "cudaGetDeviceProperties_v2" : "cudaGetDeviceProperties";
    check(((int (*)(void *, int))find(get))(&properties, 0), get);
    int major;
    memcpy(&major, properties.bytes + 360, sizeof major);
    const size_t length = wanted == 12 ? 1032 : 1008;
    printf("runtime %d, %d device, %s, capability %d, %s\n", version / 1000, devices, properties.name, major,
           properties.bytes[length - 1] == 0 && properties.bytes[length] == 0x5a ? "all told" : "too much or too little told");

    static float x[COUNT], y[COUNT];
    void *device_x, *device_y, *stream;
    CHECK(cudaMalloc, (void **, size_t), &device_x, sizeof x);
    CHECK(cudaMalloc, (void **, size_t), &device_y, sizeof y);
    CHECK(cudaStreamCreate, (void **), &stream);
    for (unsigned i = 0; i < COUNT; i++) x[i] = (float)(i % 97), y[i] = 1;
    const float factor = 2;
    CHECK(cudaMemcpyToSymbol, (const void *, const void *, size_t, size_t, int), &factor_shadow, &factor, sizeof factor, 0, 1);
    CHECK(cudaMemcpy, (void *, const void *, size_t, int), device_x, x, sizeof x, 1);
    CHECK(cudaMemcpy, (void *, const void *, size_t, int), device_y, y, sizeof y, 1);
    launch(stream, COUNT, device_x, device_y);
    CHECK(cudaMemcpyAsync, (void *, const void *, size_t, int, void *), y, device_y, sizeof y, 2, stream);
    CHECK(cudaStreamSynchronize, (void *), stream);
    wrong(y, 2, "launched");

    if (argc > 2) captured(stream, device_x, device_y, y);

    float back = 0;
    CHECK(cudaMemcpyFromSymbol, (void *, const void *, size_t, size_t, int), &back, &factor_shadow, sizeof back, 0, 2);
    size_t size;
    CHECK(cudaGetSymbolSize, (size_t *, const void *), &size, &factor_shadow);
    printf("variable of %zu bytes is %.0f\n", size, (double)back);

    /* What is wrong is told at once, remembered, and forgotten when it was asked for. */
    const dim3 none = {0, 1, 1}, one = {1, 1, 1}, many = {4096, 1, 1};
    void *args[] = {NULL, NULL, NULL};
    const void *stub = (const void *)(uintptr_t)saxpy_stub;
    const int unregistered = CALL(cudaLaunchKernel, (const void *, dim3, dim3, void **, size_t, void *), &back, one, one, args, 0, NULL);
    const int first = CALL(cudaPeekAtLastError, (void), );
    const int second = CALL(cudaGetLastError, (void), );
    const int third = CALL(cudaGetLastError, (void), );
    const int empty = CALL(cudaLaunchKernel, (const void *, dim3, dim3, void **, size_t, void *), stub, none, one, args, 0, NULL);
    const int large = CALL(cudaLaunchKernel, (const void *, dim3, dim3, void **, size_t, void *), stub, one, many, args, 0, NULL);
    const int past = CALL(cudaMemcpyToSymbol, (const void *, const void *, size_t, size_t, int), &factor_shadow, y, 8, 0, 1);
    const int shadow = CALL(cudaGetSymbolAddress, (void **, const void *), &device_x, &back);
    const int device = CALL(cudaSetDevice, (int), 1000);
    printf("errors %d, %d %d %d, %d %d %d %d %d\n", unregistered, first, second, third, empty, large, past, shadow, device);
    CALL(cudaGetLastError, (void), );
    CHECK(cudaDeviceReset, (void), );
    ((void (*)(void **))find("__cudaUnregisterFatBinary"))(handle);
    return 0;
}
