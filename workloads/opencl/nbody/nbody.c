/*
 * N-body: softened gravity between all pairs, integrated with the semi-implicit Euler method.
 *
 * With several devices each moves a band of the bodies. After every step the new positions go from the device
 * that computed them to all others: buffer copies ordered by events across the queues.
 */
#include "../common/measure.h"
#include "../common/problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

extern const char nbody_cl[];

#define TILE 256
#define TIME_STEP 0.01
#define SOFTENING_SQUARED 0.0025

/* By convention an interaction counts as 20 operations (GPU Gems 3). */
#define OPERATIONS_PER_INTERACTION 20.0

/* Interactions that the check may spend on one instance. */
#define CHECK_BUDGET ((size_t)1 << 25)

/* One device's part of one instance. */
struct part {
    struct band bodies;
    cl_mem positions[2]; /* of all bodies; a step reads one and writes the other */
    cl_mem velocities;   /* of the band */
    cl_kernel kernels[2]; /* kernel i reads positions[i] */
    struct launch launch;
};

struct instance {
    void *positions, *velocities;             /* input */
    void *final_positions, *final_velocities; /* output */
    struct part *parts;                       /* one per device */
};

struct system {
    const struct devices *devices;
    size_t size, steps;
    enum precision precision;
    size_t body_bytes;
    struct instance *instances;
    cl_event *moved; /* scratch: one per device */
};

static void part_create(struct part *part, const struct system *system, cl_program program, struct band band)
{
    const cl_uint bodies = (cl_uint)system->size, first = (cl_uint)band.first, count = (cl_uint)band.count;
    const struct real_argument time_step = real_argument(system->precision, TIME_STEP);
    const struct real_argument softening = real_argument(system->precision, SOFTENING_SQUARED);

    part->bodies = band;
    for (int i = 0; i < 2; i++)
        part->positions[i] =
            buffer_create(system->devices, CL_MEM_READ_WRITE, system->size * system->body_bytes);
    part->velocities = buffer_create(system->devices, CL_MEM_READ_WRITE, band.count * system->body_bytes);
    for (int i = 0; i < 2; i++) {
        cl_kernel kernel = kernel_create(program, "step_bodies");
        SET_ARGUMENT(kernel, 0, part->positions[i]);
        SET_ARGUMENT(kernel, 1, part->positions[1 - i]);
        SET_ARGUMENT(kernel, 2, part->velocities);
        SET_ARGUMENT(kernel, 3, bodies);
        SET_ARGUMENT(kernel, 4, first);
        SET_ARGUMENT(kernel, 5, count);
        CL_CHECK(clSetKernelArg(kernel, 6, time_step.bytes, &time_step.value));
        CL_CHECK(clSetKernelArg(kernel, 7, softening.bytes, &softening.value));
        part->kernels[i] = kernel;
    }
    part->launch =
        (struct launch){.dimensions = 1, .global = {round_up(band.count, TILE)}, .local = {TILE}};
}

static void part_release(struct part *part)
{
    for (int i = 0; i < 2; i++) {
        CL_CHECK(clReleaseKernel(part->kernels[i]));
        CL_CHECK(clReleaseMemObject(part->positions[i]));
    }
    CL_CHECK(clReleaseMemObject(part->velocities));
}

static void enqueue_input(const struct system *system, const struct instance *instance, struct run *run)
{
    for (cl_uint d = 0; d < system->devices->count; d++) {
        const struct part *part = &instance->parts[d];
        CL_CHECK(clEnqueueWriteBuffer(run->queues[d], part->positions[0], CL_FALSE, 0,
                                      system->size * system->body_bytes, instance->positions, 0, NULL, NULL));
        CL_CHECK(clEnqueueWriteBuffer(
            run->queues[d], part->velocities, CL_FALSE, 0, part->bodies.count * system->body_bytes,
            (const char *)instance->velocities + part->bodies.first * system->body_bytes, 0, NULL, NULL));
    }
}

/*
 * Copies the positions that each device has computed to every other device.
 *
 * The next step that overwrites what is copied here is two steps away. It cannot overtake: the step between waits
 * on its own device for these copies, and is waited for by all others.
 */
