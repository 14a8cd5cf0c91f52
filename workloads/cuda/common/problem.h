// What the problems share: reproducible random input, rounding, and bands of work. Needs no CUDA.
#ifndef WORKLOADS_CUDA_PROBLEM_H
#define WORKLOADS_CUDA_PROBLEM_H

#include <cstddef>
#include <cstdint>
#include <limits>

// Functions that a kernel and the host's check share.
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__ inline
#else
#define HOST_DEVICE inline
#endif

// Unit roundoff: the largest relative error of one correctly rounded operation.
template <typename real> constexpr double unit_roundoff() { return std::numeric_limits<real>::epsilon() / 2.0; }

// SplitMix64 (Steele, Lea and Flood, 2014): tiny, and good enough for input data.
struct random_source {
    uint64_t state;

    uint64_t next() {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    // In [low, high).
    double uniform(double low, double high) { return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53; }
    // In 0 .. bound - 1; the bias of the remainder does not matter for bounds far below 2^64.
    size_t below(size_t bound) { return static_cast<size_t>(next() % bound); }
};

// The part of 0 .. total - 1 that device `index` of `count` works on; sizes differ by at most one.
struct band {
    size_t first, count;
};

inline band band_of(size_t total, size_t count, size_t index) {
    const size_t share = total / count, rest = total % count;
    return {index * share + (index < rest ? index : rest), share + (index < rest ? 1 : 0)};
}

constexpr size_t divide_up(size_t number, size_t divisor) { return (number + divisor - 1) / divisor; }

// What a check found.
struct verdict {
    bool passed = true;
    double max_error = 0; // relative; what it is relative to, each workload says

    // A NaN from the device is beyond every tolerance.
    void hold(double error, double tolerance) {
        if (!(error <= tolerance)) passed = false;
        if (error > max_error || error != error) max_error = error;
    }
};

#endif
