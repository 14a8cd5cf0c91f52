/*
 * What every MPI workload has: command line, clock, division of work, and the report.
 *
 * A workload runs one problem class, checks its own result and reports once, from rank 0. All ranks leave with the same
 * status, so that the launcher gives it to the caller.
 */
#ifndef WORKLOADS_BENCH_H
#define WORKLOADS_BENCH_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The same as those of the OpenCL workloads. */
enum exit_status {
    EXIT_PASSED = 0,
    EXIT_WRONG_RESULT = 1,
    EXIT_BAD_USAGE = 2,
    EXIT_DEVICE_ERROR = 3,
    EXIT_SKIPPED = 77,
};

/* An option of one workload, beside those that all have. */
struct option {
    const char *name;
    const char *value; /* NULL for a flag */
    const char *help;
    bool *flag;    /* set by a flag */
    long *number;  /* set by a whole number of at least `minimum` */
    long minimum;
    const char **text; /* set by anything */
};

struct bench {
    const char *workload;
    const char *classes; /* separated by bars, as in "S|W|A" */
    char class_name[4];
    int class_index; /* within `classes` */
    bool json;
    int rank, ranks;
};

/* Starts MPI and reads the command line. Ends the program on --help and wrong usage. */
void bench_begin(struct bench *bench, int *argc, char ***argv, const char *what, const char *const *own_help,
                 const struct option *options, size_t option_count);

/* Ends the program on all ranks with a message about what was asked for. To be called by all ranks. */
_Noreturn void bench_refuse(const struct bench *bench, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends the whole program from any one rank. */
_Noreturn void bench_abort(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Never NULL, zeroed, aligned to 64 bytes; free() it. */
void *bench_allocate(size_t count, size_t size);

double bench_now(void);

/* What is reported beside the class and the time. */
struct result {
    char size[32];         /* for people, and in the JSON: "14000" or "64x64x64" */
    int iterations;
    double seconds;        /* of this rank; the slowest counts */
    const char *rate_key;  /* "mflops" */
    double work;           /* of all ranks, in millions of what the rate counts */
    bool checked, passed;  /* as rank 0 sees it */
    double max_error;      /* relative; what to, each workload says */
    const char *device;    /* "cpu" when NULL */
    const char *extra;     /* further members of the JSON object with a leading comma, or NULL */
};

/* Reports, ends MPI and answers the exit status. */
int bench_end(const struct bench *bench, const struct result *result);

/* Largest relative error of values against what they should be. NaN counts as infinite. */
double relative_error(const double *values, const double *expected, size_t count);

/* Logarithm to base 2 of a power of two; -1 for other numbers. */
int log2_exact(int number);

/* The numbers of [0, total) that part `part` of `parts` has: as even as can be, the first ones larger. */
struct range {
    int first, count;
};
struct range range_of_part(int total, int parts, int part);

#endif