static void exchange(const struct system *system, const struct instance *instance, struct run *run, int target)
{
    const cl_uint count = system->devices->count;
    /* A queue may wait for an event of another queue only once that one is flushed. */
    for (cl_uint d = 0; d < count; d++)
        CL_CHECK(clFlush(run->queues[d]));
    for (cl_uint to = 0; to < count; to++) {
        for (cl_uint from = 0; from < count; from++) {
            if (from == to)
                continue;
            const struct part *source = &instance->parts[from];
            const size_t offset = source->bodies.first * system->body_bytes;
            CL_CHECK(clEnqueueCopyBuffer(run->queues[to], source->positions[target],
                                         instance->parts[to].positions[target], offset, offset,
                                         source->bodies.count * system->body_bytes, 1, &system->moved[from],
                                         NULL));
        }
    }
}

/* Step number `step`, counted from 0. */
static void enqueue_step(const struct system *system, const struct instance *instance, struct run *run,
                         size_t step)
{
    const int source = (int)(step % 2);
    const cl_uint count = system->devices->count;
    for (cl_uint d = 0; d < count; d++)
        run_kernel(run, d, instance->parts[d].kernels[source], &instance->parts[d].launch,
                   count > 1 ? &system->moved[d] : NULL);
    if (count == 1)
        return;
    if (step + 1 < system->steps)
        exchange(system, instance, run, 1 - source);
    for (cl_uint d = 0; d < count; d++)
        CL_CHECK(clReleaseEvent(system->moved[d]));
}

/* Reads the state after `steps` steps: every device has the bodies of its band. */
static void enqueue_output(const struct system *system, const struct instance *instance, struct run *run,
                           size_t steps, void *positions, void *velocities)
{
    for (cl_uint d = 0; d < system->devices->count; d++) {
        const struct part *part = &instance->parts[d];
        const size_t offset = part->bodies.first * system->body_bytes;
        const size_t bytes = part->bodies.count * system->body_bytes;
        CL_CHECK(clEnqueueReadBuffer(run->queues[d], part->positions[steps % 2], CL_FALSE, offset, bytes,
                                     (char *)positions + offset, 0, NULL, NULL));
        CL_CHECK(clEnqueueReadBuffer(run->queues[d], part->velocities, CL_FALSE, 0, bytes,
                                     (char *)velocities + offset, 0, NULL, NULL));
        CL_CHECK(clFlush(run->queues[d]));
    }
}

static void issue(void *state, struct run *run)
{
    const struct system *system = state;
    for (size_t i = 0; i < system->devices->options->instances; i++) {
        const struct instance *instance = &system->instances[i];
        enqueue_input(system, instance, run);
        for (size_t step = 0; step < system->steps; step++)
            enqueue_step(system, instance, run, step);
        enqueue_output(system, instance, run, system->steps, instance->final_positions,
                       instance->final_velocities);
    }
}

/* Positions and velocities of all bodies at one time. */
struct snapshot {
    void *positions, *velocities;
};

/*
 * Moves one body from `before` in double precision and compares with `after`. The acceleration is a sum of n terms
 * and its error is measured against A = the sum of the terms' lengths: 4 sqrt(n) u A for the summation (rounding
 * errors are independent with mean zero: Higham and Mary, 2019) and 16 u A for the terms themselves, of about ten
 * operations each with a reciprocal square root of at most 2 ulp. Velocity and position add the rounding of
 * their own update. One step is checked at a time, so no error is amplified by the motion.
 */
