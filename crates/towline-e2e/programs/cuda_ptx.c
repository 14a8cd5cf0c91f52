/*
 * A program of the CUDA driver API that brings PTX: it finds libcuda.so.1 as programs do. Its argument is a folder with the PTX of
 * workloads/cuda. It adds vectors in one launch, and scales and adds in pieces on several streams, and checks every element. Then a
 * kernel prints, and another one writes where nothing is.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT (1 << 16)
#define PIECES 4

static void *library;

static void *find(const char *name)
{
    void *function = dlsym(library, name);
    if (function == NULL) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(3);
    }
    return function;
}

static void check(int status, const char *call)
{
    if (status != 0) {
        fprintf(stderr, "%s: %d\n", call, status);
        exit(3);
    }
}

/* Calls a function of the driver by its symbol; the list after the name is its C prototype's. */
#define CALL(name, types, ...) check(((int (*) types)find(#name))(__VA_ARGS__), #name)

/* Prints its number, and how much 1.5 times that is; and a write far from everything. */
static const char OWN[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".extern .func (.param .b32 r) vprintf (.param .b64 format, .param .b64 list);\n"
    ".global .align 1 .b8 text[] = {115, 97, 121, 115, 32, 37, 100, 32, 37, 46, 49, 102, 10, 0};\n"
    ".visible .entry says() {\n"
    ".local .align 8 .b8 list[16]; .reg .b32 %r<3>; .reg .b64 %d<5>; .reg .f64 %f<3>;\n"
    "mov.u32 %r0, %tid.x; st.local.u32 [list], %r0; cvt.rn.f64.u32 %f0, %r0; mul.f64 %f1, %f0, 0d3FF8000000000000;\n"
    "st.local.f64 [list+8], %f1; mov.u64 %d0, list; cvta.local.u64 %d1, %d0; mov.u64 %d2, text; cvta.global.u64 %d3, %d2;\n"
    "{ .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %d3; st.param.b64 [b], %d1;\n"
    "call.uni (c), vprintf, (a, b); }\n"
    "ret; }\n"
    ".visible .entry strays(.param .u64 at) {\n"
    ".reg .b64 %d<2>; ld.param.u64 %d0, [at];\n"
    "st.global.u32 [%d0+16], 7;\n"
    "ret; }\n";

static void *load_text(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.ptx", folder, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "could not open %s\n", path);
        exit(3);
    }
    static char text[1 << 16];
    const size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = 0;
    fclose(file);
    void *module;
    CALL(cuModuleLoadData, (void **, const void *), &module, text);
    return module;
}

static void *function(void *module, const char *name)
{
    void *found;
    CALL(cuModuleGetFunction, (void **, void *, const char *), &found, module, name);
    return found;
}

static void launch(void *kernel, unsigned grid, unsigned block, void *stream, void **params)
{
    CALL(cuLaunchKernel,
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), kernel,
         grid, 1, 1, block, 1, 1, 0, stream, params, NULL);
}

static uint64_t upload(const float *numbers)
{
    uint64_t address;
    CALL(cuMemAlloc_v2, (uint64_t *, size_t), &address, COUNT * sizeof *numbers);
    CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), address, numbers, COUNT * sizeof *numbers);
    return address;
}

int main(int argc, char **argv)
{
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL || argc != 2) {
        fprintf(stderr, "%s\n", library == NULL ? dlerror() : "usage: cuda_ptx FOLDER");
        return 3;
    }
    int count = 0, device = 0, major = 0, minor = 0;
    size_t total = 0;
    void *context;
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGetCount, (int *), &count);
    CALL(cuDeviceGet, (int *, int), &device, count - 1);
    CALL(cuDeviceGetAttribute, (int *, int, int), &major, 75, device);
    CALL(cuDeviceGetAttribute, (int *, int, int), &minor, 76, device);
    CALL(cuDeviceTotalMem_v2, (size_t *, int), &total, device);
    printf("%d of %d.%d with %zu MiB\n", count, major, minor, total >> 20);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    CALL(cuCtxSetCurrent, (void *), context);

    static float a[COUNT], b[COUNT], result[COUNT];
    for (int i = 0; i < COUNT; i++) {
        a[i] = (float)(i % 1000);
        b[i] = (float)(i % 77) * 0.5f;
    }
    uint64_t on_a = upload(a), on_b = upload(b), on_result = upload(result);
    int length = COUNT;
    void *sum[] = {&on_a, &on_b, &on_result, &length};
    launch(function(load_text(argv[1], "vector_add"), "_Z3addPKfS0_Pfi"), (COUNT + 255) / 256, 256, NULL, sum);
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), result, on_result, sizeof result);
    int wrong = 0;
    for (int i = 0; i < COUNT; i++)
        wrong += result[i] != a[i] + b[i];
    printf("%d sums, %d wrong\n", COUNT, wrong);

    void *saxpy = function(load_text(argv[1], "saxpy"), "_Z5saxpyfPKfPfi");
    void *streams[PIECES];
    int piece = COUNT / PIECES;
    const size_t bytes = piece * sizeof(float);
    for (int i = 0; i < PIECES; i++) {
        float factor = 2.0f;
        uint64_t x = on_a + i * bytes, y = on_b + i * bytes;
        void *params[] = {&factor, &x, &y, &piece};
        CALL(cuStreamCreate, (void **, unsigned), &streams[i], 1);
        launch(saxpy, piece / 256, 256, streams[i], params);
        CALL(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), result + i * piece, y, bytes, streams[i]);
    }
    wrong = 0;
    for (int i = 0; i < PIECES; i++)
        CALL(cuStreamSynchronize, (void *), streams[i]);
    for (int i = 0; i < COUNT; i++)
        wrong += result[i] != 2.0f * a[i] + b[i];
    printf("%d results, %d wrong\n", COUNT, wrong);
    fflush(stdout);

    void *own;
    CALL(cuModuleLoadData, (void **, const void *), &own, OWN);
    launch(function(own, "says"), 1, 2, NULL, NULL);
    CALL(cuCtxSynchronize, (void), );
    uint64_t nowhere = 4096;
    void *strays[] = {&nowhere};
    launch(function(own, "strays"), 1, 1, streams[0], strays);
    const int fault = ((int (*)(void *))find("cuStreamSynchronize"))(streams[0]);
    const int after = ((int (*)(void))find("cuCtxSynchronize"))();
    printf("fault %d, then %d\n", fault, after);
    return 0;
}
