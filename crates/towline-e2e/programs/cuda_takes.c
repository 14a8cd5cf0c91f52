/* Takes as many MiB of device memory as it is told to, or as it gets, says how many, and holds them until it is told to go on. */
#include "driver.h"

#define MOST 1024
#define MIB ((size_t)1 << 20)

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_device();
    const int wanted = count > 1 ? atoi(arguments[1]) : 0;
    static uint64_t taken[MOST];
    int has = 0;
    while (has < wanted && has < MOST && STATUS(cuMemAlloc_v2, (uint64_t *, size_t), &taken[has], MIB) == 0)
        has++;
    size_t free = 0, total = 0;
    CALL(cuMemGetInfo_v2, (size_t *, size_t *), &free, &total);
    printf("has %d of %zu, free %zu\n", has, total >> 20, free >> 20);
    if (!is_told_to_go_on())
        return 4;
    while (has > 0)
        CALL(cuMemFree_v2, (uint64_t), taken[--has]);
    CALL(cuCtxSynchronize, (void), );
    printf("freed\n");
    return is_told_to_go_on() ? 0 : 4;
}