static void check_body(const struct system *system, const struct snapshot *before,
                       const struct snapshot *after, size_t body, struct verdict *verdict)
{
    const enum precision precision = system->precision;
    const double u = unit_roundoff(precision);
    /* What the kernel was given: the parameters rounded to its precision. */
    const double time_step = precision == PRECISION_SINGLE ? (double)(float)TIME_STEP : TIME_STEP;
    const double softening =
        precision == PRECISION_SINGLE ? (double)(float)SOFTENING_SQUARED : SOFTENING_SQUARED;
    double position[3], acceleration[3] = {0}, length_sum = 0;

    for (int axis = 0; axis < 3; axis++)
        position[axis] = real_load(precision, before->positions, 4 * body + axis);
    for (size_t other = 0; other < system->size; other++) {
        double difference[3], squared = softening;
        for (int axis = 0; axis < 3; axis++) {
            difference[axis] = real_load(precision, before->positions, 4 * other + axis) - position[axis];
            squared += difference[axis] * difference[axis];
        }
        const double inverse = 1 / sqrt(squared);
        const double pull = real_load(precision, before->positions, 4 * other + 3) * inverse * inverse * inverse;
        for (int axis = 0; axis < 3; axis++)
            acceleration[axis] += pull * difference[axis];
        length_sum += pull * sqrt(squared);
    }

    const double acceleration_error = (16 + 4 * sqrt((double)system->size)) * u * length_sum;
    for (int axis = 0; axis < 3; axis++) {
        const double velocity =
            real_load(precision, before->velocities, 4 * body + axis) + time_step * acceleration[axis];
        const double velocity_error = time_step * acceleration_error + 4 * u * (fabs(velocity) + time_step * length_sum);
        const double moved = position[axis] + time_step * velocity;
        const double moved_error = time_step * velocity_error + 4 * u * (fabs(position[axis]) + fabs(moved));
        const double velocity_off = fabs(real_load(precision, after->velocities, 4 * body + axis) - velocity);
        const double moved_off = fabs(real_load(precision, after->positions, 4 * body + axis) - moved);
        /* A NaN from the device makes the comparison false as well. */
        if (!(velocity_off <= velocity_error && moved_off <= moved_error))
            verdict->passed = false;
        verdict->max_error = fmax(verdict->max_error, velocity_off / (fabs(velocity) + time_step * length_sum));
    }
    if (real_load(precision, after->positions, 4 * body + 3) !=
        real_load(precision, before->positions, 4 * body + 3))
        verdict->passed = false;
}

/* All bodies while that is cheap; else the first and last body of every band and random ones. */
static void check_step(const struct system *system, const struct instance *instance,
                       const struct snapshot *before, const struct snapshot *after, uint64_t *random,
                       struct verdict *verdict)
{
    const size_t budget = CHECK_BUDGET / system->size / system->steps;
    if (system->size <= budget) {
        for (size_t body = 0; body < system->size; body++)
            check_body(system, before, after, body, verdict);
        return;
    }
    for (cl_uint d = 0; d < system->devices->count; d++) {
        const struct band bodies = instance->parts[d].bodies;
        check_body(system, before, after, bodies.first, verdict);
        check_body(system, before, after, bodies.first + bodies.count - 1, verdict);
    }
    for (size_t sample = 0; sample < budget; sample++)
        check_body(system, before, after, random_below(random, system->size), verdict);
}

/*
 * Runs each instance once more, step by step, and checks each step from the state that the device itself had
 * before it. The state after the last step must be, to the bit, the one of the measured run, which waited for
 * nothing in between: the order of a sum is fixed by the kernel, so anything else is a lost ordering.
 */
static struct verdict check(const struct system *system)
{
    const size_t bytes = system->size * system->body_bytes;
    struct run run = {.devices = system->devices, .queues = system->devices->queues};
    struct snapshot snapshots[2];
    for (int i = 0; i < 2; i++)
        snapshots[i] = (struct snapshot){host_allocate(bytes), host_allocate(bytes)};
    uint64_t random = system->devices->options->seed ^ 0x636865636bu;
    struct verdict verdict = {.passed = true};

    for (size_t i = 0; i < system->devices->options->instances; i++) {
        const struct instance *instance = &system->instances[i];
        memcpy(snapshots[0].positions, instance->positions, bytes);
        memcpy(snapshots[0].velocities, instance->velocities, bytes);
        enqueue_input(system, instance, &run);
        for (size_t step = 0; step < system->steps; step++) {
            const struct snapshot *before = &snapshots[step % 2], *after = &snapshots[(step + 1) % 2];
            enqueue_step(system, instance, &run, step);
            enqueue_output(system, instance, &run, step + 1, after->positions, after->velocities);
            run_finish(&run);
            check_step(system, instance, before, after, &random, &verdict);
        }
        const struct snapshot *last = &snapshots[system->steps % 2];
        if (memcmp(last->positions, instance->final_positions, bytes) != 0 ||
            memcmp(last->velocities, instance->final_velocities, bytes) != 0) {
            fprintf(stderr, "nbody: instance %zu: the measured run and the stepped run differ\n", i);
            verdict.passed = false;
        }
    }
    for (int i = 0; i < 2; i++) {
        free(snapshots[i].positions);
        free(snapshots[i].velocities);
    }
    return verdict;
}

