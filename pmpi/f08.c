/*
 * The module mpi_f08 of MPICH. Its calls with buffers call MPI_Send and so on, which are traced as C's; those without call the
 * library's PMPI_Wait and would pass by. So they are here, and call what is traced.
 *
 * Handles are integers there as in C, statuses have C's layout, and a logical is an integer of 0 or 1. Numbers in arrays count from 1.
 */
#include "record.h"

#ifdef TOWLINE_MPI_mpich

#include <stddef.h>

/* What the module has for the statuses that nobody wants lies in the program. */
static MPI_Status *one(MPI_Status *status)
{
    return (void *)status == (void *)MPI_F08_STATUS_IGNORE ? MPI_STATUS_IGNORE : status;
}

static MPI_Status *many(MPI_Status *statuses)
{
    return (void *)statuses == (void *)MPI_F08_STATUSES_IGNORE ? MPI_STATUSES_IGNORE : statuses;
}

static void from_one(int status, int *index)
{
    if (status == MPI_SUCCESS && *index != MPI_UNDEFINED)
        *index += 1;
}

static void all_from_one(int status, int count, int *indices)
{
    if ((status == MPI_SUCCESS || status == MPI_ERR_IN_STATUS) && count != MPI_UNDEFINED)
        for (int i = 0; i < count; i++)
            indices[i] += 1;
}

#define LIST(...) __VA_ARGS__

/* `after` comes behind the call, with its status in `status_`. */
#define F08_AFTER(name, parameters, call, after)                                \
    EXPORT void mpi_##name##_f08_(parameters, MPI_Fint *ierror);                \
    void mpi_##name##_f08_(parameters, MPI_Fint *ierror)                        \
    {                                                                           \
        const int status_ = (call);                                             \
        after;                                                                  \
        if (ierror != NULL)                                                     \
            *ierror = status_;                                                  \
    }
#define F08(name, parameters, call) F08_AFTER(name, LIST(parameters), call, )

#define F08_BARE(name, call)                           \
    EXPORT void mpi_##name##_f08_(MPI_Fint *ierror);   \
    void mpi_##name##_f08_(MPI_Fint *ierror)           \
    {                                                  \
        const int status_ = (call);                    \
        if (ierror != NULL)                            \
            *ierror = status_;                         \
    }

/* ---- start and end ---- */

F08_BARE(init, MPI_Init(NULL, NULL))
F08_BARE(finalize, MPI_Finalize())
F08(init_thread, LIST(const int *wanted, int *provided), MPI_Init_thread(NULL, NULL, *wanted, provided))
F08(abort, LIST(const MPI_Comm *comm, const int *code), MPI_Abort(*comm, *code))

/* ---- requests ---- */

F08(wait, LIST(MPI_Request *request, MPI_Status *status), MPI_Wait(request, one(status)))
F08(test, LIST(MPI_Request *request, int *done, MPI_Status *status), MPI_Test(request, done, one(status)))
F08(waitall, LIST(const int *count, MPI_Request requests[], MPI_Status statuses[]),
    MPI_Waitall(*count, requests, many(statuses)))
F08(testall, LIST(const int *count, MPI_Request requests[], int *done, MPI_Status statuses[]),
    MPI_Testall(*count, requests, done, many(statuses)))
F08_AFTER(waitany, LIST(const int *count, MPI_Request requests[], int *index, MPI_Status *status),
          MPI_Waitany(*count, requests, index, one(status)), from_one(status_, index))
F08_AFTER(testany, LIST(const int *count, MPI_Request requests[], int *index, int *done, MPI_Status *status),
          MPI_Testany(*count, requests, index, done, one(status)),
          if (*done) from_one(status_, index))
F08_AFTER(waitsome,
          LIST(const int *count, MPI_Request requests[], int *ended, int indices[], MPI_Status statuses[]),
          MPI_Waitsome(*count, requests, ended, indices, many(statuses)), all_from_one(status_, *ended, indices))
