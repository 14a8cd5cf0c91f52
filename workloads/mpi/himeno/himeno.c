/*
 * The Himeno benchmark: Jacobi iterations on a 19-point stencil of Poisson's equation with variable coefficients, in
 * single precision. Its speed is that of memory. MFLOPS are counted as the original does: 34 operations per inner point and
 * iteration.
 *
 * The grid is cut into blocks, one per rank, with a layer of ghost points. Faces go to the neighbours after each iteration,
 * axis after axis, so that edges come along.
 *
 * The check needs no reference run. At the original's starting values, p = (i / (imax-1))^2 with constant coefficients, the
 * first change is known at all inner points, and each iteration multiplies each of its sine modes by a known factor. So the
 * sum of squared changes (`gosa`) is known in closed form for every size and iteration.
 */
#include "bench.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846
#define OMEGA 0.8f
#define FLOPS_PER_POINT 34.0
#define REHEARSAL 3 /* iterations that tell how many fill the wanted time */

struct problem {
    int points[3]; /* i, j, k; k is contiguous */
    int iterations;
};

static const struct problem problems[] = {
    {{32, 32, 64}, 100}, {{64, 64, 128}, 100}, {{128, 128, 256}, 50}, {{256, 256, 512}, 20}, {{512, 512, 1024}, 20},
};

struct block {
    const struct bench *bench;
    MPI_Comm grid;
    int parts[3], place[3];
    int below[3], above[3]; /* neighbours */
    struct range inner[3];  /* inner points of this rank, as numbers in the whole grid */
    size_t extent[3];       /* with ghosts */
    size_t points;
    MPI_Datatype faces[3];
    float *p, *next, *boundary, *source;
    float *a[4], *b[3], *c[3];
};

static size_t at(const struct block *block, size_t i, size_t j, size_t k)
{
    return (i * block->extent[1] + j) * block->extent[2] + k;
}

/* Kept to the end. Large blocks all begin at the same place of a page, and 14 such streams would share one set of the first
 * cache: each array begins some lines further on than the one before, as the original's padding has it. */
static float *filled(size_t count, float value)
{
    enum { STAGGER = 5 * 16 };
    static size_t arrays;
    const size_t lead = arrays++ % 14 * STAGGER;
    float *array = (float *)bench_allocate(count + lead, sizeof *array) + lead;
    for (size_t i = 0; i < count; i++)
        array[i] = value;
    return array;
}

/* Reads "2x3x4"; false when it is something else. */
static bool parse_grid(const char *text, int parts[3])
{
    int used = 0;
    return sscanf(text, "%6dx%6dx%6d%n", &parts[0], &parts[1], &parts[2], &used) == 3 && text[used] == '\0';
}

static void make_block(struct block *block, const struct bench *bench, const struct problem *problem, const char *grid)
{
    memset(block, 0, sizeof *block);
    block->bench = bench;
    if (grid != NULL) {
        if (!parse_grid(grid, block->parts) || block->parts[0] < 1 || block->parts[1] < 1 || block->parts[2] < 1 ||
            (long)block->parts[0] * block->parts[1] * block->parts[2] != bench->ranks)
            bench_refuse(bench, "--grid takes the ranks along i, j and k, as in 2x2x1, with a product of %d, not '%s'",
                         bench->ranks, grid);
    } else {
        /* The fewest parts along k, where points are contiguous: MPI gives the numbers in falling order. */
        MPI_Dims_create(bench->ranks, 3, block->parts);
    }
    MPI_Cart_create(MPI_COMM_WORLD, 3, block->parts, (int[3]){0, 0, 0}, 0, &block->grid);
    MPI_Cart_coords(block->grid, bench->rank, 3, block->place);
    block->points = 1;
    for (int axis = 0; axis < 3; axis++) {
        const int inner = problem->points[axis] - 2;
        if (block->parts[axis] > inner)
            bench_refuse(bench, "%d ranks are too many for %d inner points along axis %d of size %s", block->parts[axis],
                         inner, axis, bench->class_name);
        block->inner[axis] = range_of_part(inner, block->parts[axis], block->place[axis]);
        block->inner[axis].first++;
        block->extent[axis] = (size_t)block->inner[axis].count + 2;
        block->points *= block->extent[axis];
        MPI_Cart_shift(block->grid, axis, 1, &block->below[axis], &block->above[axis]);
    }
    const int extent[3] = {(int)block->extent[0], (int)block->extent[1], (int)block->extent[2]};
    MPI_Type_vector(1, extent[1] * extent[2], 0, MPI_FLOAT, &block->faces[0]);
    MPI_Type_vector(extent[0], extent[2], extent[1] * extent[2], MPI_FLOAT, &block->faces[1]);
    MPI_Type_vector(extent[0] * extent[1], 1, extent[2], MPI_FLOAT, &block->faces[2]);
    for (int axis = 0; axis < 3; axis++)
        MPI_Type_commit(&block->faces[axis]);

    const size_t points = block->points;
    for (int i = 0; i < 3; i++) {
        block->a[i] = filled(points, 1.0f);
        block->b[i] = filled(points, 0.0f);
        block->c[i] = filled(points, 1.0f);
    }
    block->a[3] = filled(points, 1.0f / 6.0f);
    block->boundary = filled(points, 1.0f);
    block->source = filled(points, 0.0f);
    block->p = filled(points, 0.0f);
    block->next = filled(points, 0.0f);
}

