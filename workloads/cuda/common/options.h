// Command line of a workload: the options that every workload has, and a table for its own. Help text and parsing come
// from the same table, so an option cannot exist without a description. Needs no CUDA.
#ifndef WORKLOADS_CUDA_OPTIONS_H
#define WORKLOADS_CUDA_OPTIONS_H

#include <cstddef>
#include <cstdint>
#include <vector>

// Exit statuses, the same for all workloads. 77 is what automake and meson take for "skipped".
enum exit_status { exit_passed = 0, exit_wrong_result = 1, exit_bad_usage = 2, exit_cuda_error = 3, exit_skipped = 77 };

enum precision { precision_single, precision_double };

// Value of options.devices that stands for `--devices all`, and of options.device when `--device` was not given.
constexpr size_t all_devices = SIZE_MAX, any_device = SIZE_MAX;

struct options {
    const char *workload;
    size_t size;
    int precision = precision_single;
    size_t device = any_device;
    size_t devices = 1;
    size_t iterations = 5;
    size_t instances = 1;
    size_t seed = 1;
    int host_memory = 0; // an index into "pinned|pageable"
    bool skip_check = false;
    bool json = false;
    bool list = false;
};

enum class option_kind {
    flag,         // target: bool, set to true
    count,        // target: size_t; K, M and G multiply by powers of 1024
    count_or_all, // target: size_t; the word "all" gives all_devices
    choice,       // target: int, index of the word in `value` ("single|double")
};

struct option {
    const char *name;
    option_kind kind;
    void *target;
    size_t minimum;    // of a count
    const char *value; // as the help shows it
    const char *help;
};

// Fills `options`, or prints what is wrong and exits with exit_bad_usage. `--help` prints and exits with 0.
// `what` says in one line what the workload does; `size_means` says what --size counts.
void options_parse(options &options, int argc, char **argv, const char *what, const char *size_means,
                   const std::vector<option> &own);

// Prints "workload: message" on stderr and exits with exit_bad_usage.
[[noreturn]] void usage_error(const options &options, const char *format, ...) __attribute__((format(printf, 2, 3)));

inline const char *precision_name(const options &options) {
    return options.precision == precision_double ? "double" : "single";
}

#endif
