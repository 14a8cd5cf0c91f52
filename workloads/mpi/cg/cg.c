/*
 * NPB CG: estimates the smallest eigenvalue of a large sparse matrix by inverse iteration, each step with 25 iterations
 * of the conjugate gradient method (NAS report RNR-91-002, section 2.4.3, and NAS-95-020, section 3.3).
 *
 * Ranks form a grid of `rows` x `columns`, both powers of two, columns = rows or 2 rows. Rank (r, c) has block (r, c) of
 * the matrix, and of every vector the segment c, which all ranks of a column share. A product takes one sum along the
 * row of the grid, by recursive doubling, and one exchange with the transposed rank.
 */
#include "bench.h"
#include "npb_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INNER_ITERATIONS 25
#define CONDITION 0.1 /* the matrix's reciprocal condition number */

struct problem {
    int size, nonzeros; /* of a vector that goes into the sum of outer products */
    int iterations;
    double shift;
    double zeta; /* published: NPB 2, CG */
};

static const struct problem problems[] = {
    {1400, 7, 15, 10, 8.5971775078648},  {7000, 8, 15, 12, 10.362595087124},  {14000, 11, 15, 20, 17.130235054029},
    {75000, 13, 75, 60, 22.712745482631}, {150000, 15, 75, 110, 28.973605592845},
};

struct grid {
    int rank;
    int rows, columns, row, column;
    int column_log2;
    struct range block_rows;     /* of the matrix */
    struct range block_columns;  /* of the matrix, and of vectors */
    int transposed;              /* the rank to swap with after a product */
    int half;                    /* where, within the rows, what the transposed rank needs begins; rows == 2 columns */
};

/* Compressed rows; columns count within the block. */
struct matrix {
    int rows;
    size_t *starts;
    int *columns;
    double *values;
};

/* ---- the matrix ---- */

/* A vector of `count` random elements at random places, with element `diagonal` set to 1/2. */
static int random_vector(const struct problem *problem, uint64_t *state, int diagonal, double *values, int *places,
                         unsigned char *used)
{
    int power = 1, count = 0;
    while (power < problem->size)
        power *= 2;
    while (count < problem->nonzeros) {
        const double value = npb_random(state);
        const int place = (int)(power * npb_random(state));
        if (place >= problem->size || used[place])
            continue;
        used[place] = 1;
        values[count] = value;
        places[count++] = place;
    }
    for (int i = 0; i < count; i++)
        used[places[i]] = 0;
    for (int i = 0; i < count; i++) {
        if (places[i] == diagonal) {
            values[i] = 0.5;
            return count;
        }
    }
    values[count] = 0.5;
    places[count] = diagonal;
    return count + 1;
}

struct element {
    int column;
    double value;
};

static int compare_elements(const void *left, const void *right)
{
    const struct element *a = left, *b = right;
    return (a->column > b->column) - (a->column < b->column);
}

/*
 * The block's part of  sum of w(i) x(i) x(i)^T  +  (condition - shift) I,  where the weights w fall geometrically from 1 to
 * the condition number. Every rank makes all vectors, since they come from one sequence, and keeps what falls into its
 * block: once to count, once to store.
 */
static struct matrix make_matrix(const struct problem *problem, const struct grid *grid)
{
    const int size = problem->size, most = problem->nonzeros + 1;
    const struct range rows = grid->block_rows, columns = grid->block_columns;
    const double ratio = pow(CONDITION, 1.0 / size);
    double *values = bench_allocate((size_t)most, sizeof(double));
    int *places = bench_allocate((size_t)most, sizeof(int));
    unsigned char *used = bench_allocate((size_t)size, 1);
    size_t *ends = bench_allocate((size_t)rows.count + 1, sizeof(size_t));
    struct element *elements = NULL;

    for (int pass = 0; pass < 2; pass++) {
        uint64_t state = NPB_SEED;
        npb_random(&state); /* the first number is not used */
        double weight = 1.0;
        for (int outer = 0; outer < size; outer++) {
            const int count = random_vector(problem, &state, outer, values, places, used);
            for (int i = 0; i < count; i++) {
                const int row = places[i] - rows.first;
                if (row < 0 || row >= rows.count)
                    continue;
                const double scaled = weight * values[i];
                for (int j = 0; j < count; j++) {
                    const int column = places[j] - columns.first;
                    if (column < 0 || column >= columns.count)
                        continue;
                    double value = values[j] * scaled;
                    if (places[i] == places[j] && places[i] == outer)
                        value += CONDITION - problem->shift;
                    if (pass == 0)
                        ends[row + 1]++;
                    else
                        elements[ends[row]++] = (struct element){column, value};
                }
            }
            weight *= ratio;
        }
        if (pass == 0) {
            for (int row = 0; row < rows.count; row++)
                ends[row + 1] += ends[row];
            elements = bench_allocate(ends[rows.count] + 1, sizeof *elements);
        }
    }

