/*
 * SGEMM and DGEMM: C = alpha A B + beta C for square matrices.
 *
 * With several devices each gets a band of the rows of A and C, and all of B.
 */
#include "../common/measure.h"
#include "../common/problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

extern const char sgemm_cl[];

#define GROUP 16
#define SLAB 16
#define ALPHA 1.5
#define BETA -0.5

/* Multiplications that the check may spend on one instance. */
#define CHECK_BUDGET ((size_t)1 << 27)

/* One device's part of one instance. */
struct part {
    struct band rows;
    cl_mem a, b, c;
    cl_kernel kernel;
    struct launch launch;
};

struct instance {
    void *a, *b, *c;
    void *result;
    struct part *parts; /* one per device */
};

struct gemm {
    const struct devices *devices;
    size_t size;
    enum precision precision;
    struct instance *instances;
};

static void *random_matrix(const struct gemm *gemm, uint64_t *random)
{
    const size_t elements = gemm->size * gemm->size;
    void *matrix = host_allocate(elements * real_size(gemm->precision));
    for (size_t i = 0; i < elements; i++)
        real_store(gemm->precision, matrix, i, random_uniform(random, -1, 1));
    return matrix;
}

static void part_create(struct part *part, const struct gemm *gemm, cl_program program, struct band rows,
                        size_t tile)
{
    const cl_uint band_rows = (cl_uint)rows.count, size = (cl_uint)gemm->size;
    const size_t row_bytes = gemm->size * real_size(gemm->precision);
    const struct real_argument alpha = real_argument(gemm->precision, ALPHA);
    const struct real_argument beta = real_argument(gemm->precision, BETA);

    part->rows = rows;
    part->a = buffer_create(gemm->devices, CL_MEM_READ_ONLY, rows.count * row_bytes);
    part->b = buffer_create(gemm->devices, CL_MEM_READ_ONLY, gemm->size * row_bytes);
    part->c = buffer_create(gemm->devices, CL_MEM_READ_WRITE, rows.count * row_bytes);
    part->kernel = kernel_create(program, "gemm");
    SET_ARGUMENT(part->kernel, 0, band_rows);
    SET_ARGUMENT(part->kernel, 1, size);
    SET_ARGUMENT(part->kernel, 2, size);
    CL_CHECK(clSetKernelArg(part->kernel, 3, alpha.bytes, &alpha.value));
    SET_ARGUMENT(part->kernel, 4, part->a);
    SET_ARGUMENT(part->kernel, 5, part->b);
    CL_CHECK(clSetKernelArg(part->kernel, 6, beta.bytes, &beta.value));
    SET_ARGUMENT(part->kernel, 7, part->c);
    part->launch = (struct launch){
        .dimensions = 2,
        .global = {round_up(gemm->size, tile) / tile * GROUP, round_up(rows.count, tile) / tile * GROUP},
        .local = {GROUP, GROUP},
    };
}

static void part_release(struct part *part)
{
    CL_CHECK(clReleaseKernel(part->kernel));
    CL_CHECK(clReleaseMemObject(part->a));
    CL_CHECK(clReleaseMemObject(part->b));
    CL_CHECK(clReleaseMemObject(part->c));
}

static void issue(void *state, struct run *run)
{
    const struct gemm *gemm = state;
    const size_t row_bytes = gemm->size * real_size(gemm->precision);
    for (size_t i = 0; i < gemm->devices->options->instances; i++) {
        const struct instance *instance = &gemm->instances[i];
        for (cl_uint d = 0; d < gemm->devices->count; d++) {
            const struct part *part = &instance->parts[d];
            const size_t offset = part->rows.first * row_bytes, bytes = part->rows.count * row_bytes;
            cl_command_queue queue = run->queues[d];
            CL_CHECK(clEnqueueWriteBuffer(queue, part->a, CL_FALSE, 0, bytes,
                                          (const char *)instance->a + offset, 0, NULL, NULL));
            CL_CHECK(clEnqueueWriteBuffer(queue, part->b, CL_FALSE, 0, gemm->size * row_bytes, instance->b,
                                          0, NULL, NULL));
            CL_CHECK(clEnqueueWriteBuffer(queue, part->c, CL_FALSE, 0, bytes,
                                          (const char *)instance->c + offset, 0, NULL, NULL));
            run_kernel(run, d, part->kernel, &part->launch, NULL);
            CL_CHECK(clEnqueueReadBuffer(queue, part->c, CL_FALSE, 0, bytes,
                                         (char *)instance->result + offset, 0, NULL, NULL));
            CL_CHECK(clFlush(queue));
        }
    }
}

/*
 * Recomputes one row in double precision. An element's error is measured relative to S = the sum of the absolute
 * values of its terms. Rounding errors are independent with mean zero, so for n terms they stay below
 * 4 sqrt(n) u S but with negligible probability (Higham and Mary, 2019), u being the unit roundoff, in whatever
 * order the device sums. The worst-case bound n u S would be as large as one missing term for n of a few
 * thousand in single precision; this one is not. The 8 covers alpha, beta and the final sum.
 */