static void instance_create(struct instance *instance, const struct system *system, cl_program program,
                            uint64_t *random)
{
    const size_t bytes = system->size * system->body_bytes;
    instance->positions = host_allocate(bytes);
    instance->velocities = host_allocate(bytes);
    instance->final_positions = host_allocate(bytes);
    instance->final_velocities = host_allocate(bytes);
    for (size_t body = 0; body < system->size; body++) {
        for (int axis = 0; axis < 3; axis++) {
            real_store(system->precision, instance->positions, 4 * body + axis, random_uniform(random, -1, 1));
            real_store(system->precision, instance->velocities, 4 * body + axis,
                       random_uniform(random, -0.1, 0.1));
        }
        real_store(system->precision, instance->positions, 4 * body + 3,
                   random_uniform(random, 0.5, 1.5) / (double)system->size);
        real_store(system->precision, instance->velocities, 4 * body + 3, 0);
    }
    const cl_uint count = system->devices->count;
    instance->parts = host_allocate(count * sizeof *instance->parts);
    for (cl_uint d = 0; d < count; d++)
        part_create(&instance->parts[d], system, program, band_of(system->size, count, d));
}

static void instance_release(struct instance *instance, const struct system *system)
{
    for (cl_uint d = 0; d < system->devices->count; d++)
        part_release(&instance->parts[d]);
    free(instance->parts);
    free(instance->positions);
    free(instance->velocities);
    free(instance->final_positions);
    free(instance->final_velocities);
}

int main(int argc, char **argv)
{
    struct options options = {DEFAULT_OPTIONS, .workload = "nbody", .size = 4096};
    size_t steps = 2;
    const struct option own[] = {
        {"precision", OPTION_CHOICE, &options.precision, 0, "single|double", "of the bodies (default: single)"},
        {"steps", OPTION_COUNT, &steps, 1, "S", "time steps of one run (default: 2)"},
    };
    options_parse(&options, argc, argv, "Moves bodies that all attract each other.", "bodies",
                  (struct option_table){own, 2});
    if (options.size > 1 << 26)
        usage_error(&options, "--size %zu: at most 67108864", options.size);

    struct devices devices;
    devices_open(&devices, &options);
    devices_require_precision(&devices);
    devices_require_group_size(&devices, TILE);
    if (options.size < devices.count)
        usage_error(&options, "--size %zu: fewer bodies than devices (%u)", options.size, devices.count);

    char build_options[64];
    snprintf(build_options, sizeof build_options, "%s -DTILE=%d", precision_macro(options.precision), TILE);
    cl_program program = program_build(&devices, nbody_cl, build_options);

    struct system system = {
        .devices = &devices,
        .size = options.size,
        .steps = steps,
        .precision = options.precision,
        .body_bytes = 4 * real_size(options.precision),
        .instances = host_allocate(options.instances * sizeof *system.instances),
        .moved = host_allocate(devices.count * sizeof *system.moved),
    };
    uint64_t random = options.seed;
    for (size_t i = 0; i < options.instances; i++)
        instance_create(&system.instances[i], &system, program, &random);

    const struct measurement measurement = measure(&devices, issue, &system);
    struct verdict verdict;
    if (!options.skip_check)
        verdict = check(&system);
    const double n = (double)options.size;
    const struct rate rate = {
        "gflops", "GFLOP/s",
        OPERATIONS_PER_INTERACTION * n * n * (double)(steps * options.instances) * 1e-9};
    const int status = report(&devices, &measurement, rate, precision_name(options.precision),
                              options.skip_check ? NULL : &verdict);

    for (size_t i = 0; i < options.instances; i++)
        instance_release(&system.instances[i], &system);
    free(system.instances);
    free(system.moved);
    CL_CHECK(clReleaseProgram(program));
    devices_close(&devices);
    return status;
}
