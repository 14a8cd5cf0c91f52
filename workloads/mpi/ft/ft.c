/*
 * NPB FT: solves a heat equation by 3-D Fourier transforms (NAS report RNR-91-002, section 2.4.4, and NAS-95-020, 3.2).
 *
 * The field lies in slabs of planes of z. A forward transform goes along x and y within the planes; then every rank gets
 * its share of the columns along z (one alltoall) and transforms these. The spectrum stays in columns. A backward transform
 * goes the same way back.
 */
#include "bench.h"
#include "npb_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846
#define ALPHA 1e-6
#define MOST_ITERATIONS 20
#define SUMMED 1024 /* elements that a checksum adds up */
#define BATCH 8     /* transforms at once */

struct complex {
    double re, im;
};

struct problem {
    int nx, ny, nz, iterations;
    struct complex checksums[MOST_ITERATIONS]; /* published: NPB 2, FT */
};

static const struct problem problems[] = {
    {64, 64, 64, 6,
     {{5.546087004964e+02, 4.845363331978e+02}, {5.546385409190e+02, 4.865304269511e+02},
      {5.546148406171e+02, 4.883910722337e+02}, {5.545423607415e+02, 4.901273169046e+02},
      {5.544255039624e+02, 4.917475857993e+02}, {5.542683411902e+02, 4.932597244941e+02}}},
    {128, 128, 32, 6,
     {{5.673612178944e+02, 5.293246849175e+02}, {5.631436885271e+02, 5.282149986629e+02},
      {5.594024089970e+02, 5.270996558037e+02}, {5.560698047020e+02, 5.260027904925e+02},
      {5.530898991250e+02, 5.249400845633e+02}, {5.504159734538e+02, 5.239212247086e+02}}},
    {256, 256, 128, 6,
     {{5.046735008193e+02, 5.114047905510e+02}, {5.059412319734e+02, 5.098809666433e+02},
      {5.069376896287e+02, 5.098144042213e+02}, {5.077892868474e+02, 5.101336130759e+02},
      {5.085233095391e+02, 5.104914655194e+02}, {5.091487099959e+02, 5.107917842803e+02}}},
    {512, 256, 256, 20,
     {{5.177643571579e+02, 5.077803458597e+02}, {5.154521291263e+02, 5.088249431599e+02},
      {5.146409228649e+02, 5.096208912659e+02}, {5.142378756213e+02, 5.101023387619e+02},
      {5.139626667737e+02, 5.103976610617e+02}, {5.137423460082e+02, 5.105948019802e+02},
      {5.135547056878e+02, 5.107404165783e+02}, {5.133910925466e+02, 5.108576573661e+02},
      {5.132470705390e+02, 5.109577278523e+02}, {5.131197729984e+02, 5.110460304483e+02},
      {5.130070319283e+02, 5.111252433800e+02}, {5.129070537032e+02, 5.111968077718e+02},
      {5.128182883502e+02, 5.112616233064e+02}, {5.127393733383e+02, 5.113203605551e+02},
      {5.126691062020e+02, 5.113735928093e+02}, {5.126064276004e+02, 5.114218460548e+02},
      {5.125504076570e+02, 5.114656139760e+02}, {5.125002331720e+02, 5.115053595966e+02},
      {5.124551951846e+02, 5.115415130407e+02}, {5.124146770029e+02, 5.115744692211e+02}}},
    {512, 512, 512, 20,
     {{5.195078707457e+02, 5.149019699238e+02}, {5.155422171134e+02, 5.127578201997e+02},
      {5.144678022222e+02, 5.122251847514e+02}, {5.140150594328e+02, 5.121090289018e+02},
      {5.137550426810e+02, 5.121143685824e+02}, {5.135811056728e+02, 5.121496764568e+02},
      {5.134569343165e+02, 5.121870921893e+02}, {5.133651975661e+02, 5.122193250322e+02},
      {5.132955192805e+02, 5.122454735794e+02}, {5.132410471738e+02, 5.122663649603e+02},
      {5.131971141679e+02, 5.122830879827e+02}, {5.131605205716e+02, 5.122965869718e+02},
      {5.131290734194e+02, 5.123075927445e+02}, {5.131012720314e+02, 5.123166486553e+02},
      {5.130760908195e+02, 5.123241541685e+02}, {5.130528295923e+02, 5.123304037599e+02},
      {5.130310107773e+02, 5.123356167976e+02}, {5.130103090133e+02, 5.123399592211e+02},
      {5.129905029333e+02, 5.123435588985e+02}, {5.129714421109e+02, 5.123465164008e+02}}},
};

