#include "measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

/* Room for one more event in the profiled run. */
static cl_event *next_kernel_event(struct run *run)
{
    if (run->kernel_event_count == run->kernel_event_capacity) {
        const size_t capacity = run->kernel_event_capacity == 0 ? 256 : run->kernel_event_capacity * 2;
        cl_event *events = realloc(run->kernel_events, capacity * sizeof *events);
        if (events == NULL) {
            fprintf(stderr, "no host memory for %zu events\n", capacity);
            exit(EXIT_OPENCL_ERROR);
        }
        run->kernel_events = events;
        run->kernel_event_capacity = capacity;
    }
    return &run->kernel_events[run->kernel_event_count++];
}

void run_kernel(struct run *run, cl_uint device, cl_kernel kernel, const struct launch *launch,
                cl_event *event)
{
    const bool profiled = run->kernel_events != NULL;
    cl_event *wanted = profiled ? next_kernel_event(run) : event;
    CL_CHECK(clEnqueueNDRangeKernel(run->queues[device], kernel, launch->dimensions, NULL, launch->global,
                                    launch->local[0] != 0 ? launch->local : NULL, launch->after != NULL,
                                    launch->after, wanted));
    if (profiled && event != NULL) {
        *event = *wanted;
        CL_CHECK(clRetainEvent(*event));
    }
    run->launches++;
}

void run_finish(struct run *run)
{
    /* All devices start before the first wait. */
    for (cl_uint d = 0; d < run->devices->count; d++)
        CL_CHECK(clFlush(run->queues[d]));
    for (cl_uint d = 0; d < run->devices->count; d++)
        CL_CHECK(clFinish(run->queues[d]));
}

static double timed_run(struct run *run, issue_function *issue, void *state)
{
    run->launches = 0;
    const double start = now_ms();
    issue(state, run);
    run_finish(run);
    return now_ms() - start;
}

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Kernel time over device time (wall time x devices) in one run on profiling queues. */
static double profiled_compute_share(const struct devices *devices, issue_function *issue, void *state)
{
    struct run run = {.devices = devices};
    run.queues = host_allocate(devices->count * sizeof *run.queues);
    cl_uint created = 0;
    cl_int status = CL_SUCCESS;
    while (created < devices->count && status == CL_SUCCESS) {
        run.queues[created] = clCreateCommandQueue(devices->context, devices->ids[created],
                                                   CL_QUEUE_PROFILING_ENABLE, &status);
        if (status == CL_SUCCESS)
            created++;
    }
    double share = NAN;
    if (status == CL_SUCCESS) {
        run.kernel_event_capacity = 256;
        run.kernel_events = host_allocate(run.kernel_event_capacity * sizeof *run.kernel_events);
        const double wall_ms = timed_run(&run, issue, state);
        double kernel_ms = 0;
        for (size_t i = 0; i < run.kernel_event_count; i++) {
            cl_ulong start = 0, end = 0;
            CL_CHECK(clGetEventProfilingInfo(run.kernel_events[i], CL_PROFILING_COMMAND_START, sizeof start,
                                             &start, NULL));
            CL_CHECK(clGetEventProfilingInfo(run.kernel_events[i], CL_PROFILING_COMMAND_END, sizeof end,
                                             &end, NULL));
            kernel_ms += (double)(end - start) * 1e-6;
            CL_CHECK(clReleaseEvent(run.kernel_events[i]));
        }
        free(run.kernel_events);
        /* Device and host clocks may differ by a few parts in a thousand. */
        share = fmin(kernel_ms / (wall_ms * devices->count), 1.0);
    } else if (status != CL_INVALID_QUEUE_PROPERTIES) {
        CL_CHECK_STATUS(status, "clCreateCommandQueue");
    }
    while (created > 0)
        CL_CHECK(clReleaseCommandQueue(run.queues[--created]));
    free(run.queues);
    return share;
}

struct measurement measure(const struct devices *devices, issue_function *issue, void *state)
{
    const size_t iterations = devices->options->iterations;
    struct run run = {.devices = devices, .queues = devices->queues};
    double *times = host_allocate(iterations * sizeof *times);

    timed_run(&run, issue, state);
    const double compute_share = profiled_compute_share(devices, issue, state);
    /* Last, so that a check afterwards looks at what a measured run left behind. */
    for (size_t i = 0; i < iterations; i++)
        times[i] = timed_run(&run, issue, state);

    qsort(times, iterations, sizeof *times, compare_doubles);
    const size_t middle = iterations / 2;
    struct measurement measurement = {
        .median_ms = iterations % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2,
        .minimum_ms = times[0],
        .maximum_ms = times[iterations - 1],
        .compute_share = compute_share,
        .launches = run.launches,
    };
    free(times);
    return measurement;
}

static void print_json_text(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        const unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            printf("\\%c", byte);
        else if (byte < 0x20)
            printf("\\u%04x", byte);
        else
            putchar(byte);
    }
    putchar('"');
}

static void print_json_number(double number)
{
    if (isfinite(number))
        printf("%.6g", number);
    else
        printf("null");
}

int report(const struct devices *devices, const struct measurement *measurement, struct rate rate,
           const char *precision, const struct verdict *verdict)
{
    const struct options *options = devices->options;
    const char *check = verdict == NULL ? "skipped" : verdict->passed ? "pass" : "fail";
    const double achieved = rate.work_per_run / (measurement->median_ms * 1e-3);

    if (!options->json) {
        printf("%s %zu%s%s on %u x %s (%s): %.3f ms (%.3f to %.3f), %.4g %s, %zu launches, check %s\n",
               options->workload, options->size, precision ? " " : "", precision ? precision : "",
               devices->count, devices->name, devices->platform_name, measurement->median_ms,
               measurement->minimum_ms, measurement->maximum_ms, achieved, rate.unit, measurement->launches,
               check);
    }
    printf("{\"workload\":\"%s\",\"size\":%zu,\"precision\":", options->workload, options->size);
    if (precision != NULL)
        print_json_text(precision);
    else
        printf("null");
    printf(",\"devices\":%u,\"device_name\":", devices->count);
    print_json_text(devices->name);
    printf(",\"platform\":");
    print_json_text(devices->platform_name);
    printf(",\"iterations\":%zu,\"instances\":%zu,\"total_ms\":{\"median\":%.6g,\"min\":%.6g,\"max\":%.6g}",
           options->iterations, options->instances, measurement->median_ms, measurement->minimum_ms,
           measurement->maximum_ms);
    printf(",\"compute_share\":");
    print_json_number(measurement->compute_share);
    printf(",\"%s\":", rate.key);
    print_json_number(achieved);
    printf(",\"launches\":%zu,\"check\":\"%s\",\"max_error\":", measurement->launches, check);
    print_json_number(verdict != NULL ? verdict->max_error : NAN);
    printf("}\n");
    return verdict != NULL && !verdict->passed ? EXIT_WRONG_RESULT : EXIT_PASSED;
}
