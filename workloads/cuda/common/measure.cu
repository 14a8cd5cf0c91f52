#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>

void run::mark(size_t device, cudaStream_t stream) {
    cudaEvent_t event;
    CUDA_CHECK(cudaEventCreate(&event));
    CUDA_CHECK(cudaEventRecord(event, stream));
    events_.emplace_back(device, event);
}

void run::finish() const {
    for (size_t device = 0; device < devices_.count(); device++) {
        devices_.use(device);
        CUDA_CHECK(cudaStreamSynchronize(devices_.streams[device]));
    }
}

double run::kernel_ms() {
    double total = 0;
    for (size_t at = 0; at + 1 < events_.size(); at += 2) {
        float ms = 0;
        devices_.use(events_[at].first);
        CUDA_CHECK(cudaEventElapsedTime(&ms, events_[at].second, events_[at + 1].second));
        CUDA_CHECK(cudaEventDestroy(events_[at].second));
        CUDA_CHECK(cudaEventDestroy(events_[at + 1].second));
        total += ms;
    }
    events_.clear();
    return total;
}

static double timed(run &run, const std::function<void(::run &)> &issue) {
    const auto start = std::chrono::steady_clock::now();
    issue(run);
    run.finish();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

measurement measure(const devices &devices, const std::function<void(run &)> &issue, bool profile) {
    run warm_up(devices);
    timed(warm_up, issue);
    double share = NAN;
    if (profile) {
        run profiled(devices, true);
        const double wall_ms = timed(profiled, issue);
        share = std::min(profiled.kernel_ms() / (wall_ms * static_cast<double>(devices.count())), 1.0);
    }
    std::vector<double> times;
    size_t launches = 0;
    // Last, so that a check afterwards looks at what a measured run left behind.
    for (size_t i = 0; i < devices.options->iterations; i++) {
        run measured(devices);
        times.push_back(timed(measured, issue));
        launches = measured.launches();
    }
    std::sort(times.begin(), times.end());
    const size_t middle = times.size() / 2;
    const double median = times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
    return {median, times.front(), times.back(), share, launches};
}

static void print_json_text(const char *text) {
    std::putchar('"');
    for (; *text != '\0'; text++) {
        const unsigned char byte = static_cast<unsigned char>(*text);
        if (byte == '"' || byte == '\\')
            std::printf("\\%c", byte);
        else if (byte < 0x20)
            std::printf("\\u%04x", byte);
        else
            std::putchar(byte);
    }
    std::putchar('"');
}

static void print_json_number(double number) {
    if (std::isfinite(number))
        std::printf("%.6g", number);
    else
        std::printf("null");
}

int report(const devices &devices, const measurement &measurement, rate rate, const char *precision,
           const verdict *verdict, uint64_t digest) {
    const options &options = *devices.options;
    const char *check = verdict == nullptr ? "skipped" : verdict->passed ? "pass" : "fail";
    const double achieved = rate.work_per_run / (measurement.median_ms * 1e-3);

    if (!options.json)
        std::printf("%s %zu%s%s on %zu x %s: %.3f ms (%.3f to %.3f), %.4g %s, %zu launches, check %s\n", options.workload,
                    options.size, precision ? " " : "", precision ? precision : "", devices.count(), devices.name.c_str(),
                    measurement.median_ms, measurement.minimum_ms, measurement.maximum_ms, achieved, rate.unit,
                    measurement.launches, check);
    std::printf("{\"workload\":\"%s\",\"size\":%zu,\"precision\":", options.workload, options.size);
    if (precision != nullptr)
        print_json_text(precision);
    else
        std::printf("null");
    std::printf(",\"devices\":%zu,\"device_name\":", devices.count());
    print_json_text(devices.name.c_str());
    std::printf(",\"platform\":\"CUDA\",\"host_memory\":\"%s\"", options.host_memory == 0 ? "pinned" : "pageable");
    std::printf(",\"iterations\":%zu,\"instances\":%zu,\"total_ms\":{\"median\":%.6g,\"min\":%.6g,\"max\":%.6g}",
                options.iterations, options.instances, measurement.median_ms, measurement.minimum_ms,
                measurement.maximum_ms);
    std::printf(",\"compute_share\":");
    print_json_number(measurement.compute_share);
    std::printf(",\"%s\":", rate.key);
    print_json_number(achieved);
    std::printf(",\"launches\":%zu,\"check\":\"%s\",\"max_error\":", measurement.launches, check);
    print_json_number(verdict != nullptr ? verdict->max_error : NAN);
    std::printf(",\"digest\":\"%016" PRIx64 "\"}\n", digest);
    return verdict != nullptr && !verdict->passed ? exit_wrong_result : exit_passed;
}

uint64_t hash_bytes(const void *data, size_t bytes, uint64_t hash) {
    const unsigned char *at = static_cast<const unsigned char *>(data);
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}
