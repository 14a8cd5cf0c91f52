// Runs, their times, and the line of JSON that every workload ends with.
#ifndef WORKLOADS_CUDA_MEASURE_H
#define WORKLOADS_CUDA_MEASURE_H

#include "devices.h"
#include "problem.h"

#include <functional>

// One run in progress.
class run {
public:
    explicit run(const devices &devices, bool profiled = false) : devices_(devices), profiled_(profiled) {}

    // Makes `device` current, lets `start(stream)` launch one kernel there, and counts it.
    template <typename function> void kernel(size_t device, function start) { kernel_on(device, stream(device), start); }
    // The same on another stream of that device, which the device's own must wait for in the end.
    template <typename function> void kernel_on(size_t device, cudaStream_t stream, function start) {
        devices_.use(device);
        if (profiled_) mark(device, stream);
        start(stream);
        CUDA_CHECK(cudaGetLastError());
        if (profiled_) mark(device, stream);
        launches_++;
    }
    cudaStream_t stream(size_t device) const { return devices_.streams[device]; }
    // Waits until everything that was issued is done.
    void finish() const;
    // Sum of the kernels' times in a profiled run; ends the events.
    double kernel_ms();
    size_t launches() const { return launches_; }

private:
    void mark(size_t device, cudaStream_t stream);

    const devices &devices_;
    bool profiled_;
    size_t launches_ = 0;
    std::vector<std::pair<size_t, cudaEvent_t>> events_; // with their devices; begin and end in turns
};

struct measurement {
    double median_ms, minimum_ms, maximum_ms;
    double compute_share; // NAN when it was not measured
    size_t launches;      // of one run
};

// `issue` does everything of one run, for all instances; it may wait where the program must, and the end is waited for
// here. A warm-up and, unless `profile` is false, a run with events around every kernel go ahead.
measurement measure(const devices &devices, const std::function<void(run &)> &issue, bool profile = true);

// A rate that a workload reports, computed from the median.
struct rate {
    const char *key;     // in the JSON: "gflops"
    const char *unit;    // for people: "GFLOP/s"
    double work_per_run; // in units of 1e9
};

// Prints the result and returns the exit status. `verdict` is null when the check was skipped, `precision` null when the
// workload has none. `digest` is a hash of the results: equal on equal devices.
int report(const devices &devices, const measurement &measurement, rate rate, const char *precision,
           const verdict *verdict, uint64_t digest);

// FNV-1a over results, to compare runs to the bit.
uint64_t hash_bytes(const void *data, size_t bytes, uint64_t hash = 0xcbf29ce484222325u);

#endif
