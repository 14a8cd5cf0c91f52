/* Pinned memory that host and device use at once, with a server of this host: a kernel that runs and the program take turns; kernels find
 * it by a pointer that no parameter shows; copies of every kind, fills and the system see in its turn what kernels have written. */
#include "driver.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

enum { MAPPED = 2, TURNS = 100, WORDS = 1024, SLOW = 300000, LIMIT_S = 20, HOST = 1, DEVICE = 2 };

static const char IMAGE[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    /* Answers each number that the host writes. */
    ".visible .entry meet(.param .u64 at, .param .u32 turns) {\n"
    ".reg .b64 %d<1>; .reg .b32 %r<4>; .reg .pred %p<2>;\n"
    "ld.param.u64 %d0, [at]; ld.param.u32 %r0, [turns]; mov.u32 %r1, 0;\n"
    "next: add.u32 %r1, %r1, 1;\n"
    "again: ld.volatile.global.u32 %r2, [%d0]; setp.lt.u32 %p0, %r2, %r1; @%p0 bra again;\n"
    "st.volatile.global.u32 [%d0+4], %r1; setp.lt.u32 %p1, %r1, %r0; @%p1 bra next;\n"
    "ret; }\n"
    /* Writes a number through a pointer in memory, after so many turns of a loop. */
    ".visible .entry through(.param .u64 at, .param .u32 number, .param .u32 turns) {\n"
    ".reg .b64 %d<2>; .reg .b32 %r<3>; .reg .pred %p<1>;\n"
    "ld.param.u64 %d0, [at]; ld.param.u32 %r0, [number]; ld.param.u32 %r1, [turns];\n"
    "again: sub.u32 %r1, %r1, 1; setp.gt.s32 %p0, %r1, 0; @%p0 bra again;\n"
    "ld.global.u64 %d1, [%d0]; st.global.u32 [%d1], %r0; ret; }\n"
    /* Writes a number, as late. */
    ".visible .entry tell(.param .u64 at, .param .u32 number, .param .u32 turns) {\n"
    ".reg .b64 %d<1>; .reg .b32 %r<3>; .reg .pred %p<1>;\n"
    "ld.param.u64 %d0, [at]; ld.param.u32 %r0, [number]; ld.param.u32 %r1, [turns];\n"
    "again: sub.u32 %r1, %r1, 1; setp.gt.s32 %p0, %r1, 0; @%p0 bra again;\n"
    "st.global.u32 [%d0], %r0; ret; }\n";

/* CUDA_MEMCPY2D of the driver's interface. */
struct box {
    size_t from_x, from_y;
    unsigned from_kind;
    const void *from_host;
    uint64_t from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    unsigned to_kind;
    void *to_host;
    uint64_t to_device;
    void *to_array;
    size_t to_pitch, width, height;
};

static void *module, *stream;

static void *kernel(const char *name)
{
    void *function;
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, name);
    return function;
}

static uint32_t *pinned(unsigned flags)
{
    uint32_t *memory;
    CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&memory, WORDS * sizeof *memory, flags);
    return memory;
}

static void wait_for_stream(void)
{
    CALL(cuStreamSynchronize, (void *), stream);
}

