/*
 * Matrix transpose of a square matrix.
 *
 * With several devices each transposes a band of rows, which is a band of columns of the result.
 */
#include "../common/measure.h"
#include "../common/problem.h"

#include <math.h>
#include <stdio.h>

extern const char transpose_cl[];

#define TILE 32
#define GROUP_ROWS 8

/* One device's part of one instance. */
struct part {
    struct band rows;
    cl_mem input, output;
    cl_kernel kernel;
    struct launch launch;
};

struct instance {
    void *input, *output;
    struct part *parts; /* one per device */
};

struct transpose {
    const struct devices *devices;
    size_t size;
    enum precision precision;
    struct instance *instances;
};

static void part_create(struct part *part, const struct transpose *transpose, cl_program program,
                        struct band rows)
{
    const cl_uint band_rows = (cl_uint)rows.count, columns = (cl_uint)transpose->size;
    const size_t bytes = rows.count * transpose->size * real_size(transpose->precision);
    part->rows = rows;
    part->input = buffer_create(transpose->devices, CL_MEM_READ_ONLY, bytes);
    part->output = buffer_create(transpose->devices, CL_MEM_WRITE_ONLY, bytes);
    part->kernel = kernel_create(program, "transpose");
    SET_ARGUMENT(part->kernel, 0, part->input);
    SET_ARGUMENT(part->kernel, 1, part->output);
    SET_ARGUMENT(part->kernel, 2, band_rows);
    SET_ARGUMENT(part->kernel, 3, columns);
    part->launch = (struct launch){
        .dimensions = 2,
        .global = {round_up(transpose->size, TILE), round_up(rows.count, TILE) / TILE * GROUP_ROWS},
        .local = {TILE, GROUP_ROWS},
    };
}

static void part_release(struct part *part)
{
    CL_CHECK(clReleaseKernel(part->kernel));
    CL_CHECK(clReleaseMemObject(part->input));
    CL_CHECK(clReleaseMemObject(part->output));
}

/* The device's output is the band's columns of the result, so with several devices its rows go to places that
 * are one whole row of the result apart. */
static void read_result(const struct transpose *transpose, const struct instance *instance,
                        const struct part *part, cl_command_queue queue)
{
    const size_t element = real_size(transpose->precision), size = transpose->size;
    if (part->rows.count == size) {
        CL_CHECK(clEnqueueReadBuffer(queue, part->output, CL_FALSE, 0, size * size * element,
                                     instance->output, 0, NULL, NULL));
        return;
    }
    const size_t buffer_origin[3] = {0, 0, 0};
    const size_t host_origin[3] = {part->rows.first * element, 0, 0};
    const size_t region[3] = {part->rows.count * element, size, 1};
    CL_CHECK(clEnqueueReadBufferRect(queue, part->output, CL_FALSE, buffer_origin, host_origin, region,
                                     part->rows.count * element, 0, size * element, 0, instance->output, 0,
                                     NULL, NULL));
}

static void issue(void *state, struct run *run)
{
    const struct transpose *transpose = state;
    const size_t row_bytes = transpose->size * real_size(transpose->precision);
    for (size_t i = 0; i < transpose->devices->options->instances; i++) {
        const struct instance *instance = &transpose->instances[i];
        for (cl_uint d = 0; d < transpose->devices->count; d++) {
            const struct part *part = &instance->parts[d];
            CL_CHECK(clEnqueueWriteBuffer(run->queues[d], part->input, CL_FALSE, 0,
                                          part->rows.count * row_bytes,
                                          (const char *)instance->input + part->rows.first * row_bytes, 0,
                                          NULL, NULL));
            run_kernel(run, d, part->kernel, &part->launch, NULL);
            read_result(transpose, instance, part, run->queues[d]);
            CL_CHECK(clFlush(run->queues[d]));
        }
    }
}

/* Nothing is computed, so every element must arrive unchanged: the tolerance is zero. */
static struct verdict check(const struct transpose *transpose)
{
    const size_t n = transpose->size;
    struct verdict verdict = {.passed = true};
    for (size_t i = 0; i < transpose->devices->options->instances; i++) {
        const struct instance *instance = &transpose->instances[i];
        for (size_t row = 0; row < n; row++) {
            for (size_t column = 0; column < n; column++) {
                const double expected = real_load(transpose->precision, instance->input, row * n + column);
                const double found = real_load(transpose->precision, instance->output, column * n + row);
                if (found == expected)
                    continue;
                verdict.passed = false;
                verdict.max_error = fmax(verdict.max_error, fabs(found - expected));
            }
        }
    }
    return verdict;
}

int main(int argc, char **argv)
{
    struct options options = {DEFAULT_OPTIONS, .workload = "transpose", .size = 2048};
    const struct option own[] = {
        {"precision", OPTION_CHOICE, &options.precision, 0, "single|double", "of the elements (default: single)"},
    };
    options_parse(&options, argc, argv, "Transposes a square matrix.", "rows and columns of the matrix",
                  (struct option_table){own, 1});
    if (options.size > 1 << 17)
        usage_error(&options, "--size %zu: at most 131072", options.size);

    struct devices devices;
    devices_open(&devices, &options);
    devices_require_precision(&devices);
    devices_require_group_size(&devices, TILE * GROUP_ROWS);
    if (options.size < devices.count)
        usage_error(&options, "--size %zu: fewer rows than devices (%u)", options.size, devices.count);

    char build_options[96];
    snprintf(build_options, sizeof build_options, "%s -DTILE=%d -DGROUP_ROWS=%d",
             precision_macro(options.precision), TILE, GROUP_ROWS);
    cl_program program = program_build(&devices, transpose_cl, build_options);

    struct transpose transpose = {.devices = &devices, .size = options.size, .precision = options.precision};
    const size_t elements = options.size * options.size, element = real_size(options.precision);
    uint64_t random = options.seed;
    transpose.instances = host_allocate(options.instances * sizeof *transpose.instances);
    for (size_t i = 0; i < options.instances; i++) {
        struct instance *instance = &transpose.instances[i];
        instance->input = host_allocate(elements * element);
        instance->output = host_allocate(elements * element);
        for (size_t at = 0; at < elements; at++) {
            real_store(options.precision, instance->input, at, random_uniform(&random, -1, 1));
            real_store(options.precision, instance->output, at, NAN);
        }
        instance->parts = host_allocate(devices.count * sizeof *instance->parts);
        for (cl_uint d = 0; d < devices.count; d++)
            part_create(&instance->parts[d], &transpose, program, band_of(options.size, devices.count, d));
    }

    const struct measurement measurement = measure(&devices, issue, &transpose);
    struct verdict verdict;
    if (!options.skip_check)
        verdict = check(&transpose);
    /* Each element is read once and written once. */
    const struct rate rate = {"gbytes_per_s", "GB/s",
                              2.0 * (double)(elements * element * options.instances) * 1e-9};
    const int status = report(&devices, &measurement, rate, precision_name(options.precision),
                              options.skip_check ? NULL : &verdict);

    for (size_t i = 0; i < options.instances; i++) {
        struct instance *instance = &transpose.instances[i];
        for (cl_uint d = 0; d < devices.count; d++)
            part_release(&instance->parts[d]);
        free(instance->parts);
        free(instance->input);
        free(instance->output);
    }
    free(transpose.instances);
    CL_CHECK(clReleaseProgram(program));
    devices_close(&devices);
    return status;
}
