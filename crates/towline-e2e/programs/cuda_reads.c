/* Reads device memory into pageable memory, in every length around those where another way begins, and says how many were wrong. */
#include "driver.h"

enum { KIB = 1 << 10, MIB = 1 << 20, MOST = 45 * MIB };

static unsigned char byte_of(size_t at)
{
    return (unsigned char)(at * 31 + at / 4096 * 7);
}

int main(void)
{
    static const size_t sizes[] = {1, 16 * KIB, 16 * KIB + 1, 128 * KIB + 1, 512 * KIB, 512 * KIB + 1, MIB + 13, 4 * MIB, 8 * MIB - 1,
                                   8 * MIB, 12 * MIB + 5, 16 * MIB + 1, MOST - 64};
    open_device();
    unsigned char *source = malloc(MOST), *target = malloc(MOST);
    if (source == NULL || target == NULL)
        return 3;
    for (size_t at = 0; at < MOST; at++)
        source[at] = byte_of(at);
    uint64_t memory;
    CALL(cuMemAlloc_v2, (uint64_t *, size_t), &memory, MOST);
    CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), memory, source, MOST);
    int reads = 0, wrong = 0;
    for (int round = 0; round < 12; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t size = sizes[i], from = round, to = round * 3;
            /* Long ones take their time. */
            if (size > MIB && round > 2)
                continue;
            memset(target, 0xee, to + size + 16);
            CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), target + to, memory + from, size);
            wrong += memcmp(target + to, source + from, size) != 0 || target[to + size] != 0xee || (to > 0 && target[to - 1] != 0xee);
            reads++;
        }
    printf("%d reads, %d wrong\n", reads, wrong);
    return 0;
}