static void tell(const char *name, uint64_t at, uint32_t number, uint32_t turns)
{
    void *params[] = {&at, &number, &turns};
    CALL(cuLaunchKernel, LAUNCH_TYPES, kernel(name), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void meets(unsigned flags)
{
    uint32_t *memory = pinned(flags), turns = TURNS;
    uint64_t address;
    CALL(cuMemHostGetDevicePointer_v2, (uint64_t *, void *, unsigned), &address, memory, 0);
    void *params[] = {&address, &turns};
    CALL(cuLaunchKernel, LAUNCH_TYPES, kernel("meet"), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    volatile uint32_t *both = memory;
    const time_t limit = time(NULL) + LIMIT_S;
    uint32_t met = 0;
    while (met < TURNS) {
        both[0] = met + 1;
        while (both[1] != met + 1 && time(NULL) < limit)
            sched_yield();
        if (both[1] != met + 1) {
            both[0] = TURNS;
            break;
        }
        met++;
    }
    wait_for_stream();
    printf("flags %u: met %u times, %s address\n", flags, met, address == (uint64_t)(uintptr_t)memory ? "one" : "another");
    CALL(cuMemFreeHost, (void *), memory);
}

static void unseen(void)
{
    uint32_t *memory = pinned(0);
    uint64_t place = device_memory(sizeof memory);
    CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), place, &memory, sizeof memory);
    tell("through", place, 7, 1);
    wait_for_stream();
    printf("by a pointer in memory: %u\n", memory[0]);
    CALL(cuMemFreeHost, (void *), memory);
}

/* What a slow kernel writes is what each way of copying finds behind it. */
static void in_turn(void)
{
    uint32_t *memory = pinned(0), *to = pinned(0), back[2] = {0, 0}, pageable = 0;
    const uint64_t at = (uint64_t)(uintptr_t)memory;
    const uint64_t there = device_memory(16), beside = device_memory(16);
    tell("tell", at, 1, SLOW);
    CALL(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *), there, memory, 4, stream);
    tell("tell", at, 2, SLOW);
    struct box box = {.from_kind = HOST, .from_host = memory, .from_pitch = 4, .to_kind = DEVICE, .to_device = beside, .to_pitch = 4,
                      .width = 4, .height = 1};
    CALL(cuMemcpy2DAsync_v2, (const struct box *, void *), &box, stream);
    tell("tell", at, 3, SLOW);
    CALL(cuMemcpyAsync, (uint64_t, uint64_t, size_t, void *), (uint64_t)(uintptr_t)to, at, 4, stream);
    tell("tell", at, 4, SLOW);
    CALL(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), &pageable, at, 4, stream);
    CALL(cuMemsetD32Async, (uint64_t, unsigned, size_t, void *), at, 5, 1, stream);
    CALL(cuMemsetD32Async, (uint64_t, unsigned, size_t, void *), at + 4, 6, 1, stream);
    tell("tell", at + 8, 7, SLOW);
    wait_for_stream();
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), &back[0], there, 4);
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), &back[1], beside, 4);
    printf("in turn: %u %u %u %u, then %u %u %u\n", back[0], back[1], to[0], pageable, memory[0], memory[1], memory[2]);
    CALL(cuMemFreeHost, (void *), memory);
    CALL(cuMemFreeHost, (void *), to);
}

/* The system reads and writes what the device has just written. */
static void by_the_system(void)
{
    uint32_t *memory = pinned(MAPPED);
    int ends[2];
    if (pipe(ends) != 0)
        exit(3);
    tell("tell", (uint64_t)(uintptr_t)memory, 8, 1);
    wait_for_stream();
    uint32_t found = 0;
    const int wrote = write(ends[1], memory, 4) == 4, got = read(ends[0], &found, 4) == 4;
    tell("tell", (uint64_t)(uintptr_t)memory, 9, 1);
    wait_for_stream();
    const int again = write(ends[1], "abcd", 4) == 4 && read(ends[0], memory, 4) == 4;
    printf("by the system: %u, %d%d%d, %.4s\n", found, wrote, got, again, (const char *)memory);
    CALL(cuMemFreeHost, (void *), memory);
}

/* Addresses are used again, and kernels reach each. */
static void many(void)
{
    int wrong = 0;
    for (uint32_t round = 1; round <= 50; round++) {
        uint32_t *memory = pinned(round % 2 ? 0 : MAPPED);
        tell("tell", (uint64_t)(uintptr_t)memory, round, 1);
        wait_for_stream();
        wrong += memory[0] != round || memory[1] != 0;
        CALL(cuMemFreeHost, (void *), memory);
    }
    printf("many: %d wrong\n", wrong);
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    open_device();
    CALL(cuModuleLoadData, (void **, const void *), &module, IMAGE);
    stream = make_cuda_stream();
    meets(0);
    meets(MAPPED);
    unseen();
    in_turn();
    by_the_system();
    many();
    return 0;
}
