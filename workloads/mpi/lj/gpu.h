/*
 * What the OpenCL and the CUDA engine share: numbers in single precision, relative to the middle of the rank's part of the
 * box, and lists of neighbours turned so that lanes side by side read side by side.
 */
#ifndef WORKLOADS_GPU_H
#define WORKLOADS_GPU_H

#include "forces.h"

struct staging {
    float *positions; /* four numbers per atom */
    float *forces;    /* force and energy of own atoms */
    float *sums;      /* virial and pairs of own atoms */
    int *counts, *lists;
    size_t positions_capacity, own_capacity, lists_capacity; /* atoms, atoms, entries */
    size_t own, known, entries;
};

/* Makes room, and turns the lists. */
void staging_set_neighbours(struct staging *staging, const struct atoms *atoms, const struct neighbours *neighbours);
void staging_take_positions(struct staging *staging, const struct atoms *atoms);
/* `sums` may be NULL. */
void staging_give_forces(const struct staging *staging, struct atoms *atoms, struct sums *sums);
void staging_free(struct staging *staging);

/* The number of this rank among those of its node. */
int node_rank(void);

#endif
