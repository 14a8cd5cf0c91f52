/*
 * What computes the forces: this machine's processor, or a GPU through OpenCL or CUDA. A program has one of them.
 */
#ifndef WORKLOADS_FORCES_H
#define WORKLOADS_FORCES_H

#include "atoms.h"

#define CUTOFF 2.5

struct engine;

/* Sums over the own atoms, each with half of every pair. */
struct sums {
    double energy, virial;
    double pairs; /* within the cutoff, counted from both sides: what a shift of the potential adds up over */
};

/* `device` counts the devices there are; ranks of one node take them in turn when it is negative. */
struct engine *engine_open(const struct bench *bench, long device, const char *platform);
void engine_close(struct engine *engine);
const char *engine_device(const struct engine *engine);
/* The relative rounding error of its arithmetic. */
double engine_roundoff(const struct engine *engine);
/* To be called when lists or the number of atoms have changed. */
void engine_set_neighbours(struct engine *engine, const struct atoms *atoms, const struct neighbours *neighbours);
/* Sets atoms->f, and the sums where they are wanted. */
void engine_forces(struct engine *engine, struct atoms *atoms, struct sums *sums);

#endif
