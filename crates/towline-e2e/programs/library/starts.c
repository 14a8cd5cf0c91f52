/*
 * A library whose constructor uses devices, as plugins do (UCX's for CUDA calls cuInit there). Whoever loads it holds the loader's lock
 * meanwhile.
 */
#include "../driver.h"

#include <CL/cl.h>

static void start_cuda(void)
{
    char name[64] = "";
    uint32_t number = 7, come = 0;
    open_device();
    CALL(cuDeviceGetName, (char *, int, int), name, sizeof name, 0);
    const uint64_t memory = device_memory(sizeof number);
    CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), memory, &number, sizeof number);
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), &come, memory, sizeof come);
    printf("cuda: %s, %u\n", name[0] != '\0' ? "a device" : "nothing", come);
}

static void start_nvml(void)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*const start)(void) = nvml != NULL ? (int (*)(void))dlsym(nvml, "nvmlInit_v2") : NULL;
    printf("nvml: %d\n", start != NULL ? start() : -1);
}

static void start_opencl(void)
{
    cl_platform_id platforms[8];
    cl_uint count = 0, devices = 0;
    clGetPlatformIDs(8, platforms, &count);
    for (cl_uint i = 0; i < count && i < 8; i++) {
        char name[64] = "";
        clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL);
        if (strcmp(name, "Towline") == 0)
            clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 0, NULL, &devices);
    }
    printf("opencl: %u devices\n", devices);
}

__attribute__((constructor)) static void start(int argc, char **argv)
{
    const char *const what = argc > 2 ? argv[2] : "";
    if (strcmp(what, "cuda") == 0)
        start_cuda();
    else if (strcmp(what, "nvml") == 0)
        start_nvml();
    else
        start_opencl();
}
