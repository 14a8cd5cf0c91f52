#include "forces.h"

#include <float.h>
#include <stdlib.h>

struct engine {
    const struct neighbours *neighbours;
};

struct engine *engine_open(const struct bench *bench, long device, const char *platform)
{
    if (device >= 0 || platform != NULL)
        bench_refuse(bench, "this program computes on the processor; lj_opencl and lj_cuda have devices");
    return bench_allocate(1, sizeof(struct engine));
}

void engine_close(struct engine *engine)
{
    free(engine);
}

const char *engine_device(const struct engine *engine)
{
    (void)engine;
    return "cpu";
}

double engine_roundoff(const struct engine *engine)
{
    (void)engine;
    return DBL_EPSILON / 2;
}

void engine_set_neighbours(struct engine *engine, const struct atoms *atoms, const struct neighbours *neighbours)
{
    (void)atoms;
    engine->neighbours = neighbours;
}

void engine_forces(struct engine *engine, struct atoms *atoms, struct sums *sums)
{
    const struct neighbours *neighbours = engine->neighbours;
    const double *restrict positions = atoms->x;
    double energy = 0, virial = 0, pairs = 0;
    for (int i = 0; i < atoms->own; i++) {
        const double x = positions[3 * (size_t)i], y = positions[3 * (size_t)i + 1], z = positions[3 * (size_t)i + 2];
        double fx = 0, fy = 0, fz = 0;
        for (size_t at = neighbours->starts[i]; at < neighbours->starts[i + 1]; at++) {
            const double *other = positions + 3 * (size_t)neighbours->list[at];
            const double dx = x - other[0], dy = y - other[1], dz = z - other[2];
            const double squared = dx * dx + dy * dy + dz * dz;
            if (squared >= CUTOFF * CUTOFF)
                continue;
            const double inverse = 1 / squared, sixth = inverse * inverse * inverse;
            const double force = 48 * inverse * sixth * (sixth - 0.5);
            fx += force * dx;
            fy += force * dy;
            fz += force * dz;
            energy += 2 * sixth * (sixth - 1);
            virial += 0.5 * force * squared;
            pairs += 1;
        }
        atoms->f[3 * (size_t)i] = fx;
        atoms->f[3 * (size_t)i + 1] = fy;
        atoms->f[3 * (size_t)i + 2] = fz;
    }
    if (sums != NULL)
        *sums = (struct sums){.energy = energy, .virial = virial, .pairs = pairs};
}
