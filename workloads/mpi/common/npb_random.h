/*
 * The pseudo-random numbers of the NAS Parallel Benchmarks: x(k+1) = a x(k) mod 2^46, with a = 5^13, and the real
 * number 2^-46 x(k+1) as the result (NAS report RNR-91-002, section 2.3).
 */
#ifndef WORKLOADS_NPB_RANDOM_H
#define WORKLOADS_NPB_RANDOM_H

#include <stdint.h>

#define NPB_MULTIPLIER UINT64_C(1220703125) /* 5^13 */
#define NPB_SEED UINT64_C(314159265)
#define NPB_MASK ((UINT64_C(1) << 46) - 1)

/* Only the lower 46 bits of the product count, so that 64-bit multiplication is exact enough. */
static inline double npb_random(uint64_t *state)
{
    *state = *state * NPB_MULTIPLIER & NPB_MASK;
    return (double)*state * 0x1p-46;
}

/* The state `steps` numbers further, in logarithmic time. */
static inline uint64_t npb_random_skip(uint64_t state, uint64_t steps)
{
    uint64_t factor = NPB_MULTIPLIER;
    for (; steps != 0; steps >>= 1) {
        if (steps & 1)
            state = state * factor & NPB_MASK;
        factor = factor * factor & NPB_MASK;
    }
    return state;
}

#endif
