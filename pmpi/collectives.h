/* What the wrappers of C and of Fortran share about collectives. Sizes are in bytes, per rank or per pair as named. */
#ifndef TOWLINE_COLLECTIVES_H
#define TOWLINE_COLLECTIVES_H

#include "point_to_point.h"

/* Counts of one call, as arrays of the program: elements of one type, or of a type each. */
struct counts {
    const int *counts;
    MPI_Datatype type;
    const MPI_Datatype *types; /* instead of `type`, if not NULL */
};

/* barrier, bcast, reduce, allreduce, scan, exscan: `bytes` is the whole vector. */
void record_simple(MPI_Comm comm, enum collective call, int root, uint64_t bytes);
/* gather, scatter, allgather, alltoall, reduce_scatter_block: `bytes` goes from one rank to one other. */
void record_regular(MPI_Comm comm, enum collective call, int root, uint64_t bytes);
/* gatherv, scatterv: `own` is this rank's part; the root knows the counts of all. */
void record_rooted(MPI_Comm comm, enum collective call, int root, uint64_t own, struct counts of_all);
/* allgatherv, reduce_scatter: all know the counts of all. */
void record_known(MPI_Comm comm, enum collective call, struct counts of_all);
/* alltoallv, alltoallw */
void record_exchange(MPI_Comm comm, enum collective call, struct counts sent, struct counts received);
/* Sizes of messages to or from neighbours: all the same, or counts. */
struct sizes {
    uint64_t each;
    struct counts counts; /* instead, where its array is not NULL */
};
void record_neighbourhood(MPI_Comm comm, enum collective call, struct sizes sent, struct sizes received);

#endif