    /* Storing moved each start to the row's end. Sort each row and add up what has the same place. */
    struct matrix matrix = {.rows = rows.count};
    matrix.starts = bench_allocate((size_t)rows.count + 1, sizeof(size_t));
    size_t kept = 0, begin = 0;
    for (int row = 0; row < rows.count; row++) {
        const size_t end = ends[row];
        qsort(elements + begin, end - begin, sizeof *elements, compare_elements);
        matrix.starts[row] = kept;
        for (size_t at = begin; at < end; at++) {
            if (at > begin && elements[at].column == elements[kept - 1].column)
                elements[kept - 1].value += elements[at].value;
            else
                elements[kept++] = elements[at];
        }
        begin = end;
    }
    matrix.starts[rows.count] = kept;
    matrix.columns = bench_allocate(kept + 1, sizeof(int));
    matrix.values = bench_allocate(kept + 1, sizeof(double));
    for (size_t at = 0; at < kept; at++) {
        matrix.columns[at] = elements[at].column;
        matrix.values[at] = elements[at].value;
    }
    free(elements);
    free(ends);
    free(used);
    free(places);
    free(values);
    return matrix;
}

/* ---- communication ---- */

static struct grid make_grid(const struct bench *bench, int size)
{
    const int ranks_log2 = log2_exact(bench->ranks);
    struct grid grid = {.rank = bench->rank};
    grid.rows = 1 << ranks_log2 / 2;
    grid.columns = bench->ranks / grid.rows;
    grid.column_log2 = log2_exact(grid.columns);
    grid.row = bench->rank / grid.columns;
    grid.column = bench->rank % grid.columns;
    grid.block_columns = range_of_part(size, grid.columns, grid.column);
    if (grid.rows == grid.columns) {
        grid.block_rows = range_of_part(size, grid.rows, grid.row);
        grid.transposed = grid.column * grid.columns + grid.row;
    } else {
        /* A block of rows is as long as two segments. */
        const struct range low = range_of_part(size, grid.columns, 2 * grid.row);
        const struct range high = range_of_part(size, grid.columns, 2 * grid.row + 1);
        grid.block_rows = (struct range){low.first, low.count + high.count};
        grid.transposed = grid.column / 2 * grid.columns + 2 * grid.row + grid.column % 2;
        grid.half = low.count;
    }
    return grid;
}

