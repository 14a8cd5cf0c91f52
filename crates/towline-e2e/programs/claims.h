/*
 * What a program over a connection that breaks claims: a call that succeeds has its bytes in place, and after a call that failed no wait
 * succeeds. The program says "wrong" and ends with 1 where that does not hold; otherwise "failed" with the first failure, or "right".
 */
#ifndef CLAIMS_H
#define CLAIMS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int has_failed;

static inline void wrong(const char *call, const char *what)
{
    printf("wrong: %s %s\n", call, what);
    exit(1);
}

/* A call that promises nothing about data yet; whether it succeeded. */
static inline int posted(const char *call, int status)
{
    if (status != 0 && !has_failed)
        printf("failed: %s %d\n", call, status);
    has_failed |= status != 0;
    return status == 0;
}

/* A call that, where it succeeds, has the right bytes in memory. */
static inline int claimed(const char *call, int status, const void *memory, const void *right, size_t size)
{
    if (!posted(call, status))
        return 0;
    if (has_failed)
        wrong(call, "succeeds after a failure");
    if (memcmp(memory, right, size) != 0)
        wrong(call, "succeeds without its bytes");
    return 1;
}

static inline unsigned char *make_bytes(size_t size, unsigned seed)
{
    unsigned char *bytes = malloc(size);
    if (bytes == NULL)
        exit(4);
    for (size_t at = 0; at < size; at++)
        bytes[at] = (unsigned char)((at * 2654435761u + seed * 40503u) >> 13);
    return bytes;
}

static inline int end_of_claims(void)
{
    if (!has_failed)
        puts("right");
    return 0;
}

#endif