static void start_values(struct block *block, const struct problem *problem)
{
    const float last = (float)(problem->points[0] - 1);
    const size_t plane = block->extent[1] * block->extent[2];
    for (size_t i = 0; i < block->extent[0]; i++) {
        const float place = (float)(block->inner[0].first - 1 + (int)i);
        for (size_t rest = 0; rest < plane; rest++)
            block->p[i * plane + rest] = place * place / (last * last);
    }
}

/* Later axes carry the ghosts of earlier ones along, so that edges arrive too. */
static void exchange(const struct block *block)
{
    const size_t steps[3] = {block->extent[1] * block->extent[2], block->extent[2], 1};
    for (int axis = 2; axis >= 0; axis--) {
        const size_t step = steps[axis], count = (size_t)block->inner[axis].count;
        MPI_Request requests[4];
        MPI_Status statuses[4]; /* to compilers MPICH's MPI_STATUSES_IGNORE is an array too short */
        float *p = block->p;
        MPI_Irecv(p, 1, block->faces[axis], block->below[axis], axis, block->grid, &requests[0]);
        MPI_Irecv(p + (count + 1) * step, 1, block->faces[axis], block->above[axis], axis, block->grid, &requests[1]);
        MPI_Isend(p + step, 1, block->faces[axis], block->below[axis], axis, block->grid, &requests[2]);
        MPI_Isend(p + count * step, 1, block->faces[axis], block->above[axis], axis, block->grid, &requests[3]);
        MPI_Waitall(4, requests, statuses);
    }
}

/* One row along k; answers the sum of squared changes. */
static double relax_row(const struct block *block, size_t first, size_t count)
{
    const size_t along_i = block->extent[1] * block->extent[2], along_j = block->extent[2];
    const float *restrict p = block->p + first;
    const float *restrict pi = p + along_i, *restrict mi = p - along_i;
    const float *restrict a0 = block->a[0] + first, *restrict a1 = block->a[1] + first;
    const float *restrict a2 = block->a[2] + first, *restrict a3 = block->a[3] + first;
    const float *restrict b0 = block->b[0] + first, *restrict b1 = block->b[1] + first;
    const float *restrict b2 = block->b[2] + first, *restrict c0 = block->c[0] + first;
    const float *restrict c1 = block->c[1] + first, *restrict c2 = block->c[2] + first;
    const float *restrict source = block->source + first, *restrict boundary = block->boundary + first;
    float *restrict next = block->next + first;
    const ptrdiff_t j = (ptrdiff_t)along_j;
    float sum = 0;
    for (ptrdiff_t k = 0; k < (ptrdiff_t)count; k++) {
        const float s0 = a0[k] * pi[k] + a1[k] * p[k + j] + a2[k] * p[k + 1] +
                         b0[k] * (pi[k + j] - pi[k - j] - mi[k + j] + mi[k - j]) +
                         b1[k] * (p[k + j + 1] - p[k - j + 1] - p[k + j - 1] + p[k - j - 1]) +
                         b2[k] * (pi[k + 1] - mi[k + 1] - pi[k - 1] + mi[k - 1]) + c0[k] * mi[k] + c1[k] * p[k - j] +
                         c2[k] * p[k - 1] + source[k];
        const float change = (s0 * a3[k] - p[k]) * boundary[k];
        sum += change * change;
        next[k] = p[k] + OMEGA * change;
    }
    return sum;
}

static double iterate(struct block *block)
{
    const size_t ni = (size_t)block->inner[0].count, nj = (size_t)block->inner[1].count,
                 nk = (size_t)block->inner[2].count;
    double sum = 0, total = 0;
    for (size_t i = 1; i <= ni; i++)
        for (size_t j = 1; j <= nj; j++)
            sum += relax_row(block, at(block, i, j, 1), nk);
    for (size_t i = 1; i <= ni; i++)
        for (size_t j = 1; j <= nj; j++)
            memcpy(block->p + at(block, i, j, 1), block->next + at(block, i, j, 1), nk * sizeof(float));
    exchange(block);
    MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, block->grid);
    return total;
}

/* The part of a constant 1 that is in an odd sine mode of `inner` points, squared and times the mode's norm. */
static double constant_weight(int mode, int inner)
{
    const double coefficient = 2.0 / (inner + 1) / tan(mode * PI / (2 * (inner + 1)));
    return coefficient * coefficient * (inner + 1) / 2;
}

