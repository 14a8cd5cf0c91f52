/*
 * The atoms of one rank: those of its part of the box, and copies of those of others that are near.
 */
#ifndef WORKLOADS_ATOMS_H
#define WORKLOADS_ATOMS_H

#include "bench.h"

/* Where atoms next to one another across a border of parts are copied: one direction of one axis. */
struct swap {
    int to, from;       /* ranks */
    int axis;
    double shift;       /* added to the coordinate of what is sent, across the periodic border */
    int *sent;          /* numbers of atoms */
    int sent_count, sent_capacity;
    int first, count;   /* where the received copies lie */
};

struct atoms {
    const struct bench *bench;
    MPI_Comm grid;
    int parts[3], place[3];
    double box;            /* side of the periodic cube */
    double low[3], high[3]; /* of this rank's part */
    double reach;          /* how far copies must reach: cutoff and skin */

    int own, copies, capacity;
    double *x, *v, *f; /* three numbers per atom; v and f only of own ones */
    double *id;        /* numbers of the whole system, kept as doubles so that an atom is one kind of number */

    struct swap swaps[6];
    double *send, *receive;
    size_t send_capacity, receive_capacity;
};

/* Parts the box among the ranks. Refuses parts that are thinner than the reach. */
void atoms_divide(struct atoms *atoms, const struct bench *bench, double box, double reach);
void atoms_add(struct atoms *atoms, const double x[3], const double v[3], double id);

/* Hands atoms that have left to their new ranks. */
void atoms_migrate(struct atoms *atoms);
/* Chooses anew which atoms are copied, and copies them. */
void atoms_choose_copies(struct atoms *atoms);
/* Brings the positions of the copies up to date. */
void atoms_update_copies(struct atoms *atoms);

/* Who is near whom: for each own atom all others, own and copies, within the reach. Each pair is there from both sides. */
struct neighbours {
    int own, most;     /* atoms, and the longest list */
    size_t *starts;    /* own + 1 */
    int *list;
    size_t capacity;
    int starts_capacity;
    int *cells, *next; /* atoms by cell */
    size_t cell_capacity;
    int next_capacity;
};

void neighbours_find(struct neighbours *neighbours, const struct atoms *atoms);

#endif
