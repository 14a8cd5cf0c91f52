/*
 * What one rank writes while its program runs: counters that are always up to date, and events in their order.
 *
 * Both lie in files that are mapped into memory, so that a rank that dies, by whatever signal, loses nothing of what it had
 * recorded. The counters have a fixed size; events go through a window of fixed size. The layouts are read by
 * crates/towline-trace/src/raw.rs, and described there.
 *
 * A wrapper of an MPI function has this shape:
 *
 *     const bool traced = trace_enter();
 *     const int status = PMPI_Send(...);
 *     if (traced) {
 *         trace_leave();
 *         ... record what was done ...
 *         trace_resume();
 *     }
 *     return status;
 */
#ifndef TOWLINE_RECORD_H
#define TOWLINE_RECORD_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum rank_state { STATE_RUNNING = 1, STATE_FINALIZED = 2, STATE_ABORTED = 3 };

/* What makes a trace incomplete, as bits of counts_header.notes. */
enum note {
    NOTE_ONE_SIDED = 1,     /* the replay lacks them */
    NOTE_SPAWN = 2,         /* processes outside of MPI_COMM_WORLD took part */
    NOTE_THREADS = 4,       /* several threads called MPI: their events are mixed */
    NOTE_EVENTS_LIMIT = 8,  /* the replay ends where the limit was reached */
    NOTE_EVENTS_WRITE = 16, /* or where the disk was full */
    NOTE_TABLE_FULL = 32,   /* more communicators or kinds of collectives than there is room for */
    NOTE_INTER = 64,        /* collectives between two groups: the replay lacks them */
    NOTE_PARTITIONED = 128, /* a send or receive of a kind that is not recorded */
};

/* The head of rank-N.counts. Little-endian, as all numbers in these files. */
struct counts_header {
    char magic[8];
    uint32_t version, rank, ranks, state;
    uint32_t notes, collective_slots;
    uint64_t seconds_ns; /* since the end of MPI_Init, at the end of the last call */
    uint64_t compute_ns, mpi_ns;
    uint64_t calls, events, events_lost, event_bytes;
    char host[64], program[256], mpi[128];
};

#define HEADER_BYTES 4096

/* What this rank did to one other; one per rank, after the header. */
struct pair_counts {
    uint64_t messages, bytes;             /* sent */
    uint64_t put_messages, put_bytes;     /* written into the other's memory */
    uint64_t got_messages, got_bytes;     /* read from the other's memory */
    uint64_t direct_messages, direct_bytes; /* sent within collectives that say themselves what goes to whom */
};

/* One kind of collective on one communicator; COLLECTIVE_SLOTS of them after the pairs. */
struct collective_counts {
    uint32_t used, communicator, call;
    int32_t root; /* in MPI_COMM_WORLD, or -1 */
    uint64_t calls, bytes; /* contributed by this rank */
};

#define COLLECTIVE_SLOTS 4096

enum collective {
    BARRIER, BCAST, REDUCE, ALLREDUCE, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV,
    ALLTOALLW, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, NEIGHBOR_ALLGATHER, NEIGHBOR_ALLGATHERV,
    NEIGHBOR_ALLTOALL, NEIGHBOR_ALLTOALLV, NEIGHBOR_ALLTOALLW,
};

enum event { EVENT_SEND = 1, EVENT_RECV, EVENT_ISEND, EVENT_IRECV, EVENT_WAIT, EVENT_COLLECTIVE, EVENT_CANCEL };

/* ---- start and end ---- */

/*
 * Ends the program, before it starts MPI, when it uses the other family: its handles would be garbled on their way through the
 * wrappers.
 */
void trace_check_family(void);
/* Called when MPI is there. */
void trace_start(void);
bool trace_is_on(void);
void trace_stop(enum rank_state state);
void trace_note(enum note note);

/* ---- around every call ---- */

/* False where nothing is recorded: before the start, after the end, within another call. */
bool trace_enter(void);
void trace_leave(void);
void trace_resume(void);

/* ---- counters; between trace_leave and trace_resume ---- */

/* Answers NULL for a rank outside of MPI_COMM_WORLD. */
struct pair_counts *trace_pair(int world_rank);
void trace_collective(uint32_t communicator, enum collective call, int world_root, uint64_t bytes);

/* ---- events; between trace_leave and trace_resume ---- */

void event_begin(enum event event);
void event_number(uint64_t number);
void event_end(void);

/* Appends to rank-N.comms. */
void trace_write_communicator(const uint32_t *words, size_t count);

#endif