static void check_row(const struct gemm *gemm, const struct instance *instance, size_t row,
                      double *sums, double *magnitudes, struct verdict *verdict)
{
    const size_t n = gemm->size;
    const enum precision precision = gemm->precision;
    const double tolerance = (8 + 4 * sqrt((double)n)) * unit_roundoff(precision);

    memset(sums, 0, n * sizeof *sums);
    memset(magnitudes, 0, n * sizeof *magnitudes);
    for (size_t k = 0; k < n; k++) {
        const double a = real_load(precision, instance->a, row * n + k);
        for (size_t column = 0; column < n; column++) {
            const double term = a * real_load(precision, instance->b, k * n + column);
            sums[column] += term;
            magnitudes[column] += fabs(term);
        }
    }
    for (size_t column = 0; column < n; column++) {
        const size_t at = row * n + column;
        const double c = real_load(precision, instance->c, at);
        const double expected = ALPHA * sums[column] + BETA * c;
        const double magnitude = fabs(ALPHA) * magnitudes[column] + fabs(BETA * c) + DBL_MIN;
        const double error = fabs(real_load(precision, instance->result, at) - expected) / magnitude;
        verdict->max_error = fmax(verdict->max_error, error);
        /* A NaN from the device makes the comparison false as well. */
        if (!(error <= tolerance))
            verdict->passed = false;
    }
}

/* All rows while that is cheap; else the first and last row of every band and random ones. */
static struct verdict check(const struct gemm *gemm)
{
    const size_t n = gemm->size, budget = CHECK_BUDGET / (n * n);
    double *sums = host_allocate(n * sizeof *sums);
    double *magnitudes = host_allocate(n * sizeof *magnitudes);
    uint64_t random = gemm->devices->options->seed ^ 0x636865636bu;
    struct verdict verdict = {.passed = true};
    for (size_t i = 0; i < gemm->devices->options->instances; i++) {
        const struct instance *instance = &gemm->instances[i];
        if (n <= budget) {
            for (size_t row = 0; row < n; row++)
                check_row(gemm, instance, row, sums, magnitudes, &verdict);
            continue;
        }
        for (cl_uint d = 0; d < gemm->devices->count; d++) {
            const struct band rows = instance->parts[d].rows;
            check_row(gemm, instance, rows.first, sums, magnitudes, &verdict);
            check_row(gemm, instance, rows.first + rows.count - 1, sums, magnitudes, &verdict);
        }
        for (size_t sample = 0; sample < budget; sample++)
            check_row(gemm, instance, random_below(&random, n), sums, magnitudes, &verdict);
    }
    free(sums);
    free(magnitudes);
    return verdict;
}

int main(int argc, char **argv)
{
    struct options options = {DEFAULT_OPTIONS, .workload = "sgemm", .size = 512};
    size_t registers = 0;
    const struct option own[] = {
        {"precision", OPTION_CHOICE, &options.precision, 0, "single|double", "SGEMM or DGEMM (default: single)"},
        {"registers", OPTION_COUNT, &registers, 1, "R",
         "elements per work-item and direction, at most 8 (default: 4; 8 in single precision on GPUs)"},
    };
    options_parse(&options, argc, argv, "Multiplies two square matrices: C = alpha A B + beta C.",
                  "rows and columns of the matrices", (struct option_table){own, 2});
    if (options.size > 1 << 16)
        usage_error(&options, "--size %zu: at most 65536", options.size);
    if (registers > 8)
        usage_error(&options, "--registers %zu: at most 8", registers);

    struct devices devices;
    devices_open(&devices, &options);
    devices_require_precision(&devices);
    devices_require_group_size(&devices, GROUP * GROUP);
    if (options.size < devices.count)
        usage_error(&options, "--size %zu: fewer rows than devices (%u)", options.size, devices.count);
    /* A CPU keeps its sums in 16 or 32 vector registers; a GPU has 255 scalar ones for a work-item. */
    if (registers == 0)
        registers = devices_are_gpus(&devices) && options.precision == PRECISION_SINGLE ? 8 : 4;

    char build_options[128];
    snprintf(build_options, sizeof build_options, "%s -DGROUP=%d -DSLAB=%d -DREGISTERS=%zu",
             precision_macro(options.precision), GROUP, SLAB, registers);
    cl_program program = program_build(&devices, sgemm_cl, build_options);

    struct gemm gemm = {.devices = &devices, .size = options.size, .precision = options.precision};
    const size_t matrix_bytes = options.size * options.size * real_size(options.precision);
    uint64_t random = options.seed;
    gemm.instances = host_allocate(options.instances * sizeof *gemm.instances);
    for (size_t i = 0; i < options.instances; i++) {
        struct instance *instance = &gemm.instances[i];
        instance->a = random_matrix(&gemm, &random);
        instance->b = random_matrix(&gemm, &random);
        instance->c = random_matrix(&gemm, &random);
        instance->result = host_allocate(matrix_bytes);
        instance->parts = host_allocate(devices.count * sizeof *instance->parts);
        for (cl_uint d = 0; d < devices.count; d++)
            part_create(&instance->parts[d], &gemm, program, band_of(options.size, devices.count, d),
                        GROUP * registers);
    }

    const struct measurement measurement = measure(&devices, issue, &gemm);
    struct verdict verdict;
    if (!options.skip_check)
        verdict = check(&gemm);
    const double n = (double)options.size;
    const struct rate rate = {"gflops", "GFLOP/s", 2 * n * n * n * (double)options.instances * 1e-9};
    const int status = report(&devices, &measurement, rate, precision_name(options.precision),
                              options.skip_check ? NULL : &verdict);

    for (size_t i = 0; i < options.instances; i++) {
        struct instance *instance = &gemm.instances[i];
        for (cl_uint d = 0; d < devices.count; d++)
            part_release(&instance->parts[d]);
        free(instance->parts);
        free(instance->a);
        free(instance->b);
        free(instance->c);
        free(instance->result);
    }
    free(gemm.instances);
    CL_CHECK(clReleaseProgram(program));
    devices_close(&devices);
    return status;
}
