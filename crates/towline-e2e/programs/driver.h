/* The CUDA driver as these programs find it: without a vendor's header or library. */
#ifndef TOWLINE_DRIVER_H
#define TOWLINE_DRIVER_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of physical memory, and of who may use it where it is mapped. */
typedef struct {
    int type, id;
} Location;
typedef struct {
    int type, handles;
    Location location;
    void *unused;
    unsigned char flags[8];
} Properties;
typedef struct {
    Location location;
    int flags;
} Access;

static void *driver_library;

static inline void *driver_function(const char *name)
{
    if (driver_library == NULL)
        driver_library = dlopen("libcuda.so.1", RTLD_NOW);
    void *function = driver_library == NULL ? NULL : dlsym(driver_library, name);
    if (function == NULL) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(3);
    }
    return function;
}

/* What a function of the driver answers; the list after its name is its C prototype's. */
#define STATUS(name, types, ...) (((int (*) types)driver_function(#name))(__VA_ARGS__))

#define CALL(name, types, ...)                                                                                                   \
    do {                                                                                                                         \
        const int status_ = STATUS(name, types, __VA_ARGS__);                                                                    \
        if (status_ != 0) {                                                                                                      \
            fprintf(stderr, "%s: %d\n", #name, status_);                                                                         \
            exit(3);                                                                                                             \
        }                                                                                                                        \
    } while (0)

#define LAUNCH_TYPES                                                                                                             \
    (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)

/* Makes the first device's primary context the thread's. */
static inline void *open_device(void)
{
    void *context;
    CALL(cuInit, (unsigned), 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
    CALL(cuCtxSetCurrent, (void *), context);
    return context;
}

/* A kernel of the device in host memory. */
static inline void *null_kernel(const char *name)
{
    static const char image[] = "towline null image\nkernel add_one\nkernel spin_until\nkernel fault\n";
    void *module, *function;
    CALL(cuModuleLoadData, (void **, const void *), &module, image);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, name);
    return function;
}

static inline uint64_t device_memory(size_t bytes)
{
    uint64_t address;
    CALL(cuMemAlloc_v2, (uint64_t *, size_t), &address, bytes);
    return address;
}

static inline void *make_cuda_stream(void)
{
    void *stream;
    CALL(cuStreamCreate, (void **, unsigned), &stream, 1);
    return stream;
}

static inline int launch_add_one(void *function, void *stream, uint64_t address, uint32_t count)
{
    void *params[] = {&address, &count};
    return STATUS(cuLaunchKernel, LAUNCH_TYPES, function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* Waits for a line of standard input; whether there was one. */
static inline int is_told_to_go_on(void)
{
    int letter;
    while ((letter = getchar()) != '\n' && letter != EOF)
        ;
    return letter != EOF;
}

#endif