/*
 * The same for the first change along i. Six neighbours of (i / last)^2 have the average p + 1 / (3 last^2). The benchmark
 * multiplies by 1/6 as single precision has it, which adds a small multiple of p.
 */
static double change_weight(int mode, int inner)
{
    const double last = inner + 1, excess = 6 * (double)(1.0f / 6.0f) - 1;
    double coefficient = 0;
    for (int i = 1; i <= inner; i++)
        coefficient += (1 / (3 * last * last) + excess * (i / last) * (i / last)) * sin(mode * PI * i / (inner + 1));
    coefficient *= 2.0 / (inner + 1);
    return coefficient * coefficient * (inner + 1) / 2;
}

/* The sum of squared changes of the given iteration (from 1); the ranks share the work. */
static double expected_gosa(const struct bench *bench, const struct problem *problem, int iteration)
{
    const int ni = problem->points[0] - 2, nj = problem->points[1] - 2, nk = problem->points[2] - 2;
    const struct range mine = range_of_part(ni, bench->ranks, bench->rank);
    double *weights = bench_allocate((size_t)nk, sizeof *weights), *cosines = bench_allocate((size_t)nk, sizeof *cosines);
    for (int n = 1; n <= nk; n += 2) {
        weights[n - 1] = constant_weight(n, nk);
        cosines[n - 1] = cos(n * PI / (nk + 1));
    }
    double sum = 0, total = 0;
    for (int l = mine.first + 1; l <= mine.first + mine.count; l++) {
        const double weight_l = change_weight(l, ni);
        for (int m = 1; m <= nj; m += 2) {
            const double pair = weight_l * constant_weight(m, nj);
            const double cosine = cos(l * PI / (ni + 1)) + cos(m * PI / (nj + 1));
            for (int n = 1; n <= nk; n += 2) {
                const double factor = 1 - (double)OMEGA * (1 - (cosine + cosines[n - 1]) / 3);
                sum += pair * weights[n - 1] * pow(factor, 2.0 * (iteration - 1));
            }
        }
    }
    free(cosines);
    free(weights);
    MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return total;
}

int main(int argc, char **argv)
{
    struct bench bench = {.workload = "himeno", .classes = "XS|S|M|L|XL"};
    long iterations = 0, seconds_wanted = 0;
    const char *grid = NULL;
    const struct option options[] = {
        {.name = "iterations", .value = "N", .help = "how many [default: 20 to 100]", .number = &iterations, .minimum = 1},
        {.name = "seconds", .value = "N", .help = "as many iterations as take this long; the original takes 60",
         .number = &seconds_wanted, .minimum = 1},
        {.name = "grid", .value = "IxJxK", .help = "ranks along each axis [default: as even as can be]", .text = &grid},
    };
    bench_begin(&bench, &argc, &argv, "Himeno: Jacobi iterations of Poisson's equation, bound by memory.", NULL, options,
                sizeof options / sizeof options[0]);
    const struct problem *problem = &problems[bench.class_index];
    struct block block;
    make_block(&block, &bench, problem, grid);

    start_values(&block, problem);
    const double rehearsal = bench_now();
    for (int i = 0; i < REHEARSAL; i++)
        iterate(&block);
    double per_iteration = (bench_now() - rehearsal) / REHEARSAL;
    MPI_Bcast(&per_iteration, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    int count = iterations > 0 ? (int)iterations : problem->iterations;
    if (seconds_wanted > 0)
        count = (int)fmin(fmax((double)seconds_wanted / per_iteration, 1), 1e8);

    start_values(&block, problem);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = bench_now();
    double gosa = 0;
    for (int i = 0; i < count; i++)
        gosa = iterate(&block);
    const double seconds = bench_now() - start;

    const double expected = expected_gosa(&bench, problem, count);
    const double inner = (problem->points[0] - 2.0) * (problem->points[1] - 2.0) * (problem->points[2] - 2.0);
    /* Changes are small differences of numbers up to 1, each with a few roundings: a noise of 2 u per point, of which a
     * tenth of the mean square is allowed for as correlation with the change itself. */
    const double unit = FLT_EPSILON / 2, mean_change = sqrt(expected / inner);
    const double noise = 2 * unit / mean_change;
    struct result result = {
        .iterations = count,
        .seconds = seconds,
        .rate_key = "mflops",
        .work = FLOPS_PER_POINT * inner * count * 1e-6,
        .checked = true,
        .max_error = relative_error(&gosa, &expected, 1),
    };
    result.passed = result.max_error <= noise * noise + 0.1 * noise + 1e-6;
    snprintf(result.size, sizeof result.size, "%dx%dx%d", problem->points[0], problem->points[1], problem->points[2]);
    char extra[96];
    snprintf(extra, sizeof extra, ",\"gosa\":%.9g,\"grid\":\"%dx%dx%d\"", gosa, block.parts[0], block.parts[1],
             block.parts[2]);
    result.extra = extra;
    return bench_end(&bench, &result);
}