struct field {
    const struct bench *bench;
    const struct problem *problem;
    size_t planes;  /* of z that this rank has */
    size_t columns; /* along z that this rank has, of the nx * ny */
    size_t elements;
    struct complex *roots; /* exp(-2 pi i k / longest) */
    int longest;
    struct complex *work, *spare; /* of one batch */
    struct complex *outgoing;     /* as large as the field */
};

/* ---- transforms ---- */

/*
 * Transforms `batch` interleaved vectors of `length` elements, by Stockham's method: no reordering, a stage reads from one
 * array and writes to the other. The result is in the array that is returned.
 */
static struct complex *transform(const struct field *field, int length, int batch, struct complex *from,
                                 struct complex *to, int sign)
{
    size_t stride = (size_t)batch;
    for (int half = length / 2; half > 0; half /= 2) {
        const int root_step = field->longest / (2 * half);
        for (int p = 0; p < half; p++) {
            const struct complex root = field->roots[p * root_step];
            const double re = root.re, im = sign * root.im;
            const struct complex *low = from + stride * (size_t)p, *high = from + stride * (size_t)(p + half);
            struct complex *even = to + stride * (size_t)(2 * p), *odd = even + stride;
            for (size_t q = 0; q < stride; q++) {
                const struct complex a = low[q], b = high[q];
                const struct complex difference = {a.re - b.re, a.im - b.im};
                even[q].re = a.re + b.re;
                even[q].im = a.im + b.im;
                odd[q].re = difference.re * re - difference.im * im;
                odd[q].im = difference.re * im + difference.im * re;
            }
        }
        struct complex *swapped = from;
        from = to;
        to = swapped;
        stride *= 2;
    }
    return from;
}

/* Transforms `count` vectors that lie one after the other. `count` is a multiple of BATCH or less than it. */
static void transform_rows(const struct field *field, struct complex *data, int length, size_t count, int sign)
{
    for (size_t first = 0; first < count; first += BATCH) {
        const int batch = count - first < BATCH ? (int)(count - first) : BATCH;
        struct complex *rows = data + first * (size_t)length;
        for (int i = 0; i < length; i++)
            for (int row = 0; row < batch; row++)
                field->work[i * batch + row] = rows[(size_t)row * (size_t)length + (size_t)i];
        const struct complex *done = transform(field, length, batch, field->work, field->spare, sign);
        for (int row = 0; row < batch; row++)
            for (int i = 0; i < length; i++)
                rows[(size_t)row * (size_t)length + (size_t)i] = done[i * batch + row];
    }
}

/* Transforms along y in every plane. */
static void transform_y(const struct field *field, struct complex *data, int sign)
{
    const int nx = field->problem->nx, ny = field->problem->ny;
    for (size_t plane = 0; plane < field->planes; plane++) {
        struct complex *at = data + plane * (size_t)nx * (size_t)ny;
        for (int x = 0; x < nx; x += BATCH) {
            for (int y = 0; y < ny; y++)
                memcpy(field->work + y * BATCH, at + y * nx + x, BATCH * sizeof *at);
            const struct complex *done = transform(field, ny, BATCH, field->work, field->spare, sign);
            for (int y = 0; y < ny; y++)
                memcpy(at + y * nx + x, done + y * BATCH, BATCH * sizeof *at);
        }
    }
}

/* ---- from planes to columns and back ---- */

