/*
 * Molecular dynamics of a Lennard-Jones liquid: the melt of a face-centred cubic crystal at density 0.8442 and temperature
 * 1.44, with a cutoff of 2.5, a skin of 0.3 and steps of 0.005, as in the well-known benchmark of LAMMPS (Plimpton, J. Comp.
 * Phys. 117, 1995). It stands for programs like NAMD and LAMMPS: short-range forces, and a halo with six neighbours.
 *
 * Space is divided among the ranks. Every 20 steps atoms move to the ranks whose space they are in, and lists of neighbours
 * are made anew; in between only positions of copies are exchanged. Every pair is computed from both sides, so that no
 * forces travel.
 */
#include "forces.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DENSITY 0.8442
#define TEMPERATURE 1.44
#define SKIN 0.3
#define TIME_STEP 0.005
#define REBUILD 20
#define DEFAULT_STEPS 100

/* What LAMMPS prints for 32,000 atoms (bench/in.lj): at the start, where the crystal decides alone, and after 100 steps. */
#define PUBLISHED_ATOMS 32000
#define PUBLISHED_ENERGY (-6.7733681)
#define PUBLISHED_PRESSURE (-5.0197073)
#define PUBLISHED_TEMPERATURE_100 0.7574531
#define PUBLISHED_TOTAL_100 (-4.6223613)

/* Cells of the crystal along each axis, with four atoms each: 2048, 6912, 32000, 318028 and 1048576 atoms. */
static const int crystal_cells[] = {8, 12, 20, 43, 64};

/* Of the whole system, by atom. */
struct state {
    double kinetic, potential; /* energies */
    double shifted;            /* potential energy that ends in zero at the cutoff */
    double temperature, pressure;
    double momentum; /* the largest component */
};

struct system {
    const struct bench *bench;
    struct atoms atoms;
    struct neighbours neighbours;
    struct engine *engine;
    double count, volume;
};

/* ---- start ---- */

