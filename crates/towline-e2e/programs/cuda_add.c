/*
 * A program of the CUDA driver API, without a vendor's header or library: it finds libcuda.so.1 as programs do, loads an image of
 * the host-memory device, and has a kernel add 1 to numbers twice, on a stream, with copies of several sizes around it.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

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

static const char IMAGE[] = "towline null image\nkernel add_one\nkernel fault\n";

int main(void)
{
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    int count = 0, device = 0;
    char name[64] = "";
    void *context, *module, *function, *stream;
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGetCount, (int *), &count);
    CALL(cuDeviceGet, (int *, int), &device, 0);
    CALL(cuDeviceGetName, (char *, int, int), name, sizeof name, device);
    printf("%d device%s\n", count, count == 1 ? "" : "s");
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuModuleLoadData, (void **, const void *), &module, IMAGE);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "add_one");
    CALL(cuStreamCreate, (void **, unsigned), &stream, 1);
    for (uint32_t items = 1; items <= 4u << 20; items *= 64) {
        const size_t bytes = items * sizeof(uint32_t);
        uint32_t *numbers = malloc(bytes);
        if (numbers == NULL)
            return 3;
        for (uint32_t i = 0; i < items; i++)
            numbers[i] = i;
        uint64_t address;
        CALL(cuMemAlloc_v2, (uint64_t *, size_t), &address, bytes);
        CALL(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *), address, numbers, bytes, stream);
        void *params[] = {&address, &items};
        for (int round = 0; round < 2; round++)
            CALL(cuLaunchKernel,
                 (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
                 function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
        CALL(cuStreamSynchronize, (void *), stream);
        CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), numbers, address, bytes);
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < items; i++)
            wrong += numbers[i] != i + 2;
        printf("%u numbers, %u wrong\n", items, wrong);
        CALL(cuMemFree_v2, (uint64_t), address);
        free(numbers);
    }
    void *faulty;
    CALL(cuModuleGetFunction, (void **, void *, const char *), &faulty, module, "fault");
    CALL(cuLaunchKernel,
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), faulty,
         1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    const int fault = ((int (*)(void *))find("cuStreamSynchronize"))(stream);
    const int after = ((int (*)(void))find("cuCtxSynchronize"))();
    printf("fault %d, then %d\n", fault, after);
    return 0;
}
