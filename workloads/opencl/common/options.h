/*
 * Command line of a workload: the options that every workload has, and tables for its own.
 *
 * Help text and parsing come from the same table, so an option cannot exist without a description.
 */
#ifndef WORKLOADS_OPTIONS_H
#define WORKLOADS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses, the same for all workloads. 77 is what automake and meson take for "skipped". */
enum exit_status {
    EXIT_PASSED = 0,
    EXIT_WRONG_RESULT = 1,
    EXIT_BAD_USAGE = 2,
    EXIT_OPENCL_ERROR = 3,
    EXIT_SKIPPED = 77,
};

enum precision { PRECISION_SINGLE, PRECISION_DOUBLE };

/* Value of options.devices that stands for `--devices all`. */
#define ALL_DEVICES SIZE_MAX
/* Value of options.device when `--device` was not given. */
#define ANY_DEVICE SIZE_MAX

struct options {
    const char *workload;
    size_t size;
    enum precision precision;
    size_t device;
    size_t devices;
    size_t iterations;
    size_t instances;
    size_t seed;
    const char *platform;
    bool measured; /* has the options of a measurement, not only those that choose a device */
    bool skip_check;
    bool json;
    bool list;
};

enum option_kind {
    OPTION_FLAG,         /* target: bool, set to true */
    OPTION_COUNT,        /* target: size_t; K, M and G multiply by powers of 1024 */
    OPTION_COUNT_OR_ALL, /* target: size_t; the word "all" gives ALL_DEVICES */
    OPTION_TEXT,         /* target: const char * */
    OPTION_CHOICE,       /* target: int, index of the word in `value` ("single|double") */
};

struct option {
    const char *name;
    enum option_kind kind;
    void *target;
    size_t minimum;    /* of a count */
    const char *value; /* as the help shows it */
    const char *help;
};

/* A workload's own options, as a table. */
struct option_table {
    const struct option *entries;
    size_t count;
};

/* A workload names its defaults and overrides what differs, for example
 * `struct options options = {DEFAULT_OPTIONS, .workload = "sgemm", .size = 512};`. */
#define DEFAULT_OPTIONS \
    .device = ANY_DEVICE, .devices = 1, .measured = true, .iterations = 5, .instances = 1, .seed = 1

/* Fills `options`, or prints what is wrong and exits with EXIT_BAD_USAGE. `--help` prints and exits with 0.
 * `what` says in one line what the workload does; `size_means` says what --size counts. */
void options_parse(struct options *options, int argc, char **argv, const char *what,
                   const char *size_means, struct option_table own);

/* Prints "workload: message" on stderr and exits with EXIT_BAD_USAGE. */
_Noreturn void usage_error(const struct options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const char *precision_name(enum precision precision);

#endif
