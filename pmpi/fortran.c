/*
 * The same for Fortran, where its calls do not come through those of C: in Open MPI they call the library's inner functions.
 * In MPICH they call MPI_Send and so on, which are traced as C's, but for some of the module mpi_f08 (f08.c).
 *
 * Each wrapper calls the library's own Fortran entry (pmpi_send_), so that what Fortran has of its own (MPI_BOTTOM, logicals,
 * statuses as arrays) stays the library's business, and translates handles only to record. Handles are integers; arguments
 * come by address. The module mpi_f08 has entries of its own, which may lack the last argument, `ierror`.
 */
#include "collectives.h"

#ifdef TOWLINE_MPI_openmpi

#include <stdlib.h>

typedef MPI_Fint fint;

/* Where Fortran's MPI_IN_PLACE lies; weak, as everything here. */
extern fint mpi_fortran_in_place_;

#define STATUS_FINTS ((int)(sizeof(MPI_Status) / sizeof(fint)))

#define LIST(...) __VA_ARGS__

/* Declares the library's entry and ours under all names that Fortran compilers give it. */
#define NAMES(lower, upper, parameters)                                                          \
    void p##lower##_(parameters, fint *ierror);                                                  \
    EXPORT void lower##_(parameters, fint *ierror);                                              \
    EXPORT void lower(parameters, fint *ierror) __attribute__((alias(#lower "_")));              \
    EXPORT void lower##__(parameters, fint *ierror) __attribute__((alias(#lower "_")));          \
    EXPORT void upper(parameters, fint *ierror) __attribute__((alias(#lower "_")));              \
    EXPORT void lower##_f08_(parameters, fint *ierror) __attribute__((alias(#lower "_")));

#define FORTRAN(lower, upper, parameters, arguments, record)  \
    NAMES(lower, upper, LIST(parameters))                     \
    void lower##_(parameters, fint *ierror)                   \
    {                                                         \
        fint status_ = MPI_SUCCESS;                           \
        const bool traced = trace_enter();                    \
        p##lower##_(arguments, &status_);                     \
        if (traced) {                                         \
            trace_leave();                                    \
            if (status_ == MPI_SUCCESS) {                     \
                record;                                       \
            }                                                 \
            trace_resume();                                   \
        }                                                     \
        if (ierror != NULL)                                   \
            *ierror = status_;                                \
    }

#define COMM(comm) PMPI_Comm_f2c(*(comm))
#define TYPE(type) PMPI_Type_f2c(*(type))
#define REQUEST(request) PMPI_Request_f2c(*(request))
#define MESSAGE(comm, peer, tag, count, type) message_of(COMM(comm), *(peer), *(tag), *(count), TYPE(type))
#define BYTES(count, type) bytes_of(*(count), TYPE(type))
#define IN_PLACE(buffer) ((void *)(buffer) == (void *)&mpi_fortran_in_place_)
#define OF(array, one_type) ((struct counts){.counts = (array), .type = TYPE(one_type)})

/* ---- start and end ---- */

void pmpi_init_(fint *ierror);
void pmpi_finalize_(fint *ierror);

static void begin(const fint *status, fint *ierror)
{
    if (*status == MPI_SUCCESS)
        trace_begin();
    if (ierror != NULL)
        *ierror = *status;
}

EXPORT void mpi_init_(fint *ierror)
{
    fint status = MPI_SUCCESS;
    trace_check_family();
    pmpi_init_(&status);
    begin(&status, ierror);
}

EXPORT void mpi_finalize_(fint *ierror)
{
    fint status = MPI_SUCCESS;
    trace_stop(STATE_FINALIZED);
    pmpi_finalize_(&status);
    if (ierror != NULL)
        *ierror = status;
}

#define ALIASES_WITHOUT_ARGUMENTS(lower, upper)                                \
    EXPORT void lower(fint *ierror) __attribute__((alias(#lower "_")));        \
    EXPORT void lower##__(fint *ierror) __attribute__((alias(#lower "_")));    \
    EXPORT void upper(fint *ierror) __attribute__((alias(#lower "_")));        \
    EXPORT void lower##_f08_(fint *ierror) __attribute__((alias(#lower "_")));
ALIASES_WITHOUT_ARGUMENTS(mpi_init, MPI_INIT)
ALIASES_WITHOUT_ARGUMENTS(mpi_finalize, MPI_FINALIZE)

NAMES(mpi_init_thread, MPI_INIT_THREAD, LIST(fint *wanted, fint *provided))
void mpi_init_thread_(fint *wanted, fint *provided, fint *ierror)
{
    fint status = MPI_SUCCESS;
    trace_check_family();
    pmpi_init_thread_(wanted, provided, &status);
    begin(&status, ierror);
}

NAMES(mpi_abort, MPI_ABORT, LIST(fint *comm, fint *code))
void mpi_abort_(fint *comm, fint *code, fint *ierror)
{
    fint status = MPI_SUCCESS;
    trace_stop(STATE_ABORTED);
    pmpi_abort_(comm, code, ierror != NULL ? ierror : &status);
}

/* ---- point to point ---- */

#define SEND(lower, upper)                                                                                \
    FORTRAN(lower, upper, LIST(void *buffer, fint *count, fint *type, fint *to, fint *tag, fint *comm),   \
            LIST(buffer, count, type, to, tag, comm), record_send(MESSAGE(comm, to, tag, count, type)))
SEND(mpi_send, MPI_SEND)
SEND(mpi_ssend, MPI_SSEND)
SEND(mpi_bsend, MPI_BSEND)
SEND(mpi_rsend, MPI_RSEND)

#define STARTED(lower, upper, what, kind)                                                                          \
    FORTRAN(lower, upper,                                                                                          \
            LIST(void *buffer, fint *count, fint *type, fint *peer, fint *tag, fint *comm, fint *request),         \
            LIST(buffer, count, type, peer, tag, comm, request),                                                   \
            what(REQUEST(request), kind, MESSAGE(comm, peer, tag, count, type)))
STARTED(mpi_isend, MPI_ISEND, request_started, REQUEST_SEND)
STARTED(mpi_issend, MPI_ISSEND, request_started, REQUEST_SEND)
STARTED(mpi_ibsend, MPI_IBSEND, request_started, REQUEST_SEND)
STARTED(mpi_irsend, MPI_IRSEND, request_started, REQUEST_SEND)
STARTED(mpi_irecv, MPI_IRECV, request_started, REQUEST_RECV)
STARTED(mpi_send_init, MPI_SEND_INIT, request_prepared, REQUEST_SEND)
STARTED(mpi_ssend_init, MPI_SSEND_INIT, request_prepared, REQUEST_SEND)
STARTED(mpi_recv_init, MPI_RECV_INIT, request_prepared, REQUEST_RECV)

/* A status of the program, or ours where it does not want one. */
static fint *status_or_own(fint *status, fint *own)
{
    return status == MPI_F_STATUS_IGNORE ? own : status;
}

static MPI_Status status_of(const fint *status)
{
    MPI_Status translated;
    PMPI_Status_f2c(status, &translated);
    return translated;
}

#define OWN_STATUS fint own[sizeof(MPI_Status) / sizeof(fint)], *known = status_or_own(status, own)

NAMES(mpi_recv, MPI_RECV,
      LIST(void *buffer, fint *count, fint *type, fint *from, fint *tag, fint *comm, fint *status))
void mpi_recv_(void *buffer, fint *count, fint *type, fint *from, fint *tag, fint *comm, fint *status, fint *ierror)
{
    OWN_STATUS;
    fint status_ = MPI_SUCCESS;
    const bool traced = trace_enter();
    pmpi_recv_(buffer, count, type, from, tag, comm, known, &status_);
    if (traced) {
        trace_leave();
        if (status_ == MPI_SUCCESS) {
            const MPI_Status came = status_of(known);
            record_recv(MESSAGE(comm, from, tag, count, type), &came);
        }
        trace_resume();
    }
    if (ierror != NULL)
        *ierror = status_;
}

#define SENDRECV_PARAMETERS                                                                                          \
    LIST(void *sent, fint *sent_count, fint *sent_type, fint *to, fint *sent_tag, void *received, fint *count,       \
         fint *type, fint *from, fint *tag, fint *comm, fint *status)
NAMES(mpi_sendrecv, MPI_SENDRECV, SENDRECV_PARAMETERS)
void mpi_sendrecv_(SENDRECV_PARAMETERS, fint *ierror)
{
    OWN_STATUS;
    fint status_ = MPI_SUCCESS;
    const bool traced = trace_enter();
    pmpi_sendrecv_(sent, sent_count, sent_type, to, sent_tag, received, count, type, from, tag, comm, known, &status_);
    if (traced) {
        trace_leave();
        if (status_ == MPI_SUCCESS) {
            const MPI_Status came = status_of(known);
            record_sendrecv(MESSAGE(comm, to, sent_tag, sent_count, sent_type), MESSAGE(comm, from, tag, count, type),
                            &came);
        }
        trace_resume();
    }
    if (ierror != NULL)
        *ierror = status_;
}

#define REPLACE_PARAMETERS                                                                                       \
    LIST(void *buffer, fint *count, fint *type, fint *to, fint *sent_tag, fint *from, fint *tag, fint *comm,     \
         fint *status)
NAMES(mpi_sendrecv_replace, MPI_SENDRECV_REPLACE, REPLACE_PARAMETERS)
void mpi_sendrecv_replace_(REPLACE_PARAMETERS, fint *ierror)
{
    OWN_STATUS;
    fint status_ = MPI_SUCCESS;
    const bool traced = trace_enter();
    pmpi_sendrecv_replace_(buffer, count, type, to, sent_tag, from, tag, comm, known, &status_);
    if (traced) {
        trace_leave();
        if (status_ == MPI_SUCCESS) {
            const MPI_Status came = status_of(known);
            record_sendrecv(MESSAGE(comm, to, sent_tag, count, type), MESSAGE(comm, from, tag, count, type), &came);
        }
        trace_resume();
    }
    if (ierror != NULL)
        *ierror = status_;
}

FORTRAN(mpi_probe, MPI_PROBE, LIST(fint *from, fint *tag, fint *comm, fint *status), LIST(from, tag, comm, status),
        (void)0)
FORTRAN(mpi_iprobe, MPI_IPROBE, LIST(fint *from, fint *tag, fint *comm, fint *found, fint *status),
        LIST(from, tag, comm, found, status), (void)0)

/* ---- requests ---- */

FORTRAN(mpi_start, MPI_START, LIST(fint *request), LIST(request), request_restarted(REQUEST(request)))
FORTRAN(mpi_startall, MPI_STARTALL, LIST(fint *count, fint *requests), LIST(count, requests),
        for (fint i = 0; i < *count; i++) request_restarted(REQUEST(&requests[i])))

NAMES(mpi_request_free, MPI_REQUEST_FREE, LIST(fint *request))
void mpi_request_free_(fint *request, fint *ierror)
{
    const MPI_Request before = REQUEST(request);
    fint status_ = MPI_SUCCESS;
    const bool traced = trace_enter();
    pmpi_request_free_(request, &status_);
    if (traced) {
        trace_leave();
        request_freed(before);
        trace_resume();
    }
    if (ierror != NULL)
        *ierror = status_;
}

static void completed(MPI_Request before, const fint *status)
{
    if (status == MPI_F_STATUS_IGNORE || status == MPI_F_STATUSES_IGNORE) {
        request_completed(before, NULL);
    } else {
        const MPI_Status came = status_of(status);
        request_completed(before, &came);
    }
}

NAMES(mpi_wait, MPI_WAIT, LIST(fint *request, fint *status))
void mpi_wait_(fint *request, fint *status, fint *ierror)
{
    OWN_STATUS;
    const MPI_Request before = REQUEST(request);
    fint status_ = MPI_SUCCESS;
    const bool traced = trace_enter();
    pmpi_wait_(request, known, &status_);
    if (traced) {
        trace_leave();
        if (status_ == MPI_SUCCESS)
            completed(before, known);
        trace_resume();
    }
    if (ierror != NULL)
        *ierror = status_;
}

NAMES(mpi_test, MPI_TEST, LIST(fint *request, fint *done, fint *status))
void mpi_test_(fint *request, fint *done, fint *status, fint *ierror)
{
    OWN_STATUS;
    const MPI_Request before = REQUEST(request);
    fint status_ = MPI_SUCCESS;
    const bool traced = trace_enter();
    pmpi_test_(request, done, known, &status_);
    if (traced) {
        trace_leave();
        if (status_ == MPI_SUCCESS && *done != 0)
            completed(before, known);
        trace_resume();
    }
    if (ierror != NULL)
        *ierror = status_;
}

/* The handles before a call over an array of them; NULL when nothing is recorded. */
static MPI_Request *handles_before(bool traced, fint count, fint *requests)
{
    MPI_Request *before = traced ? scratch_requests(count) : NULL;
    for (fint i = 0; before != NULL && i < count; i++)
        before[i] = REQUEST(&requests[i]);
    return before;
}

static fint *statuses_or_own(fint count, fint *statuses)
{
    fint *own = statuses == MPI_F_STATUSES_IGNORE ? (fint *)scratch_statuses(count) : NULL;
    return own != NULL ? own : statuses;
}

static const fint *status_at(const fint *statuses, fint i)
{
    return statuses == MPI_F_STATUSES_IGNORE ? statuses : statuses + (ptrdiff_t)i * STATUS_FINTS;
}

NAMES(mpi_waitall, MPI_WAITALL, LIST(fint *count, fint *requests, fint *statuses))
void mpi_waitall_(fint *count, fint *requests, fint *statuses, fint *ierror)
{
    fint status_ = MPI_SUCCESS, *known = statuses_or_own(*count, statuses);
    const bool traced = trace_enter();
    const MPI_Request *before = handles_before(traced, *count, requests);
    pmpi_waitall_(count, requests, known, &status_);
    if (traced) {
        trace_leave();
        for (fint i = 0; status_ == MPI_SUCCESS && before != NULL && i < *count; i++)
            completed(before[i], status_at(known, i));
        trace_resume();
    }
    if (ierror != NULL)
        *ierror = status_;
}

NAMES(mpi_testall, MPI_TESTALL, LIST(fint *count, fint *requests, fint *done, fint *statuses))
void mpi_testall_(fint *count, fint *requests, fint *done, fint *statuses, fint *ierror)
{
    fint status_ = MPI_SUCCESS, *known = statuses_or_own(*count, statuses);
    const bool traced = trace_enter();
    const MPI_Request *before = handles_before(traced, *count, requests);
    pmpi_testall_(count, requests, done, known, &status_);
    if (traced) {
        trace_leave();
        for (fint i = 0; status_ == MPI_SUCCESS && *done != 0 && before != NULL && i < *count; i++)
            completed(before[i], status_at(known, i));
        trace_resume();
    }
    if (ierror != NULL)
        *ierror = status_;
}

/* Fortran counts from 1. */
NAMES(mpi_waitany, MPI_WAITANY, LIST(fint *count, fint *requests, fint *which, fint *status))
void mpi_waitany_(fint *count, fint *requests, fint *which, fint *status, fint *ierror)
{
    OWN_STATUS;
    fint status_ = MPI_SUCCESS;
    const bool traced = trace_enter();
    const MPI_Request *before = handles_before(traced, *count, requests);
    pmpi_waitany_(count, requests, which, known, &status_);
    if (traced) {
        trace_leave();
        if (status_ == MPI_SUCCESS && before != NULL && *which != MPI_UNDEFINED)
            completed(before[*which - 1], known);
        trace_resume();
    }
    if (ierror != NULL)
        *ierror = status_;
}

NAMES(mpi_testany, MPI_TESTANY, LIST(fint *count, fint *requests, fint *which, fint *done, fint *status))
void mpi_testany_(fint *count, fint *requests, fint *which, fint *done, fint *status, fint *ierror)
{
    OWN_STATUS;
    fint status_ = MPI_SUCCESS;
    const bool traced = trace_enter();
    const MPI_Request *before = handles_before(traced, *count, requests);
    pmpi_testany_(count, requests, which, done, known, &status_);
    if (traced) {
        trace_leave();
        if (status_ == MPI_SUCCESS && before != NULL && *done != 0 && *which != MPI_UNDEFINED)
            completed(before[*which - 1], known);
        trace_resume();
    }
    if (ierror != NULL)
        *ierror = status_;
}

#define SOME(lower, upper)                                                                                   \
    NAMES(lower, upper, LIST(fint *count, fint *requests, fint *done, fint *which, fint *statuses))          \
    void lower##_(fint *count, fint *requests, fint *done, fint *which, fint *statuses, fint *ierror)        \
    {                                                                                                        \
        fint status_ = MPI_SUCCESS, *known = statuses_or_own(*count, statuses);                              \
        const bool traced = trace_enter();                                                                   \
        const MPI_Request *before = handles_before(traced, *count, requests);                                \
        p##lower##_(count, requests, done, which, known, &status_);                                          \
        if (traced) {                                                                                        \
            trace_leave();                                                                                   \
            for (fint i = 0; status_ == MPI_SUCCESS && *done != MPI_UNDEFINED && before != NULL && i < *done; i++) \
                completed(before[which[i] - 1], status_at(known, i));                                        \
            trace_resume();                                                                                  \
        }                                                                                                    \
        if (ierror != NULL)                                                                                  \
            *ierror = status_;                                                                               \
    }
SOME(mpi_waitsome, MPI_WAITSOME)
SOME(mpi_testsome, MPI_TESTSOME)

/* ---- collectives ---- */

#define COLLECTIVE(lower, upper, nonblocking, NONBLOCKING, parameters, arguments, record)      \
    FORTRAN(lower, upper, LIST(parameters), LIST(arguments), record)                           \
    FORTRAN(nonblocking, NONBLOCKING, LIST(parameters, fint *request), LIST(arguments, request), record)

COLLECTIVE(mpi_barrier, MPI_BARRIER, mpi_ibarrier, MPI_IBARRIER, LIST(fint *comm), LIST(comm),
           record_simple(COMM(comm), BARRIER, -1, 0))
COLLECTIVE(mpi_bcast, MPI_BCAST, mpi_ibcast, MPI_IBCAST,
           LIST(void *buffer, fint *count, fint *type, fint *root, fint *comm), LIST(buffer, count, type, root, comm),
           record_simple(COMM(comm), BCAST, *root, BYTES(count, type)))
COLLECTIVE(mpi_reduce, MPI_REDUCE, mpi_ireduce, MPI_IREDUCE,
           LIST(void *sent, void *received, fint *count, fint *type, fint *op, fint *root, fint *comm),
           LIST(sent, received, count, type, op, root, comm),
           record_simple(COMM(comm), REDUCE, *root, BYTES(count, type)))

COLLECTIVE(mpi_allreduce, MPI_ALLREDUCE, mpi_iallreduce, MPI_IALLREDUCE,
           LIST(void *sent, void *received, fint *count, fint *type, fint *op, fint *comm),
           LIST(sent, received, count, type, op, comm), record_simple(COMM(comm), ALLREDUCE, -1, BYTES(count, type)))
COLLECTIVE(mpi_scan, MPI_SCAN, mpi_iscan, MPI_ISCAN,
           LIST(void *sent, void *received, fint *count, fint *type, fint *op, fint *comm),
           LIST(sent, received, count, type, op, comm), record_simple(COMM(comm), SCAN, -1, BYTES(count, type)))
COLLECTIVE(mpi_exscan, MPI_EXSCAN, mpi_iexscan, MPI_IEXSCAN,
           LIST(void *sent, void *received, fint *count, fint *type, fint *op, fint *comm),
           LIST(sent, received, count, type, op, comm), record_simple(COMM(comm), EXSCAN, -1, BYTES(count, type)))
COLLECTIVE(mpi_reduce_scatter_block, MPI_REDUCE_SCATTER_BLOCK, mpi_ireduce_scatter_block, MPI_IREDUCE_SCATTER_BLOCK,
           LIST(void *sent, void *received, fint *count, fint *type, fint *op, fint *comm),
           LIST(sent, received, count, type, op, comm),
           record_regular(COMM(comm), REDUCE_SCATTER_BLOCK, -1, BYTES(count, type)))
COLLECTIVE(mpi_reduce_scatter, MPI_REDUCE_SCATTER, mpi_ireduce_scatter, MPI_IREDUCE_SCATTER,
           LIST(void *sent, void *received, fint *counts, fint *type, fint *op, fint *comm),
           LIST(sent, received, counts, type, op, comm), record_known(COMM(comm), REDUCE_SCATTER, OF(counts, type)))

COLLECTIVE(mpi_gather, MPI_GATHER, mpi_igather, MPI_IGATHER,
           LIST(void *sent, fint *sent_count, fint *sent_type, void *received, fint *count, fint *type, fint *root,
                fint *comm),
           LIST(sent, sent_count, sent_type, received, count, type, root, comm),
           record_regular(COMM(comm), GATHER, *root, IN_PLACE(sent) ? BYTES(count, type) : BYTES(sent_count, sent_type)))
COLLECTIVE(mpi_scatter, MPI_SCATTER, mpi_iscatter, MPI_ISCATTER,
           LIST(void *sent, fint *sent_count, fint *sent_type, void *received, fint *count, fint *type, fint *root,
                fint *comm),
           LIST(sent, sent_count, sent_type, received, count, type, root, comm),
           record_regular(COMM(comm), SCATTER, *root,
                          IN_PLACE(received) || communicator_of(COMM(comm))->rank == *root
                              ? BYTES(sent_count, sent_type)
                              : BYTES(count, type)))
COLLECTIVE(mpi_gatherv, MPI_GATHERV, mpi_igatherv, MPI_IGATHERV,
           LIST(void *sent, fint *sent_count, fint *sent_type, void *received, fint *counts, fint *places, fint *type,
                fint *root, fint *comm),
           LIST(sent, sent_count, sent_type, received, counts, places, type, root, comm),
           record_rooted(COMM(comm), GATHERV, *root,
                         IN_PLACE(sent) ? BYTES(&counts[*root], type) : BYTES(sent_count, sent_type),
                         OF(counts, type)))
COLLECTIVE(mpi_scatterv, MPI_SCATTERV, mpi_iscatterv, MPI_ISCATTERV,
           LIST(void *sent, fint *counts, fint *places, fint *sent_type, void *received, fint *count, fint *type,
                fint *root, fint *comm),
           LIST(sent, counts, places, sent_type, received, count, type, root, comm),
           record_rooted(COMM(comm), SCATTERV, *root,
                         IN_PLACE(received) ? BYTES(&counts[*root], sent_type) : BYTES(count, type),
                         OF(counts, sent_type)))
COLLECTIVE(mpi_allgather, MPI_ALLGATHER, mpi_iallgather, MPI_IALLGATHER,
           LIST(void *sent, fint *sent_count, fint *sent_type, void *received, fint *count, fint *type, fint *comm),
           LIST(sent, sent_count, sent_type, received, count, type, comm),
           record_regular(COMM(comm), ALLGATHER, -1, IN_PLACE(sent) ? BYTES(count, type) : BYTES(sent_count, sent_type)))
COLLECTIVE(mpi_allgatherv, MPI_ALLGATHERV, mpi_iallgatherv, MPI_IALLGATHERV,
           LIST(void *sent, fint *sent_count, fint *sent_type, void *received, fint *counts, fint *places, fint *type,
                fint *comm),
           LIST(sent, sent_count, sent_type, received, counts, places, type, comm),
           record_known(COMM(comm), ALLGATHERV, OF(counts, type)))
COLLECTIVE(mpi_alltoall, MPI_ALLTOALL, mpi_ialltoall, MPI_IALLTOALL,
           LIST(void *sent, fint *sent_count, fint *sent_type, void *received, fint *count, fint *type, fint *comm),
           LIST(sent, sent_count, sent_type, received, count, type, comm),
           record_regular(COMM(comm), ALLTOALL, -1, IN_PLACE(sent) ? BYTES(count, type) : BYTES(sent_count, sent_type)))
COLLECTIVE(mpi_alltoallv, MPI_ALLTOALLV, mpi_ialltoallv, MPI_IALLTOALLV,
           LIST(void *sent, fint *sent_counts, fint *sent_places, fint *sent_type, void *received, fint *counts,
                fint *places, fint *type, fint *comm),
           LIST(sent, sent_counts, sent_places, sent_type, received, counts, places, type, comm),
           record_exchange(COMM(comm), ALLTOALLV, IN_PLACE(sent) ? OF(counts, type) : OF(sent_counts, sent_type),
                           OF(counts, type)))

/* ---- communicators ---- */

#define MAKER(lower, upper, parameters, arguments)                                          \
    FORTRAN(lower, upper, LIST(parameters, fint *made), LIST(arguments, made), communicator_made(COMM(made)))

MAKER(mpi_comm_dup, MPI_COMM_DUP, LIST(fint *comm), LIST(comm))
MAKER(mpi_comm_create, MPI_COMM_CREATE, LIST(fint *comm, fint *group), LIST(comm, group))
MAKER(mpi_comm_create_group, MPI_COMM_CREATE_GROUP, LIST(fint *comm, fint *group, fint *tag), LIST(comm, group, tag))
MAKER(mpi_comm_split, MPI_COMM_SPLIT, LIST(fint *comm, fint *color, fint *order), LIST(comm, color, order))
MAKER(mpi_comm_split_type, MPI_COMM_SPLIT_TYPE, LIST(fint *comm, fint *type, fint *order, fint *info),
      LIST(comm, type, order, info))
MAKER(mpi_cart_create, MPI_CART_CREATE, LIST(fint *comm, fint *axes, fint *sizes, fint *periodic, fint *reorder),
      LIST(comm, axes, sizes, periodic, reorder))
MAKER(mpi_cart_sub, MPI_CART_SUB, LIST(fint *comm, fint *remaining), LIST(comm, remaining))
MAKER(mpi_graph_create, MPI_GRAPH_CREATE,
      LIST(fint *comm, fint *nodes, fint *index, fint *edges, fint *reorder), LIST(comm, nodes, index, edges, reorder))
MAKER(mpi_intercomm_create, MPI_INTERCOMM_CREATE,
      LIST(fint *local, fint *leader, fint *bridge, fint *remote_leader, fint *tag),
      LIST(local, leader, bridge, remote_leader, tag))
MAKER(mpi_intercomm_merge, MPI_INTERCOMM_MERGE, LIST(fint *comm, fint *high), LIST(comm, high))

/* ---- one-sided ---- */

/* The replay lacks them, and from Fortran the matrix does too. */
#define UNCOUNTED(lower, upper)                                                                                  \
    FORTRAN(lower, upper,                                                                                        \
            LIST(void *origin, fint *count, fint *type, fint *target, MPI_Aint *place, fint *target_count,       \
                 fint *target_type, fint *window),                                                               \
            LIST(origin, count, type, target, place, target_count, target_type, window),                         \
            trace_note(NOTE_ONE_SIDED | NOTE_PARTITIONED))
UNCOUNTED(mpi_put, MPI_PUT)
UNCOUNTED(mpi_get, MPI_GET)

#endif
