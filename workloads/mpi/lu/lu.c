/*
 * NPB LU: solves the 3-D compressible Navier-Stokes equations by symmetric successive over-relaxation, with 5x5 blocks
 * (NAS report RNR-91-002, section 3, and NAS-95-020, 4.1).
 *
 * The grid is cut along x and y among ranks; z stays whole. A sweep needs the neighbour before in each of x, y and z, so it
 * runs through the ranks as a wavefront, plane by plane of z: very many small messages. The right-hand side needs two
 * layers of ghost points along x and y.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OMEGA 1.2
#define GHOSTS 2
#define FIELDS 5 /* density, three momenta, energy */

/* Of the gas: c1 ... c5 of the specification, and what occurs of them together. */
#define C1 1.4
#define C2 0.4
#define C34 (0.1 * 1.0)
#define C15 (1.4 * 1.4)
#define C1345 (C15 * C34)
#define DISSIPATION 0.25 /* the largest diffusion coefficient over 4 */

static const double diffusion[3] = {0.75, 0.75, 1.0}; /* of all fields, along x, y, z */

/* The exact solution: a polynomial of degree 4 in each coordinate, for each field. */
static const double exact_coefficients[FIELDS][13] = {
    {2.0, 0.0, 0.0, 4.0, 5.0, 3.0, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3},
    {1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5},
    {2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4},
    {2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3},
    {5.0, 4.0, 3.0, 2.0, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2},
};

struct problem {
    int points, iterations;
    double step;
    /* Published: norms of the residual and of the error, and the surface integral (NPB 2, LU). */
    double residual[FIELDS], error[FIELDS], integral;
};

static const struct problem problems[] = {
    {12, 50, 0.5,
     {1.6196343210976702e-02, 2.1976745164821318e-03, 1.5179927653399185e-03, 1.5029584435994323e-03,
      3.4264073155896461e-02},
     {6.4223319957960924e-04, 8.4144342047347926e-05, 5.8588269616485186e-05, 5.8474222595157350e-05,
      1.3103347914111294e-03},
     7.8418928865937083e+00},
    {33, 300, 1.5e-3,
     {0.1236511638192e+02, 0.1317228477799e+01, 0.2550120713095e+01, 0.2326187750252e+01, 0.2826799444189e+02},
     {0.4867877144216e+00, 0.5064652880982e-01, 0.9281818101960e-01, 0.8570126542733e-01, 0.1084277417792e+01},
     0.1161399311023e+02},
    {64, 250, 2.0,
     {7.7902107606689367e+02, 6.3402765259692870e+01, 1.9499249727292479e+02, 1.7845301160418537e+02,
      1.8384760349464247e+03},
     {2.9964085685471943e+01, 2.8194576365003349e+00, 7.3473412698774742e+00, 6.7139225687777051e+00,
      7.0715315688392578e+01},
     2.6030925604886277e+01},
    {102, 250, 2.0,
     {3.5532672969982736e+03, 2.6214750795310692e+02, 8.8333721850952190e+02, 7.7812774739425265e+02,
      7.3087969592545314e+03},
     {1.1401176380212709e+02, 8.1098963655421574e+00, 2.8480597317698308e+01, 2.5905394567832939e+01,
      2.6054907504857413e+02},
     4.7887162703308227e+01},
    {162, 250, 2.0,
     {1.03766980323537846e+04, 8.92212458801008552e+02, 2.56238814582660871e+03, 2.19194343857831427e+03,
      1.78078057261061185e+04},
     {2.15986399716949279e+02, 1.55789559239863600e+01, 5.41318863077207766e+01, 4.82262643154045421e+01,
      4.55902910043250358e+02},
     6.66404553572181300e+01},
};

enum { X, Y, Z };

struct solver {
    const struct bench *bench;
    const struct problem *problem;
    int ranks_x, ranks_y;
    int before[2], after[2]; /* neighbours along x and y, or MPI_PROC_NULL */
    struct range own[3];     /* points of this rank along each axis, ghosts not counted */
    size_t stride[3];        /* numbers from one point to the next along an axis */
    size_t numbers;          /* of one array */
    double *u, *rsd, *forcing;
    double *line;            /* fluxes along one line of points */
    double *buffer;          /* faces on their way: two to send, two received */
    size_t face_numbers;
    double first[3], second[3]; /* 1/(2h) and 1/h^2 along each axis */
};

