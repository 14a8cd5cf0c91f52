/*
 * A program that asks NVML of all devices, and then CUDA of the same, without a vendor's header or library. Between the two it waits
 * for a word: NVML alone must not have begun a session.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NO_PERMISSION = 4, INSUFFICIENT_SIZE = 7, FUNCTION_NOT_FOUND = 13 };

struct place {
    char legacy[16];
    uint32_t domain, bus, device, ids[2];
    char text[32];
};

struct memory {
    uint32_t version;
    uint64_t total, reserved, free, used;
};

struct process {
    uint32_t pid;
    uint64_t bytes;
    uint32_t parts[2];
};

static void *nvml, *cuda;

static void *find(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (function == NULL) {
        fprintf(stderr, "there is no %s\n", name);
        exit(3);
    }
    return function;
}

static void *load(const char *name)
{
    void *library = dlopen(name, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    return library;
}

static void expect(int status, int wanted, const char *call)
{
    if (status != wanted) {
        fprintf(stderr, "%s: %d, not %d\n", call, status, wanted);
        exit(3);
    }
}

/* Calls a function by its symbol and checks its status; the list after the name is its C prototype's. */
#define NVML(wanted, name, types, ...) expect(((int (*) types)find(nvml, #name))(__VA_ARGS__), wanted, #name)
#define CUDA(name, types, ...) expect(((int (*) types)find(cuda, #name))(__VA_ARGS__), 0, #name)

static void ask_devices(unsigned count)
{
    for (unsigned index = 0; index < count; index++) {
        void *device, *again;
        char name[96] = "", uuid[96] = "", small[4];
        struct place place;
        struct memory memory = {.version = sizeof memory | 2u << 24};
        unsigned power = 0, celsius = 0, clocks = 0, clock[8], other = 0;
        unsigned long processors[17] = {[16] = 1};
        NVML(SUCCESS, nvmlDeviceGetHandleByIndex_v2, (unsigned, void **), index, &device);
        NVML(SUCCESS, nvmlDeviceGetName, (void *, char *, unsigned), device, name, sizeof name);
        NVML(INSUFFICIENT_SIZE, nvmlDeviceGetName, (void *, char *, unsigned), device, small, sizeof small);
        NVML(SUCCESS, nvmlDeviceGetUUID, (void *, char *, unsigned), device, uuid, sizeof uuid);
        NVML(SUCCESS, nvmlDeviceGetPciInfo_v3, (void *, struct place *), device, &place);
        NVML(SUCCESS, nvmlDeviceGetHandleByPciBusId_v2, (const char *, void **), place.text, &again);
        NVML(SUCCESS, nvmlDeviceGetIndex, (void *, unsigned *), again, &other);
        NVML(SUCCESS, nvmlDeviceGetMemoryInfo_v2, (void *, struct memory *), device, &memory);
        NVML(SUCCESS, nvmlDeviceGetPowerUsage, (void *, unsigned *), device, &power);
        NVML(SUCCESS, nvmlDeviceGetTemperature, (void *, int, unsigned *), device, 0, &celsius);
        NVML(INSUFFICIENT_SIZE, nvmlDeviceGetSupportedMemoryClocks, (void *, unsigned *, unsigned *), device, &clocks, NULL);
        NVML(SUCCESS, nvmlDeviceGetSupportedMemoryClocks, (void *, unsigned *, unsigned *), device, &clocks, clock);
        NVML(NO_PERMISSION, nvmlDeviceSetPowerManagementLimit, (void *, unsigned), device, 1000);
        NVML(INVALID_ARGUMENT, nvmlDeviceGetCpuAffinity, (void *, unsigned, unsigned long *), device, 0, NULL);
        NVML(SUCCESS, nvmlDeviceGetCpuAffinity, (void *, unsigned, unsigned long *), device, 17, processors);
        if (processors[0] == 0 || processors[16] != 0)
            printf("processors %lx, %lx\n", processors[0], processors[16]);
        printf("%u: %s, %s, %u, %llu MiB, %u W, %u C, %u clocks\n", index, name, place.text, other == index,
               (unsigned long long)memory.total >> 20, power / 1000, celsius, clocks);
    }
}