F08_AFTER(testsome,
          LIST(const int *count, MPI_Request requests[], int *ended, int indices[], MPI_Status statuses[]),
          MPI_Testsome(*count, requests, ended, indices, many(statuses)), all_from_one(status_, *ended, indices))
F08(start, LIST(MPI_Request *request), MPI_Start(request))
F08(startall, LIST(const int *count, MPI_Request requests[]), MPI_Startall(*count, requests))
F08(request_free, LIST(MPI_Request *request), MPI_Request_free(request))

/* ---- probes ---- */

F08(probe, LIST(const int *peer, const int *tag, const MPI_Comm *comm, MPI_Status *status),
    MPI_Probe(*peer, *tag, *comm, one(status)))
F08(iprobe, LIST(const int *peer, const int *tag, const MPI_Comm *comm, int *found, MPI_Status *status),
    MPI_Iprobe(*peer, *tag, *comm, found, one(status)))
F08(mprobe, LIST(const int *peer, const int *tag, const MPI_Comm *comm, MPI_Message *message, MPI_Status *status),
    MPI_Mprobe(*peer, *tag, *comm, message, one(status)))
F08(improbe,
    LIST(const int *peer, const int *tag, const MPI_Comm *comm, int *found, MPI_Message *message, MPI_Status *status),
    MPI_Improbe(*peer, *tag, *comm, found, message, one(status)))

/* ---- collectives and communicators ---- */

F08(barrier, LIST(const MPI_Comm *comm), MPI_Barrier(*comm))
F08(ibarrier, LIST(const MPI_Comm *comm, MPI_Request *request), MPI_Ibarrier(*comm, request))
F08(comm_dup, LIST(const MPI_Comm *comm, MPI_Comm *made), MPI_Comm_dup(*comm, made))
F08(comm_dup_with_info, LIST(const MPI_Comm *comm, const MPI_Info *info, MPI_Comm *made),
    MPI_Comm_dup_with_info(*comm, *info, made))
F08(comm_idup, LIST(const MPI_Comm *comm, MPI_Comm *made, MPI_Request *request), MPI_Comm_idup(*comm, made, request))
F08(comm_create, LIST(const MPI_Comm *comm, const MPI_Group *group, MPI_Comm *made), MPI_Comm_create(*comm, *group, made))
F08(comm_create_group, LIST(const MPI_Comm *comm, const MPI_Group *group, const int *tag, MPI_Comm *made),
    MPI_Comm_create_group(*comm, *group, *tag, made))
F08(comm_split, LIST(const MPI_Comm *comm, const int *color, const int *order, MPI_Comm *made),
    MPI_Comm_split(*comm, *color, *order, made))
F08(comm_split_type, LIST(const MPI_Comm *comm, const int *type, const int *order, const MPI_Info *info, MPI_Comm *made),
    MPI_Comm_split_type(*comm, *type, *order, *info, made))
F08(cart_create,
    LIST(const MPI_Comm *comm, const int *axes, const int sizes[], const int periodic[], const int *reorder, MPI_Comm *made),
    MPI_Cart_create(*comm, *axes, sizes, periodic, *reorder, made))
F08(cart_sub, LIST(const MPI_Comm *comm, const int remaining[], MPI_Comm *made), MPI_Cart_sub(*comm, remaining, made))
F08(graph_create,
    LIST(const MPI_Comm *comm, const int *nodes, const int index[], const int edges[], const int *reorder, MPI_Comm *made),
    MPI_Graph_create(*comm, *nodes, index, edges, *reorder, made))
F08(intercomm_create,
    LIST(const MPI_Comm *local, const int *leader, const MPI_Comm *bridge, const int *remote_leader, const int *tag,
         MPI_Comm *made),
    MPI_Intercomm_create(*local, *leader, *bridge, *remote_leader, *tag, made))
F08(intercomm_merge, LIST(const MPI_Comm *comm, const int *high, MPI_Comm *made), MPI_Intercomm_merge(*comm, *high, made))

#else
/* An empty file is no C. */
typedef int f08_of_open_mpi_is_in_fortran_c;
#endif