typedef double block[FIELDS][FIELDS];

/* The point (x, y, z) of this rank; x and y may be ghosts, from -GHOSTS on. */
static size_t at(const struct solver *solver, int x, int y, int z)
{
    return (size_t)(x + GHOSTS) * solver->stride[X] + (size_t)(y + GHOSTS) * solver->stride[Y] +
           (size_t)z * solver->stride[Z];
}

/* Inner points along an axis as positions of this rank: the whole grid's border is left out. */
static struct range inner(const struct solver *solver, int axis)
{
    const struct range own = solver->own[axis];
    const int first = own.first == 0 ? 1 : 0;
    const int last = own.first + own.count == solver->problem->points ? own.count - 1 : own.count;
    return (struct range){first, last - first};
}

/* ---- start ---- */

static void exact(const struct problem *problem, int i, int j, int k, double value[FIELDS])
{
    const double last = problem->points - 1;
    const double place[3] = {i / last, j / last, k / last};
    for (int m = 0; m < FIELDS; m++) {
        const double *c = exact_coefficients[m];
        value[m] = c[0];
        for (int axis = 0; axis < 3; axis++) {
            const double p = place[axis];
            value[m] += p * (c[1 + axis] + p * (c[4 + axis] + p * (c[7 + axis] + p * c[10 + axis])));
        }
    }
}

/* The exact solution everywhere, ghosts included. */
static void fill_exact(const struct solver *solver, double *field)
{
    const int points = solver->problem->points;
    for (int z = 0; z < points; z++)
        for (int y = -GHOSTS; y < solver->own[Y].count + GHOSTS; y++)
            for (int x = -GHOSTS; x < solver->own[X].count + GHOSTS; x++) {
                const int i = solver->own[X].first + x, j = solver->own[Y].first + y;
                if (i >= 0 && i < points && j >= 0 && j < points)
                    exact(solver->problem, i, j, z, field + at(solver, x, y, z));
            }
}

/* Exact on the border; inside, interpolated between opposite faces along each axis and combined. */
static void fill_start(const struct solver *solver)
{
    const int points = solver->problem->points, last = points - 1;
    for (int z = 0; z < points; z++)
        for (int y = 0; y < solver->own[Y].count; y++)
            for (int x = 0; x < solver->own[X].count; x++) {
                const int i = solver->own[X].first + x, j = solver->own[Y].first + y;
                double *u = solver->u + at(solver, x, y, z);
                if (i == 0 || i == last || j == 0 || j == last || z == 0 || z == last) {
                    exact(solver->problem, i, j, z, u);
                    continue;
                }
                double low[3][FIELDS], high[3][FIELDS];
                exact(solver->problem, 0, j, z, low[X]);
                exact(solver->problem, last, j, z, high[X]);
                exact(solver->problem, i, 0, z, low[Y]);
                exact(solver->problem, i, last, z, high[Y]);
                exact(solver->problem, i, j, 0, low[Z]);
                exact(solver->problem, i, j, last, high[Z]);
                const double place[3] = {i / (double)last, j / (double)last, z / (double)last};
                for (int m = 0; m < FIELDS; m++) {
                    double p[3];
                    for (int axis = 0; axis < 3; axis++)
                        p[axis] = (1 - place[axis]) * low[axis][m] + place[axis] * high[axis][m];
                    u[m] = p[X] + p[Y] + p[Z] - p[X] * p[Y] - p[Y] * p[Z] - p[Z] * p[X] + p[X] * p[Y] * p[Z];
                }
            }
}

/* ---- the right-hand side ---- */

static inline void convective_flux(int axis, const double *u, double *flux)
{
    const double velocity = u[1 + axis] / u[0];
    const double q = 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / u[0];
    flux[0] = u[1 + axis];
    for (int m = 1; m <= 3; m++)
        flux[m] = u[m] * velocity;
    flux[1 + axis] += C2 * (u[4] - q);
    flux[4] = (C1 * u[4] - C2 * q) * velocity;
}

