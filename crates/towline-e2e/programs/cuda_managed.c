/*
 * Managed variables of modules: three that lie side by side, one of them over several pages, which host and kernels write in turn. The
 * host asks for one while it has written to another of the same page. Then a module goes, and its neighbours stay. A library's variable
 * stays when the context that showed it is reset, and managed memory that was not freed goes with it.
 */
#include "driver.h"

#define WORDS 3000

/* Adds what it is given to each word of all three variables, with one thread for each word. */
static const char TEXT[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .global .attribute(.managed) .align 4 .u32 before = 10;\n"
    ".visible .global .attribute(.managed) .align 4 .u32 pages[3000];\n"
    ".visible .global .attribute(.managed) .align 4 .u32 behind = 30;\n"
    ".visible .global .align 4 .u32 plain = 40;\n"
    ".visible .entry raise(.param .u32 by) { .reg .b32 %r<6>; .reg .b64 %d<3>; .reg .pred %p<2>;\n"
    "ld.param.u32 %r0, [by]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;\n"
    "setp.ge.u32 %p0, %r1, 3000; @%p0 bra others; mul.wide.u32 %d0, %r1, 4; mov.u64 %d1, pages; add.u64 %d1, %d1, %d0;\n"
    "ld.global.u32 %r4, [%d1]; add.u32 %r4, %r4, %r0; st.global.u32 [%d1], %r4; ret;\n"
    "others: setp.ne.u32 %p1, %r1, 3000; @%p1 ret;\n"
    "ld.global.u32 %r4, [before]; add.u32 %r4, %r4, %r0; st.global.u32 [before], %r4;\n"
    "ld.global.u32 %r4, [behind]; add.u32 %r4, %r4, %r0; st.global.u32 [behind], %r4;\n"
    "ld.global.u32 %r4, [plain]; add.u32 %r4, %r4, %r0; st.global.u32 [plain], %r4; ret; }\n";

static volatile uint32_t *variable(void *module, const char *name, size_t bytes)
{
    uint64_t address;
    size_t size;
    CALL(cuModuleGetGlobal_v2, (uint64_t *, size_t *, void *, const char *), &address, &size, module, name);
    if (size != bytes)
        printf("%s has %zu bytes\n", name, size);
    return (volatile uint32_t *)(uintptr_t)address;
}

static void raise_all(void *module, uint32_t by)
{
    void *function;
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "raise");
    void *parameters[] = {&by};
    CALL(cuLaunchKernel, LAUNCH_TYPES, function, WORDS / 250 + 1, 1, 1, 250, 1, 1, 0, NULL, parameters, NULL);
    CALL(cuCtxSynchronize, (void));
}

static void *load(void)
{
    void *module;
    CALL(cuModuleLoadData, (void **, const void *), &module, TEXT);
    return module;
}

static int wrong(volatile uint32_t *pages, uint32_t base)
{
    int count = 0;
    for (uint32_t at = 0; at < WORDS; at++)
        count += pages[at] != base + at;
    return count;
}

int main(void)
{
    open_device();
    void *module = load();
    volatile uint32_t *pages = variable(module, "pages", WORDS * 4);
    for (uint32_t at = 0; at < WORDS; at++)
        pages[at] = at;
    raise_all(module, 1);
    printf("raised once: %d wrong\n", wrong(pages, 1));

    /* What the host writes here is not on the device yet when it asks for the neighbour. */
    for (uint32_t at = 0; at < WORDS; at++)
        pages[at] += 5;
    volatile uint32_t *before = variable(module, "before", 4), *behind = variable(module, "behind", 4);
    printf("neighbours: %u %u, %d wrong\n", *before, *behind, wrong(pages, 6));
    *before = 100;
    raise_all(module, 2);
    printf("raised again: %u %u, %d wrong\n", *before, *behind, wrong(pages, 8));

    uint64_t plain;
    CALL(cuModuleGetGlobal_v2, (uint64_t *, size_t *, void *, const char *), &plain, NULL, module, "plain");
    uint32_t copied;
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), &copied, plain, 4);
    printf("plain: %u\n", copied);
    uint32_t words[WORDS];
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), words, (uint64_t)(uintptr_t)pages, sizeof words);
    pages[WORDS - 1] = 7;
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), words, (uint64_t)(uintptr_t)pages, sizeof words);
    printf("copied: %u %u\n", words[0], words[WORDS - 1]);

    void *other = load();
    volatile uint32_t *its = variable(other, "behind", 4);
    raise_all(other, 3);
    CALL(cuModuleUnload, (void *), module);
    printf("the other: %u\n", *its);
    raise_all(other, 3);
    printf("alone: %u\n", *its);
    CALL(cuModuleUnload, (void *), other);

    void *library;
    CALL(cuLibraryLoadData, (void **, const void *, void *, void *, unsigned, void *, void *, unsigned), &library, TEXT, NULL, NULL, 0,
         NULL, NULL, 0);
    for (uint32_t turn = 0; turn < 3; turn++) {
        uint64_t shown, memory;
        CALL(cuLibraryGetManaged, (uint64_t *, size_t *, void *, const char *), &shown, NULL, library, "behind");
        *(volatile uint32_t *)(uintptr_t)shown = 50 + turn;
        CALL(cuMemAllocManaged, (uint64_t *, size_t, unsigned), &memory, (size_t)40 << 20, 1);
        *(volatile uint32_t *)(uintptr_t)memory = turn;
        CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), &copied, shown, 4);
        printf("before reset %u: %u\n", turn, copied);
        CALL(cuDevicePrimaryCtxReset_v2, (int), 0);
        open_device();
    }
    return 0;
}