/* A number in [-1/2, 1/2) that depends on `key` alone (a finaliser of SplitMix64), so that an atom has it on any rank. */
static double hashed(uint64_t key)
{
    key += UINT64_C(0x9e3779b97f4a7c15);
    key = (key ^ key >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ key >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((key ^ key >> 31) >> 11) * 0x1p-53 - 0.5;
}

static void make_crystal(struct system *system, int cells)
{
    static const double basis[4][3] = {{0, 0, 0}, {0.5, 0.5, 0}, {0.5, 0, 0.5}, {0, 0.5, 0.5}};
    struct atoms *atoms = &system->atoms;
    const double side = atoms->box / cells;
    uint64_t id = 0;
    for (int z = 0; z < cells; z++)
        for (int y = 0; y < cells; y++)
            for (int x = 0; x < cells; x++)
                for (int atom = 0; atom < 4; atom++, id++) {
                    /* A quarter of a cell off the origin: no atom lies on a border. */
                    const double place[3] = {(x + basis[atom][0] + 0.25) * side, (y + basis[atom][1] + 0.25) * side,
                                             (z + basis[atom][2] + 0.25) * side};
                    bool here = true;
                    for (int axis = 0; axis < 3; axis++)
                        here = here && place[axis] >= atoms->low[axis] && place[axis] < atoms->high[axis];
                    if (here)
                        atoms_add(atoms, place, (double[3]){hashed(3 * id), hashed(3 * id + 1), hashed(3 * id + 2)},
                                  (double)id);
                }
}

/* No momentum, and exactly the temperature. */
static void settle_velocities(struct system *system)
{
    struct atoms *atoms = &system->atoms;
    double sums[4] = {0}, totals[4];
    for (int i = 0; i < atoms->own; i++)
        for (int axis = 0; axis < 3; axis++)
            sums[axis] += atoms->v[3 * i + axis];
    MPI_Allreduce(sums, totals, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < atoms->own; i++)
        for (int axis = 0; axis < 3; axis++) {
            double *v = &atoms->v[3 * i + axis];
            *v -= totals[axis] / system->count;
            sums[3] += *v * *v;
        }
    MPI_Allreduce(&sums[3], &totals[3], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    const double scale = sqrt(TEMPERATURE * (3 * system->count - 3) / totals[3]);
    for (int i = 0; i < 3 * atoms->own; i++)
        atoms->v[i] *= scale;
}

/* ---- motion ---- */

static void rebuild(struct system *system)
{
    atoms_migrate(&system->atoms);
    atoms_choose_copies(&system->atoms);
    neighbours_find(&system->neighbours, &system->atoms);
    engine_set_neighbours(system->engine, &system->atoms, &system->neighbours);
}

/* Velocity Verlet. The forces are those of the positions, before and after. */
static void move(struct system *system, long step, struct sums *sums)
{
    struct atoms *atoms = &system->atoms;
    for (int i = 0; i < 3 * atoms->own; i++) {
        atoms->v[i] += 0.5 * TIME_STEP * atoms->f[i];
        atoms->x[i] += TIME_STEP * atoms->v[i];
    }
    if (step % REBUILD == 0)
        rebuild(system);
    else
        atoms_update_copies(atoms);
    engine_forces(system->engine, atoms, sums);
    for (int i = 0; i < 3 * atoms->own; i++)
        atoms->v[i] += 0.5 * TIME_STEP * atoms->f[i];
}

static struct state observe(const struct system *system, const struct sums *sums)
{
    const struct atoms *atoms = &system->atoms;
    double mine[7] = {sums->energy, sums->virial, sums->pairs}, all[7];
    for (int i = 0; i < atoms->own; i++)
        for (int axis = 0; axis < 3; axis++) {
            const double v = atoms->v[3 * i + axis];
            mine[3] += v * v;
            mine[4 + axis] += v;
        }
    MPI_Allreduce(mine, all, 7, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    const double sixth = pow(CUTOFF, -6), at_cutoff = 4 * sixth * (sixth - 1);
    return (struct state){
        .kinetic = 0.5 * all[3] / system->count,
        .potential = all[0] / system->count,
        .shifted = (all[0] - 0.5 * at_cutoff * all[2]) / system->count,
        .temperature = all[3] / (3 * system->count - 3),
        .pressure = (all[3] + all[1]) / (3 * system->volume),
        .momentum = fmax(fabs(all[4]), fmax(fabs(all[5]), fabs(all[6]))) / system->count,
    };
}

/* ---- the check ---- */

/* One thing that must hold: how far it is off, and how far it may be. What is reported is the worst share of that. */
struct condition {
    const char *what;
    double off, allowed;
};

static bool holds(const struct bench *bench, struct condition condition, double *worst)
{
    *worst = fmax(*worst, condition.off / condition.allowed);
    if (condition.off <= condition.allowed)
        return true;
    if (bench->rank == 0)
        fprintf(stderr, "lj: %s is off by %.3g, more than %.3g\n", condition.what, condition.off, condition.allowed);
    return false;
}

/*
 * At the start only the crystal counts: published energy and pressure to all printed digits. Then energy and momentum stay:
 * the energy of a potential that is zero at the cutoff, up to the error of the steps and of the force that ends there. After
 * 100 steps temperature and energy are the published ones within the fluctuations of so many atoms.
 */
static bool check(const struct system *system, const struct state *start, const struct state *end, long steps,
                  double *worst)
{
    const struct bench *bench = system->bench;
    const double rounding = engine_roundoff(system->engine), count = system->count;
    /* The published pressure has the kinetic part of 32,000 atoms. */
    const double kinetic_part = DENSITY * TEMPERATURE, of_all = 1 - 1 / count, of_published = 1 - 1.0 / PUBLISHED_ATOMS;
    const double pressure = PUBLISHED_PRESSURE + kinetic_part * (of_all - of_published);
    const double digits = 1e-7 + 64 * rounding, drift = 2e-3 + 64 * rounding;
    const double energy_change = fabs(end->kinetic + end->shifted - start->kinetic - start->shifted);
    *worst = 0;
    bool right = holds(bench, (struct condition){"the energy of the crystal", fabs(start->potential - PUBLISHED_ENERGY), digits},
                       worst);
    right &= holds(bench, (struct condition){"the pressure of the crystal", fabs(start->pressure - pressure), 10 * digits},
                   worst);
    right &= holds(bench, (struct condition){"the energy at the end", energy_change, drift}, worst);
    right &= holds(bench, (struct condition){"the momentum at the end", end->momentum,
                                             1e-13 + rounding * sqrt((double)steps)}, worst);
    if (steps == DEFAULT_STEPS) {
        const double fluctuation = 5 * sqrt(2 / (3 * count));
        right &= holds(bench, (struct condition){"the temperature after 100 steps",
                                                 fabs(end->temperature / PUBLISHED_TEMPERATURE_100 - 1),
                                                 fluctuation + 0.01}, worst);
        right &= holds(bench, (struct condition){"the energy after 100 steps",
                                                 fabs((end->kinetic + end->potential) / PUBLISHED_TOTAL_100 - 1),
                                                 0.2 * fluctuation + 0.001}, worst);
    }
    return right;
}

int main(int argc, char **argv)
{
    struct bench bench = {.workload = "lj", .classes = "S|W|A|B|C"};
    long steps = DEFAULT_STEPS, device = -1;
    const char *platform = NULL;
    const struct option options[] = {
        {.name = "steps", .value = "N", .help = "steps of the motion [default: 100]", .number = &steps, .minimum = 1},
        {.name = "device", .value = "N", .help = "which device [default: ranks of a node take them in turn]",
         .number = &device},
        {.name = "platform", .value = "SUBSTRING", .help = "which OpenCL platform [default: the first with a device]",
         .text = &platform},
    };
    bench_begin(&bench, &argc, &argv, "Molecular dynamics of a Lennard-Jones liquid, divided by space.", NULL, options,
                sizeof options / sizeof options[0]);
    const int cells = crystal_cells[bench.class_index];
    struct system system = {.bench = &bench, .count = 4.0 * cells * cells * cells};
    system.volume = system.count / DENSITY;
    atoms_divide(&system.atoms, &bench, cbrt(system.volume), CUTOFF + SKIN);
    make_crystal(&system, cells);
    settle_velocities(&system);
    system.engine = engine_open(&bench, device, platform);

    struct sums sums;
    rebuild(&system);
    engine_forces(system.engine, &system.atoms, &sums);
    const struct state start_state = observe(&system, &sums);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = bench_now();
    for (long step = 1; step <= steps; step++)
        move(&system, step, step == steps ? &sums : NULL);
    const double seconds = bench_now() - start;
    const struct state end_state = observe(&system, &sums);

    struct result result = {
        .iterations = (int)steps,
        .seconds = seconds,
        .rate_key = "matom_steps_per_s",
        .work = system.count * (double)steps * 1e-6,
        .checked = true,
        .device = engine_device(system.engine),
    };
    result.passed = check(&system, &start_state, &end_state, steps, &result.max_error);
    snprintf(result.size, sizeof result.size, "%.0f", system.count);
    char extra[192];
    snprintf(extra, sizeof extra, ",\"temperature\":%.7f,\"potential\":%.7f,\"pressure\":%.7f,\"total\":%.7f,\"drift\":%.3g",
             end_state.temperature, end_state.potential, end_state.pressure, end_state.kinetic + end_state.potential,
             end_state.kinetic + end_state.shifted - start_state.kinetic - start_state.shifted);
    result.extra = extra;
    const int status = bench_end(&bench, &result);
    engine_close(system.engine);
    return status;
}