/* Between a point and the one before; `per_step` is 1/h. The density has none. */
static inline void viscous_flux(int axis, const double *u, const double *before, double per_step, double *flux)
{
    double now[FIELDS], then[FIELDS], squares = 0;
    for (int m = 1; m < FIELDS; m++) {
        now[m] = u[m] / u[0];
        then[m] = before[m] / before[0];
    }
    for (int m = 1; m <= 3; m++) {
        flux[m] = per_step * (now[m] - then[m]);
        squares += now[m] * now[m] - then[m] * then[m];
    }
    flux[1 + axis] *= 4.0 / 3.0;
    const double along = now[1 + axis] * now[1 + axis] - then[1 + axis] * then[1 + axis];
    flux[4] = 0.5 * (1 - C15) * per_step * squares + per_step / 6 * along + C15 * per_step * (now[4] - then[4]);
}

/* Adds to `out` what the equations say along one line of `count` points, of which the first is number `first` of the grid. */
static inline void operate_on_line(const struct solver *solver, int axis, const double *u, double *out, int first,
                                   struct range points)
{
    const ptrdiff_t step = (ptrdiff_t)solver->stride[axis];
    const double first_order = solver->first[axis], second_order = solver->second[axis], per_step = 2 * first_order;
    const int last = solver->problem->points - 1;
    double *flux = solver->line + FIELDS;

    for (int p = points.first - 1; p <= points.first + points.count; p++)
        convective_flux(axis, u + p * step, flux + p * FIELDS);
    for (int p = points.first; p < points.first + points.count; p++)
        for (int m = 0; m < FIELDS; m++)
            out[p * step + m] -= first_order * (flux[(p + 1) * FIELDS + m] - flux[(p - 1) * FIELDS + m]);

    for (int p = points.first; p <= points.first + points.count; p++)
        viscous_flux(axis, u + p * step, u + (p - 1) * step, per_step, flux + p * FIELDS);
    for (int p = points.first; p < points.first + points.count; p++) {
        const double *here = u + p * step;
        double *result = out + p * step;
        for (int m = 0; m < FIELDS; m++)
            result[m] += diffusion[axis] * second_order * (here[m - step] - 2 * here[m] + here[m + step]);
        for (int m = 1; m < FIELDS; m++)
            result[m] += per_step * C34 * (flux[(p + 1) * FIELDS + m] - flux[p * FIELDS + m]);
    }

    /* Fourth-order dissipation, one-sided beside the border. */
    for (int p = points.first; p < points.first + points.count; p++) {
        const double *here = u + p * step;
        double *result = out + p * step;
        const int place = first + p;
        for (int m = 0; m < FIELDS; m++) {
            double sum;
            if (place == 1)
                sum = 5 * here[m] - 4 * here[m + step] + here[m + 2 * step];
            else if (place == last - 1)
                sum = here[m - 2 * step] - 4 * here[m - step] + 5 * here[m];
            else
                sum = (place == 2 ? 0 : here[m - 2 * step]) - 4 * here[m - step] + 6 * here[m] - 4 * here[m + step] +
                      (place == last - 2 ? 0 : here[m + 2 * step]);
            result[m] -= DISSIPATION * sum;
        }
    }
}

/* Adds to `out` what the equations say about the field `u` at inner points. */
static void operate(const struct solver *solver, const double *u, double *out)
{
    const struct range xs = inner(solver, X), ys = inner(solver, Y), zs = inner(solver, Z);
    for (int z = zs.first; z < zs.first + zs.count; z++) {
        for (int y = ys.first; y < ys.first + ys.count; y++) {
            const size_t line = at(solver, 0, y, z);
            operate_on_line(solver, X, u + line, out + line, solver->own[X].first, xs);
        }
        for (int x = xs.first; x < xs.first + xs.count; x++) {
            const size_t line = at(solver, x, 0, z);
            operate_on_line(solver, Y, u + line, out + line, solver->own[Y].first, ys);
        }
    }
    for (int y = ys.first; y < ys.first + ys.count; y++)
        for (int x = xs.first; x < xs.first + xs.count; x++) {
            const size_t line = at(solver, x, y, 0);
            operate_on_line(solver, Z, u + line, out + line, 0, zs);
        }
}

/* Copies GHOSTS layers across `axis` from position `first` on to `face`, or back. */
static size_t copy_layers(const struct solver *solver, int axis, int first, double *face, bool back)
{
    const int other = axis == X ? Y : X;
    size_t used = 0;
    for (int z = 0; z < solver->problem->points; z++)
        for (int along = 0; along < solver->own[other].count; along++)
            for (int layer = first; layer < first + GHOSTS; layer++) {
                const int x = axis == X ? layer : along, y = axis == X ? along : layer;
                double *point = solver->u + at(solver, x, y, z);
                if (back)
                    memcpy(point, face + used, FIELDS * sizeof(double));
                else
                    memcpy(face + used, point, FIELDS * sizeof(double));
                used += FIELDS;
            }
    return used;
}