/* What goes to one rank: its columns, in the planes that this rank has, plane after plane. */
static void planes_to_columns(const struct field *field, struct complex *data)
{
    const size_t ranks = (size_t)field->bench->ranks, planes = field->planes, columns = field->columns;
    const int block = (int)(planes * columns);
    const size_t nz = (size_t)field->problem->nz;
    for (size_t rank = 0; rank < ranks; rank++)
        for (size_t plane = 0; plane < planes; plane++)
            memcpy(field->outgoing + (rank * planes + plane) * columns, data + plane * columns * ranks + rank * columns,
                   columns * sizeof *data);
    MPI_Alltoall(field->outgoing, 2 * block, MPI_DOUBLE, data, 2 * block, MPI_DOUBLE, MPI_COMM_WORLD);
    /* Now data has all of z, a plane of these columns after the other: transpose, in tiles that fit into caches. */
    memcpy(field->outgoing, data, field->elements * sizeof *data);
    for (size_t tile = 0; tile < columns; tile += BATCH)
        for (size_t z = 0; z < nz; z++)
            for (size_t column = tile; column < tile + BATCH && column < columns; column++)
                data[column * nz + z] = field->outgoing[z * columns + column];
}

static void columns_to_planes(const struct field *field, struct complex *data)
{
    const size_t ranks = (size_t)field->bench->ranks, planes = field->planes, columns = field->columns;
    const int block = (int)(planes * columns);
    const size_t nz = (size_t)field->problem->nz;
    for (size_t tile = 0; tile < columns; tile += BATCH)
        for (size_t z = 0; z < nz; z++)
            for (size_t column = tile; column < tile + BATCH && column < columns; column++)
                field->outgoing[z * columns + column] = data[column * nz + z];
    MPI_Alltoall(field->outgoing, 2 * block, MPI_DOUBLE, data, 2 * block, MPI_DOUBLE, MPI_COMM_WORLD);
    memcpy(field->outgoing, data, field->elements * sizeof *data);
    for (size_t rank = 0; rank < ranks; rank++)
        for (size_t plane = 0; plane < planes; plane++)
            memcpy(data + plane * columns * ranks + rank * columns, field->outgoing + (rank * planes + plane) * columns,
                   columns * sizeof *data);
}

static void forward(const struct field *field, struct complex *data)
{
    const struct problem *problem = field->problem;
    transform_rows(field, data, problem->nx, field->planes * (size_t)problem->ny, 1);
    transform_y(field, data, 1);
    planes_to_columns(field, data);
    transform_rows(field, data, problem->nz, field->columns, 1);
}

static void backward(const struct field *field, struct complex *data)
{
    const struct problem *problem = field->problem;
    transform_rows(field, data, problem->nz, field->columns, -1);
    columns_to_planes(field, data);
    transform_y(field, data, -1);
    transform_rows(field, data, problem->nx, field->planes * (size_t)problem->ny, -1);
}

/* ---- the equation ---- */

static void random_field(const struct field *field, struct complex *data)
{
    uint64_t state = npb_random_skip(NPB_SEED, 2 * (uint64_t)field->bench->rank * field->elements);
    for (size_t i = 0; i < field->elements; i++) {
        data[i].re = npb_random(&state);
        data[i].im = npb_random(&state);
    }
}

static double folded_square(int at, int length)
{
    const double frequency = at < length / 2 ? at : at - length;
    return frequency * frequency;
}

/* By what each element of the spectrum shrinks in one step. */
static void make_factors(const struct field *field, double *factors)
{
    const struct problem *problem = field->problem;
    const size_t first = (size_t)field->bench->rank * field->columns;
    for (size_t column = 0; column < field->columns; column++) {
        const int x = (int)((first + column) % (size_t)problem->nx), y = (int)((first + column) / (size_t)problem->nx);
        const double square = folded_square(x, problem->nx) + folded_square(y, problem->ny);
        for (int z = 0; z < problem->nz; z++)
            factors[column * (size_t)problem->nz + (size_t)z] =
                exp(-4 * ALPHA * PI * PI * (square + folded_square(z, problem->nz)));
    }
}

