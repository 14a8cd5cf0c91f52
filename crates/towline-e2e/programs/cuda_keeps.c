/* Takes so many MiB of device memory, or says that it does not get them. Whenever it is told to go on, it looks so many times whether all of
 * the memory holds what it should, and changes it. */
#include "driver.h"

#define MIB ((size_t)1 << 20)

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_device();
    const size_t bytes = (count > 1 ? (size_t)atoi(arguments[1]) : 1) * MIB, words = bytes / sizeof(unsigned);
    const int rounds = count > 2 ? atoi(arguments[2]) : 1;
    uint64_t memory;
    const int status = STATUS(cuMemAlloc_v2, (uint64_t *, size_t), &memory, bytes);
    if (status != 0) {
        printf("refused %d\n", status);
        return 0;
    }
    unsigned *back = malloc(bytes), value = 1;
    CALL(cuMemsetD32_v2, (uint64_t, unsigned, size_t), memory, value, words);
    CALL(cuCtxSynchronize, (void), );
    printf("has\n");
    while (is_told_to_go_on()) {
        for (int round = 0; round < rounds; round++) {
            memset(back, 0, bytes);
            CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), back, memory, bytes);
            for (size_t word = 0; word < words; word++) {
                if (back[word] != value) {
                    fprintf(stderr, "word %zu is %u and not %u\n", word, back[word], value);
                    return 5;
                }
            }
            CALL(cuMemsetD32_v2, (uint64_t, unsigned, size_t), memory, ++value, words);
        }
        CALL(cuCtxSynchronize, (void), );
        printf("right %u\n", value);
    }
    CALL(cuMemFree_v2, (uint64_t), memory);
    return 0;
}