/* Sums of single numbers over the row of the grid: every column of the grid has all segments. */
static double sum_over_row(const struct grid *grid, double value)
{
    for (int bit = 1; bit < grid->columns; bit *= 2) {
        const int partner = grid->row * grid->columns + (grid->column ^ bit);
        double other;
        MPI_Sendrecv(&value, 1, MPI_DOUBLE, partner, 1, &other, 1, MPI_DOUBLE, partner, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        value += other;
    }
    return value;
}

static double dot(const struct grid *grid, const double *left, const double *right)
{
    double sum = 0;
    for (int i = 0; i < grid->block_columns.count; i++)
        sum += left[i] * right[i];
    return sum_over_row(grid, sum);
}

/*
 * product = A vector, by segments. `partial` and `incoming` have room for a block of rows. On a grid that is not square the
 * last step of the sum is along the lowest bit of the column, and each of the two needs only one half: which one,
 * the transposed rank decides.
 */
static void multiply(const struct grid *grid, const struct matrix *matrix, const double *vector, double *product,
                     double *partial, double *incoming)
{
    for (int row = 0; row < matrix->rows; row++) {
        double sum = 0;
        for (size_t at = matrix->starts[row]; at < matrix->starts[row + 1]; at++)
            sum += matrix->values[at] * vector[matrix->columns[at]];
        partial[row] = sum;
    }
    const bool square = grid->rows == grid->columns;
    int first = 0, count = matrix->rows;
    for (int bit = grid->columns / 2; bit > 0; bit /= 2) {
        const int partner = grid->row * grid->columns + (grid->column ^ bit);
        int send_first = first, send_count = count;
        if (!square && bit == 1) {
            const bool upper = grid->column % 2 == 1;
            send_first = upper ? 0 : grid->half;
            send_count = upper ? grid->half : matrix->rows - grid->half;
            first = upper ? grid->half : 0;
            count = matrix->rows - send_count;
        }
        MPI_Sendrecv(partial + send_first, send_count, MPI_DOUBLE, partner, 2, incoming + first, count, MPI_DOUBLE,
                     partner, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = first; i < first + count; i++)
            partial[i] += incoming[i];
    }
    if (grid->transposed == grid->rank)
        memcpy(product, partial + first, (size_t)count * sizeof(double));
    else
        MPI_Sendrecv(partial + first, count, MPI_DOUBLE, grid->transposed, 3, product, grid->block_columns.count,
                     MPI_DOUBLE, grid->transposed, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* ---- the method ---- */

struct vectors {
    double *x, *z, *p, *q, *r;
    double *partial, *incoming;
};

/* Solves A z = x approximately; answers the norm of x - A z. */
static double conjugate_gradient(const struct grid *grid, const struct matrix *matrix, struct vectors *v)
{
    const int count = grid->block_columns.count;
    for (int i = 0; i < count; i++) {
        v->z[i] = 0;
        v->r[i] = v->p[i] = v->x[i];
    }
    double rho = dot(grid, v->r, v->r);
    for (int iteration = 0; iteration < INNER_ITERATIONS; iteration++) {
        multiply(grid, matrix, v->p, v->q, v->partial, v->incoming);
        const double alpha = rho / dot(grid, v->p, v->q), rho_before = rho;
        for (int i = 0; i < count; i++) {
            v->z[i] += alpha * v->p[i];
            v->r[i] -= alpha * v->q[i];
        }
        rho = dot(grid, v->r, v->r);
        const double beta = rho / rho_before;
        for (int i = 0; i < count; i++)
            v->p[i] = v->r[i] + beta * v->p[i];
    }
    multiply(grid, matrix, v->z, v->r, v->partial, v->incoming);
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (v->x[i] - v->r[i]) * (v->x[i] - v->r[i]);
    return sqrt(sum_over_row(grid, sum));
}

/* One step of the inverse iteration; answers the estimate of the eigenvalue. */
static double power_step(const struct problem *problem, const struct grid *grid, const struct matrix *matrix,
                         struct vectors *v, double *residual)
{
    *residual = conjugate_gradient(grid, matrix, v);
    const double xz = dot(grid, v->x, v->z), scale = 1 / sqrt(dot(grid, v->z, v->z));
    for (int i = 0; i < grid->block_columns.count; i++)
        v->x[i] = scale * v->z[i];
    return problem->shift + 1 / xz;
}

static void start_vector(const struct grid *grid, double *x)
{
    for (int i = 0; i < grid->block_columns.count; i++)
        x[i] = 1;
}

int main(int argc, char **argv)
{
    struct bench bench = {.workload = "cg", .classes = "S|W|A|B|C"};
    bench_begin(&bench, &argc, &argv, "NPB CG: smallest eigenvalue of a sparse matrix by conjugate gradients.", NULL,
                NULL, 0);
    const struct problem *problem = &problems[bench.class_index];
    if (log2_exact(bench.ranks) < 0)
        bench_refuse(&bench, "the number of ranks must be a power of two, not %d", bench.ranks);
    if (bench.ranks > problem->size)
        bench_refuse(&bench, "class %s has too few rows for %d ranks", bench.class_name, bench.ranks);

    const struct grid grid = make_grid(&bench, problem->size);
    const struct matrix matrix = make_matrix(problem, &grid);
    const size_t count = (size_t)grid.block_columns.count, rows = (size_t)matrix.rows;
    double *memory = bench_allocate(5 * count + 2 * rows, sizeof(double));
    struct vectors vectors = {
        .x = memory,
        .z = memory + count,
        .p = memory + 2 * count,
        .q = memory + 3 * count,
        .r = memory + 4 * count,
        .partial = memory + 5 * count,
        .incoming = memory + 5 * count + rows,
    };

    double zeta = 0, residual = 0;
    start_vector(&grid, vectors.x);
    power_step(problem, &grid, &matrix, &vectors, &residual);
    start_vector(&grid, vectors.x);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = bench_now();
    for (int iteration = 0; iteration < problem->iterations; iteration++)
        zeta = power_step(problem, &grid, &matrix, &vectors, &residual);
    const double seconds = bench_now() - start;

    /* Operations as NPB counts them, and its tolerance. */
    const double n = problem->size, nz = (double)problem->nonzeros * (problem->nonzeros + 1);
    struct result result = {
        .iterations = problem->iterations,
        .seconds = seconds,
        .rate_key = "mflops",
        .work = 2 * problem->iterations * n * (3 + nz + INNER_ITERATIONS * (5 + nz) + 3) * 1e-6,
        .checked = true,
        .max_error = relative_error(&zeta, &problem->zeta, 1),
    };
    result.passed = result.max_error <= 1e-10;
    snprintf(result.size, sizeof result.size, "%d", problem->size);
    char extra[96];
    snprintf(extra, sizeof extra, ",\"zeta\":%.13f,\"residual\":%.6g", zeta, residual);
    result.extra = extra;
    return bench_end(&bench, &result);
}
