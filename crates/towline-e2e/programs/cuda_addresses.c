/*
 * Host memory and device memory never lie at the same addresses, wherever the server's driver puts its own: what was allocated cannot
 * be mapped by the host any more, and what the host has mapped is not given out, though the server would give out just that next.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

enum { PIECE = 2 << 20, HOST_PIECES = 16, COUNT = 8 };

static const size_t SIZE = 2 * PIECE;

/* What the host has mapped. */
static unsigned char *pieces[HOST_PIECES];

static void *map_at(uint64_t address, size_t bytes)
{
    void *at = (void *)(uintptr_t)address;
    void *got = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED && errno != EEXIST) {
        perror("mmap");
        exit(3);
    }
    return got == MAP_FAILED ? NULL : got;
}

static bool is_the_hosts(uint64_t address, size_t bytes)
{
    for (int i = 0; i < HOST_PIECES; i++) {
        const uint64_t start = (uint64_t)(uintptr_t)pieces[i];
        if (pieces[i] != NULL && address < start + PIECE && start < address + bytes)
            return true;
    }
    return false;
}

/* Says how many of these are at addresses of the host. */
static void say(const char *what, const uint64_t addresses[COUNT])
{
    int wrong = 0, open = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += is_the_hosts(addresses[i], SIZE);
        for (uint64_t at = addresses[i] / 4096 * 4096; at < addresses[i] + SIZE; at += 4096) {
            void *mapped = map_at(at, 4096);
            if (mapped != NULL) {
                open++;
                munmap(mapped, 4096);
            }
        }
    }
    printf("%s: %d at addresses of the host, %d pages free for it\n", what, wrong, open);
}

int main(void)
{
    open_device();
    uint64_t addresses[COUNT];
    const uint64_t first = device_memory(SIZE);
    printf("what is allocated can%s be mapped by the host\n", map_at(first / 4096 * 4096, 4096) == NULL ? "not" : "");
    /* Behind it, where the server goes on. */
    const uint64_t behind = (first + SIZE + PIECE - 1) / PIECE * PIECE;
    int mapped = 0;
    for (int i = 0; i < HOST_PIECES; i++) {
        pieces[i] = map_at(behind + (uint64_t)i * PIECE, PIECE);
        if (pieces[i] != NULL) {
            memset(pieces[i], 0x40 + i, PIECE);
            mapped++;
        }
    }
    if (mapped < HOST_PIECES - 1)
        printf("only %d pieces could be mapped\n", mapped);

    for (int i = 0; i < COUNT; i++)
        addresses[i] = device_memory(SIZE);
    say("allocations", addresses);
    /* Directions that addresses tell, from what the host has and back into it. */
    int wrong = 0;
    for (int i = 0; i < HOST_PIECES; i++) {
        if (pieces[i] == NULL)
            continue;
        const uint64_t host = (uint64_t)(uintptr_t)pieces[i];
        CALL(cuMemcpy, (uint64_t, uint64_t, size_t), addresses[i % COUNT], host, PIECE);
        memset(pieces[i], 0, PIECE);
        CALL(cuMemcpy, (uint64_t, uint64_t, size_t), host, addresses[i % COUNT], PIECE);
        for (size_t at = 0; at < PIECE; at++)
            wrong += pieces[i][at] != 0x40 + i;
    }
    printf("%d bytes wrong\n", wrong);
    for (int i = 0; i < COUNT; i++)
        CALL(cuMemFree_v2, (uint64_t), addresses[i]);

    for (int i = 0; i < COUNT; i++)
        CALL(cuMemAllocAsync, (uint64_t *, size_t, void *), &addresses[i], SIZE, NULL);
    say("pools", addresses);
    for (int i = 0; i < COUNT; i++)
        CALL(cuMemFreeAsync, (uint64_t, void *), addresses[i], NULL);

    /* With a wish for what the host has, which cannot be granted. */
    const uint64_t wish = (uint64_t)(uintptr_t)pieces[HOST_PIECES / 2];
    for (int i = 0; i < COUNT; i++)
        CALL(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long), &addresses[i], SIZE, 0, wish, 0);
    say("reservations", addresses);
    for (int i = 0; i < COUNT; i++)
        CALL(cuMemAddressFree, (uint64_t, size_t), addresses[i], SIZE);
    void *again = map_at(addresses[0], SIZE);
    printf("what was given back can%s be mapped by the host\n", again == NULL ? "not" : "");
    return 0;
}