/* What CUDA says of the device that NVML calls `index`. */
static void compare(int index)
{
    void *device, *context;
    char uuid[96], text[96] = "GPU", place[32] = "";
    unsigned char bytes[16];
    struct place known;
    struct memory memory = {.version = sizeof memory | 2u << 24};
    struct process processes[8];
    unsigned count = 8;
    size_t room = 0, total = 0;
    unsigned long long address;
    int ordinal;
    NVML(SUCCESS, nvmlDeviceGetHandleByIndex_v2, (unsigned, void **), index, &device);
    NVML(SUCCESS, nvmlDeviceGetUUID, (void *, char *, unsigned), device, uuid, sizeof uuid);
    NVML(SUCCESS, nvmlDeviceGetPciInfo_v3, (void *, struct place *), device, &known);
    NVML(SUCCESS, nvmlDeviceGetMemoryInfo_v2, (void *, struct memory *), device, &memory);
    CUDA(cuDeviceGet, (int *, int), &ordinal, index);
    CUDA(cuDeviceGetUuid_v2, (void *, int), bytes, ordinal);
    CUDA(cuDeviceGetPCIBusId, (char *, int, int), place, sizeof place, ordinal);
    for (int i = 0; i < 16; i++)
        sprintf(text + strlen(text), "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
    CUDA(cuDevicePrimaryCtxRetain, (void **, int), &context, ordinal);
    CUDA(cuCtxSetCurrent, (void *), context);
    CUDA(cuMemGetInfo_v2, (size_t *, size_t *), &room, &total);
    CUDA(cuMemAlloc_v2, (unsigned long long *, size_t), &address, 1 << 20);
    /* NVML writes a domain with four digits more. */
    printf("%d: %s uuid, %s place, %s memory", index, strcmp(uuid, text) == 0 ? "same" : "other",
           strcasecmp(known.text + 4, place) == 0 ? "same" : "other", total == memory.total ? "same" : "other");
    NVML(SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3, (void *, unsigned *, struct process *), device, &count, processes);
    printf(", %u process%s", count, count == 1 ? "" : "es");
    if (count == 1)
        printf(", %s, %llu KiB", processes[0].pid == (uint32_t)getpid() ? "this" : "other",
               (unsigned long long)processes[0].bytes >> 10);
    printf("\n");
}

int main(void)
{
    unsigned count = 0;
    char word[16];
    nvml = load("libnvidia-ml.so.1");
    NVML(UNINITIALIZED, nvmlDeviceGetCount_v2, (unsigned *), &count);
    NVML(SUCCESS, nvmlInit_v2, (void), );
    NVML(SUCCESS, nvmlDeviceGetCount_v2, (unsigned *), &count);
    ask_devices(count);
    const void *table = &table;
    NVML(FUNCTION_NOT_FOUND, nvmlInternalGetExportTable, (const void **, const void *), &table, "no table of this");
    printf("%s\n", table == NULL ? "no table" : "a table");
    fflush(stdout);
    if (fork() == 0) {
        ask_devices(1);
        fflush(stdout);
        _exit(0);
    }
    int status = 1;
    wait(&status);
    printf("child %d\nasked\n", status);
    fflush(stdout);
    if (fgets(word, sizeof word, stdin) == NULL)
        return 3;
    cuda = load("libcuda.so.1");
    CUDA(cuInit, (unsigned), 0);
    for (unsigned index = 0; index < count; index++)
        compare((int)index);
    NVML(SUCCESS, nvmlShutdown, (void), );
    NVML(UNINITIALIZED, nvmlShutdown, (void), );
    return 0;
}
