/*
 * How a workload is measured and reported.
 *
 * A measured run issues every transfer, argument and launch without blocking and then finishes all queues: the
 * method of section 5.2 of the VOCL paper (Xiao et al., 2012). Building programs and creating objects is not
 * measured. Two unmeasured runs go ahead: one to warm up, and one on profiling queues of its own, from which the
 * kernel times come, so that profiling does not disturb what is measured.
 */
#ifndef WORKLOADS_MEASURE_H
#define WORKLOADS_MEASURE_H

#include "devices.h"

#include <stdint.h>

/* One run in progress. */
struct run {
    const struct devices *devices;
    cl_command_queue *queues; /* one per device */
    size_t launches;
    cl_event *kernel_events; /* NULL unless this is the profiled run */
    size_t kernel_event_count;
    size_t kernel_event_capacity;
};

/* Issues everything that one run does, for all instances, and waits for nothing. */
typedef void issue_function(void *state, struct run *run);

struct launch {
    cl_uint dimensions;
    size_t global[2];
    size_t local[2];       /* zero: the implementation chooses */
    const cl_event *after; /* waits for this event, if not NULL */
};

/* Enqueues a kernel on the queue of `device` and counts it. `event`, if not NULL, receives its event. */
void run_kernel(struct run *run, cl_uint device, cl_kernel kernel, const struct launch *launch,
                cl_event *event);

/* Waits until everything that was issued is done. */
void run_finish(struct run *run);

struct measurement {
    double median_ms, minimum_ms, maximum_ms;
    double compute_share; /* NAN when a device has no profiling */
    size_t launches;      /* of one run */
};

struct measurement measure(const struct devices *devices, issue_function *issue, void *state);

/* What a check found. */
struct verdict {
    bool passed;
    double max_error; /* relative; what it is relative to, each workload says */
};

/* A rate that a workload reports, computed from the median. */
struct rate {
    const char *key;     /* in the JSON: "gflops" */
    const char *unit;    /* for people: "GFLOP/s" */
    double work_per_run; /* in units of 1e9 */
};

/* Prints the result and returns the exit status. `verdict` is NULL when the check was skipped, `precision` NULL
 * when the workload has none. */
int report(const struct devices *devices, const struct measurement *measurement, struct rate rate,
           const char *precision, const struct verdict *verdict);

double now_ms(void);

#endif