static struct complex checksum(const struct field *field, const struct complex *data)
{
    const struct problem *problem = field->problem;
    const int nx = problem->nx, ny = problem->ny, nz = problem->nz;
    const int first = field->bench->rank * (int)field->planes;
    double sum[2] = {0, 0}, total[2];
    for (int j = 1; j <= SUMMED; j++) {
        const int plane = 5 * j % nz - first;
        if (plane < 0 || plane >= (int)field->planes)
            continue;
        const size_t at = (size_t)(j % nx) + (size_t)nx * ((size_t)(3 * j % ny) + (size_t)ny * (size_t)plane);
        sum[0] += data[at].re;
        sum[1] += data[at].im;
    }
    MPI_Reduce(sum, total, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    const double scale = 1.0 / ((double)nx * ny * nz);
    return (struct complex){total[0] * scale, total[1] * scale};
}

static void make_roots(struct field *field)
{
    const struct problem *problem = field->problem;
    field->longest = problem->nx;
    if (problem->ny > field->longest)
        field->longest = problem->ny;
    if (problem->nz > field->longest)
        field->longest = problem->nz;
    field->roots = bench_allocate((size_t)field->longest, sizeof *field->roots);
    for (int k = 0; k < field->longest; k++)
        field->roots[k] = (struct complex){cos(2 * PI * k / field->longest), -sin(2 * PI * k / field->longest)};
    field->work = bench_allocate((size_t)field->longest * BATCH, sizeof *field->work);
    field->spare = bench_allocate((size_t)field->longest * BATCH, sizeof *field->spare);
}

int main(int argc, char **argv)
{
    struct bench bench = {.workload = "ft", .classes = "S|W|A|B|C"};
    bench_begin(&bench, &argc, &argv, "NPB FT: a heat equation by 3-D Fourier transforms, with all-to-all transposes.",
                NULL, NULL, 0);
    const struct problem *problem = &problems[bench.class_index];
    if (log2_exact(bench.ranks) < 0 || bench.ranks > problem->nz)
        bench_refuse(&bench, "the number of ranks must be a power of two up to %d at class %s, not %d", problem->nz,
                     bench.class_name, bench.ranks);

    struct field field = {.bench = &bench, .problem = problem};
    const size_t plane = (size_t)problem->nx * (size_t)problem->ny;
    field.planes = (size_t)(problem->nz / bench.ranks);
    field.columns = plane / (size_t)bench.ranks;
    field.elements = plane * field.planes;
    struct complex *spectrum = bench_allocate(field.elements, sizeof *spectrum);
    struct complex *now = bench_allocate(field.elements, sizeof *now);
    double *factors = bench_allocate(field.elements, sizeof *factors);
    field.outgoing = bench_allocate(field.elements, sizeof *field.outgoing);
    make_roots(&field);

    /* One transform ahead, unmeasured, touches all memory; the measured time has the whole solution. */
    random_field(&field, spectrum);
    forward(&field, spectrum);
    double sums[MOST_ITERATIONS][2];
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = bench_now();
    make_factors(&field, factors);
    random_field(&field, spectrum);
    forward(&field, spectrum);
    for (int iteration = 0; iteration < problem->iterations; iteration++) {
        for (size_t i = 0; i < field.elements; i++) {
            spectrum[i].re *= factors[i];
            spectrum[i].im *= factors[i];
        }
        memcpy(now, spectrum, field.elements * sizeof *now);
        backward(&field, now);
        const struct complex sum = checksum(&field, now);
        sums[iteration][0] = sum.re;
        sums[iteration][1] = sum.im;
    }
    const double seconds = bench_now() - start;

    double error = 0;
    for (int i = 0; i < problem->iterations; i++) {
        const struct complex expected = problem->checksums[i];
        const double difference = hypot(sums[i][0] - expected.re, sums[i][1] - expected.im);
        const double relative = difference / hypot(expected.re, expected.im);
        if (!(relative <= error))
            error = relative;
    }
    /* Operations as NPB counts them, and its tolerance. */
    const double n = (double)plane * problem->nz;
    struct result result = {
        .iterations = problem->iterations,
        .seconds = seconds,
        .rate_key = "mflops",
        .work = n * 1e-6 * (14.8157 + 7.19641 * log(n) + (5.23518 + 7.21113 * log(n)) * problem->iterations),
        .checked = true,
        .passed = error <= 1e-12,
        .max_error = error,
    };
    snprintf(result.size, sizeof result.size, "%dx%dx%d", problem->nx, problem->ny, problem->nz);
    return bench_end(&bench, &result);
}