static void exchange_ghosts(const struct solver *solver)
{
    double *send[2] = {solver->buffer, solver->buffer + solver->face_numbers};
    double *receive[2] = {solver->buffer + 2 * solver->face_numbers, solver->buffer + 3 * solver->face_numbers};
    for (int axis = X; axis <= Y; axis++) {
        const int own = solver->own[axis].count;
        copy_layers(solver, axis, 0, send[0], false);
        const int count = (int)copy_layers(solver, axis, own - GHOSTS, send[1], false);
        MPI_Request requests[4];
        MPI_Status statuses[4]; /* to compilers MPICH's MPI_STATUSES_IGNORE is an array too short */
        MPI_Irecv(receive[0], count, MPI_DOUBLE, solver->before[axis], axis, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(receive[1], count, MPI_DOUBLE, solver->after[axis], axis, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(send[0], count, MPI_DOUBLE, solver->before[axis], axis, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(send[1], count, MPI_DOUBLE, solver->after[axis], axis, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, statuses);
        if (solver->before[axis] != MPI_PROC_NULL)
            copy_layers(solver, axis, -GHOSTS, receive[0], true);
        if (solver->after[axis] != MPI_PROC_NULL)
            copy_layers(solver, axis, own, receive[1], true);
    }
}

/* What is left to fulfil, at inner points. */
static void residual(const struct solver *solver)
{
    exchange_ghosts(solver);
    for (size_t i = 0; i < solver->numbers; i++)
        solver->rsd[i] = -solver->forcing[i];
    operate(solver, solver->u, solver->rsd);
}

/* ---- the sweeps ---- */

/* Adds `scale` times the derivative of the convective flux by the fields. */
static inline void add_convective(int axis, const double *u, double scale, block a)
{
    const double per_density = 1 / u[0];
    const double v[3] = {u[1] * per_density, u[2] * per_density, u[3] * per_density};
    const double along = v[axis], energy = u[4] * per_density;
    const double squares = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
    a[0][1 + axis] += scale;
    for (int p = 0; p < 3; p++) {
        a[1 + p][0] -= scale * v[p] * along;
        a[1 + p][1 + p] += scale * along;
        a[1 + p][1 + axis] += scale * v[p];
        a[1 + axis][1 + p] -= scale * C2 * v[p];
        a[4][1 + p] -= scale * C2 * v[p] * along;
    }
    a[1 + axis][0] += scale * 0.5 * C2 * squares;
    a[1 + axis][4] += scale * C2;
    a[4][0] += scale * (C2 * squares - C1 * energy) * along;
    a[4][1 + axis] += scale * (C1 * energy - 0.5 * C2 * squares);
    a[4][4] += scale * C1 * along;
}

/* Adds `scale` times the derivative of the viscous flux, and of diffusion, by the fields. */
static inline void add_viscous(int axis, const double *u, double scale, block a)
{
    const double per_density = 1 / u[0];
    a[0][0] += scale * diffusion[axis];
    double energy = -C1345 * u[4] * per_density * per_density;
    for (int m = 1; m <= 3; m++) {
        const double stress = (m == 1 + axis ? 4.0 / 3.0 : 1.0) * C34;
        const double velocity = u[m] * per_density;
        a[m][0] -= scale * stress * velocity * per_density;
        a[m][m] += scale * (stress * per_density + diffusion[axis]);
        a[4][m] += scale * (stress - C1345) * velocity * per_density;
        energy -= (stress - C1345) * velocity * velocity * per_density;
    }
    a[4][0] += scale * energy;
    a[4][4] += scale * (C1345 * per_density + diffusion[axis]);
}

/* sum += scale * (the block that couples a point to its neighbour along `axis`) * v. `sign` is that of the convective
 * part: -1 for the neighbour before, +1 for the one after. */
static inline void add_neighbour(const struct solver *solver, int axis, int sign, const double *u, const double *v,
                                 double sum[FIELDS])
{
    block a = {{0}};
    const double step = solver->problem->step;
    add_convective(axis, u, sign * step * solver->first[axis], a);
    add_viscous(axis, u, -step * solver->second[axis], a);
    for (int m = 0; m < FIELDS; m++)
        for (int n = 0; n < FIELDS; n++)
            sum[m] += a[m][n] * v[n];
}

/* Solves with a point's own block, in place, by elimination without pivoting: the block is dominated by its diagonal. */
static inline void solve_own(const struct solver *solver, const double *u, double right[FIELDS])
{
    block a = {{0}};
    for (int m = 0; m < FIELDS; m++)
        a[m][m] = 1;
    for (int axis = X; axis <= Z; axis++)
        add_viscous(axis, u, 2 * solver->problem->step * solver->second[axis], a);
    for (int pivot = 0; pivot < FIELDS; pivot++) {
        const double per_pivot = 1 / a[pivot][pivot];
        for (int row = pivot + 1; row < FIELDS; row++) {
            const double factor = a[row][pivot] * per_pivot;
            for (int column = pivot + 1; column < FIELDS; column++)
                a[row][column] -= factor * a[pivot][column];
            right[row] -= factor * right[pivot];
        }
    }
    for (int row = FIELDS - 1; row >= 0; row--) {
        for (int column = row + 1; column < FIELDS; column++)
            right[row] -= a[row][column] * right[column];
        right[row] /= a[row][row];
    }
}

/*
 * Moves one line of `rsd` in plane z between `face` and the points at position `place` along `axis`.
 */
static int copy_line(const struct solver *solver, int axis, int place, int z, double *face, bool back)
{
    const int other = axis == X ? Y : X;
    for (int along = 0; along < solver->own[other].count; along++) {
        double *point = solver->rsd + (axis == X ? at(solver, place, along, z) : at(solver, along, place, z));
        if (back)
            memcpy(point, face + along * FIELDS, FIELDS * sizeof(double));
        else
            memcpy(face + along * FIELDS, point, FIELDS * sizeof(double));
    }
    return solver->own[other].count * FIELDS;
}

/* Receives into the ghosts of plane z what the sweep needs, or sends what the next ranks need. `up` is the upper sweep,
 * which runs backwards. */
static void pass_wavefront(const struct solver *solver, int z, bool up, bool receive)
{
    for (int axis = X; axis <= Y; axis++) {
        const int own = solver->own[axis].count;
        const int partner = receive != up ? solver->before[axis] : solver->after[axis];
        const int place = receive ? (up ? own : -1) : (up ? 0 : own - 1);
        const int numbers = solver->own[axis == X ? Y : X].count * FIELDS, tag = 2 + axis;
        if (partner == MPI_PROC_NULL)
            continue;
        if (receive) {
            MPI_Recv(solver->buffer, numbers, MPI_DOUBLE, partner, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            copy_line(solver, axis, place, z, solver->buffer, true);
        } else {
            copy_line(solver, axis, place, z, solver->buffer, false);
            MPI_Send(solver->buffer, numbers, MPI_DOUBLE, partner, tag, MPI_COMM_WORLD);
        }
    }
}

static inline void relax_lower(const struct solver *solver, size_t point)
{
    double sum[FIELDS] = {0}, *v = solver->rsd + point;
    const double *u = solver->u + point;
    const size_t *stride = solver->stride;
    add_neighbour(solver, Z, -1, u - stride[Z], v - stride[Z], sum);
    add_neighbour(solver, Y, -1, u - stride[Y], v - stride[Y], sum);
    add_neighbour(solver, X, -1, u - stride[X], v - stride[X], sum);
    for (int m = 0; m < FIELDS; m++)
        v[m] -= OMEGA * sum[m];
    solve_own(solver, u, v);
}

static inline void relax_upper(const struct solver *solver, size_t point)
{
    double sum[FIELDS] = {0}, *v = solver->rsd + point;
    const double *u = solver->u + point;
    const size_t *stride = solver->stride;
    add_neighbour(solver, Z, 1, u + stride[Z], v + stride[Z], sum);
    add_neighbour(solver, Y, 1, u + stride[Y], v + stride[Y], sum);
    add_neighbour(solver, X, 1, u + stride[X], v + stride[X], sum);
    for (int m = 0; m < FIELDS; m++)
        sum[m] *= OMEGA;
    solve_own(solver, u, sum);
    for (int m = 0; m < FIELDS; m++)
        v[m] -= sum[m];
}

static void sweep(const struct solver *solver, bool up)
{
    const struct range xs = inner(solver, X), ys = inner(solver, Y), zs = inner(solver, Z);
    for (int plane = 0; plane < zs.count; plane++) {
        const int z = up ? zs.first + zs.count - 1 - plane : zs.first + plane;
        pass_wavefront(solver, z, up, true);
        for (int row = 0; row < ys.count; row++) {
            const int y = up ? ys.first + ys.count - 1 - row : ys.first + row;
            for (int column = 0; column < xs.count; column++) {
                const int x = up ? xs.first + xs.count - 1 - column : xs.first + column;
                if (up)
                    relax_upper(solver, at(solver, x, y, z));
                else
                    relax_lower(solver, at(solver, x, y, z));
            }
        }
        pass_wavefront(solver, z, up, false);
    }
}

static void iterate(const struct solver *solver)
{
    const double scale = 1 / (OMEGA * (2 - OMEGA));
    for (size_t i = 0; i < solver->numbers; i++)
        solver->rsd[i] *= solver->problem->step;
    sweep(solver, false);
    sweep(solver, true);
    const struct range xs = inner(solver, X), ys = inner(solver, Y), zs = inner(solver, Z);
    for (int z = zs.first; z < zs.first + zs.count; z++)
        for (int y = ys.first; y < ys.first + ys.count; y++) {
            const size_t line = at(solver, xs.first, y, z);
            for (size_t i = 0; i < (size_t)xs.count * FIELDS; i++)
                solver->u[line + i] += scale * solver->rsd[line + i];
        }
    residual(solver);
}

/* ---- the check ---- */

/* Norms over inner points of `field`, or of its difference to the exact solution. */
static void norms(const struct solver *solver, const double *field, bool to_exact, double result[FIELDS])
{
    const struct range xs = inner(solver, X), ys = inner(solver, Y), zs = inner(solver, Z);
    double sums[FIELDS] = {0};
    for (int z = zs.first; z < zs.first + zs.count; z++)
        for (int y = ys.first; y < ys.first + ys.count; y++)
            for (int x = xs.first; x < xs.first + xs.count; x++) {
                const double *value = field + at(solver, x, y, z);
                double should[FIELDS] = {0};
                if (to_exact)
                    exact(solver->problem, solver->own[X].first + x, solver->own[Y].first + y, z, should);
                for (int m = 0; m < FIELDS; m++)
                    sums[m] += (value[m] - should[m]) * (value[m] - should[m]);
            }
    MPI_Allreduce(sums, result, FIELDS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    const double count = pow(solver->problem->points - 2, 3);
    for (int m = 0; m < FIELDS; m++)
        result[m] = sqrt(result[m] / count);
}

static double pressure(const double *u)
{
    return C2 * (u[4] - 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / u[0]);
}

/*
 * Integral of the pressure over the faces of a box within the grid, by trapezoids: each point counts as often as it is the
 * corner of a cell. Only this rank's points are added; the sum over ranks is the integral.
 */
static double surface_integral(const struct solver *solver)
{
    const int points = solver->problem->points;
    const int low[3] = {1, 1, 2}, high[3] = {points - 2, points - 3, points - 2};
    const double h = 1.0 / (points - 1);
    double sum = 0, total = 0;
    for (int z = low[Z]; z <= high[Z]; z++)
        for (int y = 0; y < solver->own[Y].count; y++)
            for (int x = 0; x < solver->own[X].count; x++) {
                const int place[3] = {solver->own[X].first + x, solver->own[Y].first + y, z};
                bool inside = true;
                double corner[3];
                for (int axis = 0; axis < 3; axis++) {
                    inside = inside && place[axis] >= low[axis] && place[axis] <= high[axis];
                    corner[axis] = place[axis] == low[axis] || place[axis] == high[axis] ? 1 : 2;
                }
                for (int axis = 0; inside && axis < 3; axis++)
                    if (place[axis] == low[axis] || place[axis] == high[axis])
                        sum += pressure(solver->u + at(solver, x, y, z)) * corner[(axis + 1) % 3] *
                               corner[(axis + 2) % 3];
            }
    MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return 0.25 * h * h * total;
}

/* ---- */

static void make_solver(struct solver *solver, const struct bench *bench, const struct problem *problem)
{
    int parts[2] = {0, 0};
    MPI_Dims_create(bench->ranks, 2, parts);
    /* Consecutive ranks are neighbours along x, as in NPB. */
    *solver = (struct solver){.bench = bench, .problem = problem, .ranks_x = parts[1], .ranks_y = parts[0]};
    const int place[2] = {bench->rank % solver->ranks_x, bench->rank / solver->ranks_x};
    const int ranks[2] = {solver->ranks_x, solver->ranks_y}, steps[2] = {1, solver->ranks_x};
    for (int axis = X; axis <= Y; axis++) {
        if (problem->points / ranks[axis] < GHOSTS)
            bench_refuse(bench, "class %s has too few points for %d x %d ranks", bench->class_name, ranks[X], ranks[Y]);
        solver->own[axis] = range_of_part(problem->points, ranks[axis], place[axis]);
        solver->before[axis] = place[axis] > 0 ? bench->rank - steps[axis] : MPI_PROC_NULL;
        solver->after[axis] = place[axis] + 1 < ranks[axis] ? bench->rank + steps[axis] : MPI_PROC_NULL;
    }
    solver->own[Z] = (struct range){0, problem->points};
    solver->stride[X] = FIELDS;
    solver->stride[Y] = solver->stride[X] * (size_t)(solver->own[X].count + 2 * GHOSTS);
    solver->stride[Z] = solver->stride[Y] * (size_t)(solver->own[Y].count + 2 * GHOSTS);
    solver->numbers = solver->stride[Z] * (size_t)problem->points;
    for (int axis = 0; axis < 3; axis++) {
        const double per_step = problem->points - 1;
        solver->first[axis] = per_step / 2;
        solver->second[axis] = per_step * per_step;
    }
    solver->u = bench_allocate(solver->numbers, sizeof(double));
    solver->rsd = bench_allocate(solver->numbers, sizeof(double));
    solver->forcing = bench_allocate(solver->numbers, sizeof(double));
    solver->line = bench_allocate((size_t)(problem->points + 4) * FIELDS, sizeof(double));
    const int longest = solver->own[X].count > solver->own[Y].count ? solver->own[X].count : solver->own[Y].count;
    solver->face_numbers = (size_t)longest * (size_t)problem->points * GHOSTS * FIELDS;
    solver->buffer = bench_allocate(4 * solver->face_numbers, sizeof(double));
}

int main(int argc, char **argv)
{
    struct bench bench = {.workload = "lu", .classes = "S|W|A|B|C"};
    bench_begin(&bench, &argc, &argv, "NPB LU: Navier-Stokes by SSOR, a wavefront of many small messages.", NULL, NULL, 0);
    const struct problem *problem = &problems[bench.class_index];
    struct solver solver;
    make_solver(&solver, &bench, problem);

    fill_exact(&solver, solver.u);
    operate(&solver, solver.u, solver.forcing);
    /* One iteration ahead, unmeasured, touches all memory. */
    fill_start(&solver);
    residual(&solver);
    iterate(&solver);
    fill_start(&solver);
    residual(&solver);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = bench_now();
    for (int iteration = 0; iteration < problem->iterations; iteration++)
        iterate(&solver);
    const double seconds = bench_now() - start;

    double residuals[FIELDS], errors[FIELDS];
    norms(&solver, solver.rsd, false, residuals);
    norms(&solver, solver.u, true, errors);
    const double integral = surface_integral(&solver);
    double worst = relative_error(residuals, problem->residual, FIELDS);
    worst = fmax(worst, relative_error(errors, problem->error, FIELDS));
    worst = fmax(worst, relative_error(&integral, &problem->integral, 1));

    /* Operations as NPB counts them, and its tolerance. */
    const double n = problem->points;
    struct result result = {
        .iterations = problem->iterations,
        .seconds = seconds,
        .rate_key = "mflops",
        .work = problem->iterations * (1984.77 * n * n * n - 10923.3 * n * n + 27770.9 * n - 144010) * 1e-6,
        .checked = true,
        .passed = worst <= 1e-8,
        .max_error = worst,
    };
    snprintf(result.size, sizeof result.size, "%dx%dx%d", problem->points, problem->points, problem->points);
    return bench_end(&bench, &result);
}
