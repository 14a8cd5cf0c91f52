/*
 * What the problems share: arrays of either precision, reproducible random input, and bands of work.
 */
#ifndef WORKLOADS_PROBLEM_H
#define WORKLOADS_PROBLEM_H

#include "options.h"

#include <float.h>
#include <stdlib.h>

/* Build options that select the precision in the kernel source. */
static inline const char *precision_macro(enum precision precision)
{
    return precision == PRECISION_DOUBLE ? "-DDOUBLE_PRECISION" : "";
}

static inline size_t real_size(enum precision precision)
{
    return precision == PRECISION_DOUBLE ? sizeof(double) : sizeof(float);
}

/* Unit roundoff: the largest relative error of one correctly rounded operation. */
static inline double unit_roundoff(enum precision precision)
{
    return (precision == PRECISION_DOUBLE ? DBL_EPSILON : (double)FLT_EPSILON) / 2;
}

static inline double real_load(enum precision precision, const void *array, size_t index)
{
    return precision == PRECISION_DOUBLE ? ((const double *)array)[index]
                                         : (double)((const float *)array)[index];
}

static inline void real_store(enum precision precision, void *array, size_t index, double value)
{
    if (precision == PRECISION_DOUBLE)
        ((double *)array)[index] = value;
    else
        ((float *)array)[index] = (float)value;
}

/* A number as a kernel argument of type `real`: pass `bytes` of `value`. */
struct real_argument {
    size_t bytes;
    union {
        float single_value;
        double double_value;
    } value;
};

static inline struct real_argument real_argument(enum precision precision, double value)
{
    struct real_argument argument = {.bytes = real_size(precision)};
    real_store(precision, &argument.value, 0, value);
    return argument;
}

/* SplitMix64 (Steele, Lea and Flood, 2014): tiny, and good enough for input data. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [low, high). */
static inline double random_uniform(uint64_t *state, double low, double high)
{
    return low + (high - low) * (double)(random_next(state) >> 11) * 0x1p-53;
}

/* Uniform in 0 .. bound - 1; the bias of the remainder does not matter for bounds far below 2^64. */
static inline size_t random_below(uint64_t *state, size_t bound)
{
    return (size_t)(random_next(state) % bound);
}

/* The part of 0 .. total - 1 that device `index` of `count` works on; sizes differ by at most one. */
struct band {
    size_t first, count;
};

static inline struct band band_of(size_t total, size_t count, size_t index)
{
    const size_t share = total / count, rest = total % count;
    return (struct band){
        .first = index * share + (index < rest ? index : rest),
        .count = share + (index < rest ? 1 : 0),
    };
}

static inline size_t round_up(size_t number, size_t multiple)
{
    return (number + multiple - 1) / multiple * multiple;
}

#endif
