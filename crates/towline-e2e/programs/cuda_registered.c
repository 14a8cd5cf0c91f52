/* Memory of the program's own that kernels use: a few flags beside other things of the program's, and a long range; then pinned memory that
 * a kernel uses, or that goes out of use, while a copy of it is on its way. */
#include "driver.h"

#include <unistd.h>

enum { MAPPED = 2, WORDS = (8 << 20) / 4, ROUNDS = 5, LONG = 64 << 20 };

static void *add_one;

static uint64_t registered(void *start, size_t bytes)
{
    uint64_t address;
    CALL(cuMemHostRegister_v2, (void *, size_t, unsigned), start, bytes, MAPPED);
    CALL(cuMemHostGetDevicePointer_v2, (uint64_t *, void *, unsigned), &address, start, 0);
    return address;
}

static void add(uint64_t address, uint32_t count)
{
    if (launch_add_one(add_one, NULL, address, count) != 0)
        exit(3);
}

/* As programs keep flags that kernels set: nothing else tells that the rest of the page is in use. */
static void flags(void)
{
    void *page;
    if (posix_memalign(&page, 4096, 4096) != 0)
        exit(3);
    memset(page, 0, 4096);
    volatile uint32_t *flag = page;
    char *text = (char *)page + 64;
    uint64_t address = registered(page, sizeof *flag);
    int wrong = 0;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        add(address, 1);
        CALL(cuCtxSynchronize, (void));
        wrong += *flag != 1;
        *flag = 0;
        const int length = sprintf(text, "beside a flag: %u\n", round);
        add(address, 1);
        wrong += write(STDOUT_FILENO, text, length) != length;
        CALL(cuCtxSynchronize, (void));
        wrong += *flag != 1;
        *flag = 0;
    }
    CALL(cuMemHostUnregister, (void *), page);
    free(page);
    printf("flags: %d wrong\n", wrong);
}

static void range(void)
{
    uint32_t *all = malloc((WORDS + 8) * sizeof *all), *mine = all + 3;
    for (uint32_t i = 0; i < WORDS + 8; i++)
        all[i] = i;
    uint64_t address = registered(mine, WORDS * sizeof *mine);
    int wrong = 0;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        add(address, WORDS);
        CALL(cuCtxSynchronize, (void));
        for (uint32_t i = 0; i < WORDS; i += 1 + i % 100)
            wrong += mine[i] != i + 3 + round;
    }
    add(address, WORDS);
    CALL(cuMemHostUnregister, (void *), mine);
    for (uint32_t i = 0; i < WORDS; i++)
        wrong += mine[i] != i + 4 + ROUNDS;
    wrong += all[2] != 2 || mine[WORDS] != WORDS + 3;
    free(all);
    printf("range: %d wrong\n", wrong);
}

static void copy_begins(uint64_t there, void *memory)
{
    memset(memory, 1, LONG);
    CALL(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *), there, memory, LONG, NULL);
}

static int wrong_there(uint64_t there, uint32_t *back)
{
    int wrong = 0;
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), back, there, LONG);
    for (int i = 0; i < LONG / 4; i++)
        wrong += back[i] != 0x01010101;
    return wrong;
}

static void pinned(void)
{
    uint8_t *memory;
    uint32_t *back = malloc(LONG);
    CALL(cuMemHostAlloc, (void **, size_t, unsigned), (void **)&memory, LONG, MAPPED);
    uint64_t there = device_memory(LONG);
    copy_begins(there, memory);
    add((uint64_t)(uintptr_t)memory, 4);
    int wrong = wrong_there(there, back);
    wrong += memory[0] != 2 || memory[16] != 1;
    CALL(cuMemFreeHost, (void *), memory);
    free(back);
    printf("pinned: %d wrong\n", wrong);
}

static void freed(void)
{
    uint32_t *back = malloc(LONG), *own = malloc(LONG);
    void *memory;
    uint64_t there = device_memory(LONG);
    CALL(cuMemHostAlloc, (void **, size_t, unsigned), &memory, LONG, 0);
    copy_begins(there, memory);
    CALL(cuMemFreeHost, (void *), memory);
    int wrong = wrong_there(there, back);
    CALL(cuMemHostRegister_v2, (void *, size_t, unsigned), own, LONG, 0);
    copy_begins(there, own);
    CALL(cuMemHostUnregister, (void *), own);
    memset(own, 2, LONG);
    wrong += wrong_there(there, back);
    free(own);
    free(back);
    printf("freed: %d wrong\n", wrong);
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    open_device();
    add_one = null_kernel("add_one");
    flags();
    range();
    pinned();
    freed();
    return 0;
}
