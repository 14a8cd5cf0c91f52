/* Pinned memory that a kernel uses, or that goes out of use, while a copy of it is on its way. */
#include "driver.h"

enum { MAPPED = 2, LONG = 64 << 20 };

static void *add_one;

static void add(uint64_t address, uint32_t count)
{
    if (launch_add_one(add_one, NULL, address, count) != 0)
        exit(3);
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
    pinned();
    freed();
    return 0;
}
