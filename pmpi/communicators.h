/*
 * Communicators: which ranks of MPI_COMM_WORLD their ranks are, and how all of their ranks know that they speak of the same.
 *
 * Two processes need not send anything for that: a communicator is named by its ranks and by how many communicators with
 * just these ranks there were before. All of them make these in the same order, since making one is collective.
 */
#ifndef TOWLINE_COMMUNICATORS_H
#define TOWLINE_COMMUNICATORS_H

#include "record.h"

struct communicator {
    uint32_t id; /* of this rank; world is 0 */
    int rank, size;
    int *world;   /* ranks in MPI_COMM_WORLD of the group that messages go to; -1 for those outside of it */
    int peers;    /* size of that group: of the other one where there are two */
    bool inter;
    int references;
};

void communicators_start(void);
/* Starts the trace and the communicators, after MPI_Init in either language. */
void trace_begin(void);
/* Never NULL. Made known on the way if it is not yet. */
struct communicator *communicator_of(MPI_Comm comm);
/* After a call that made one; MPI_COMM_NULL is fine. */
void communicator_made(MPI_Comm comm);
/* For as long as a request needs it. */
void communicator_hold(struct communicator *communicator);
void communicator_drop(struct communicator *communicator);
/* -1 for ranks that are none. */
int world_rank(const struct communicator *communicator, int rank);

#endif
