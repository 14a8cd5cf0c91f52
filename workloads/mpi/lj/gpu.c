#include "gpu.h"

#include <stdlib.h>

static void *at_least(void *memory, size_t *capacity, size_t count, size_t size)
{
    if (count <= *capacity)
        return memory;
    free(memory);
    *capacity = count + count / 4 + 256;
    return bench_allocate(*capacity, size);
}

void staging_set_neighbours(struct staging *staging, const struct atoms *atoms, const struct neighbours *neighbours)
{
    const size_t own = (size_t)atoms->own;
    size_t capacity = staging->own_capacity;
    staging->own = own;
    staging->known = own + (size_t)atoms->copies;
    staging->entries = own * (size_t)neighbours->most;
    staging->positions = at_least(staging->positions, &staging->positions_capacity, staging->known, 4 * sizeof(float));
    staging->lists = at_least(staging->lists, &staging->lists_capacity, staging->entries, sizeof(int));
    staging->forces = at_least(staging->forces, &capacity, own, 4 * sizeof(float));
    capacity = staging->own_capacity;
    staging->sums = at_least(staging->sums, &capacity, own, 2 * sizeof(float));
    staging->counts = at_least(staging->counts, &staging->own_capacity, own, sizeof(int));
    for (size_t i = 0; i < own; i++) {
        const int *list = neighbours->list + neighbours->starts[i];
        const size_t count = neighbours->starts[i + 1] - neighbours->starts[i];
        staging->counts[i] = (int)count;
        for (size_t at = 0; at < count; at++)
            staging->lists[at * own + i] = list[at];
    }
}

void staging_take_positions(struct staging *staging, const struct atoms *atoms)
{
    double middle[3];
    for (int axis = 0; axis < 3; axis++)
        middle[axis] = 0.5 * (atoms->low[axis] + atoms->high[axis]);
    for (size_t i = 0; i < staging->known; i++) {
        for (size_t axis = 0; axis < 3; axis++)
            staging->positions[4 * i + axis] = (float)(atoms->x[3 * i + axis] - middle[axis]);
        staging->positions[4 * i + 3] = 0;
    }
}

void staging_give_forces(const struct staging *staging, struct atoms *atoms, struct sums *sums)
{
    struct sums total = {0};
    for (size_t i = 0; i < staging->own; i++) {
        for (size_t axis = 0; axis < 3; axis++)
            atoms->f[3 * i + axis] = staging->forces[4 * i + axis];
        total.energy += staging->forces[4 * i + 3];
    }
    for (size_t i = 0; sums != NULL && i < staging->own; i++) {
        total.virial += staging->sums[2 * i];
        total.pairs += staging->sums[2 * i + 1];
    }
    if (sums != NULL)
        *sums = total;
}

void staging_free(struct staging *staging)
{
    free(staging->positions);
    free(staging->forces);
    free(staging->sums);
    free(staging->counts);
    free(staging->lists);
}

int node_rank(void)
{
    MPI_Comm node;
    int rank = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &rank);
    MPI_Comm_free(&node);
    return rank;
}
