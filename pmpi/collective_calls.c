/* The collectives as C calls them, blocking and not. One that does not block is recorded where it begins. */
#include "collectives.h"
#include "traced.h"

#define LIST(...) __VA_ARGS__

#define COLLECTIVE(name, nonblocking, parameters, arguments, record)                 \
    EXPORT int MPI_##name(parameters)                                                \
    {                                                                                \
        TRACED(PMPI_##name(arguments), record);                                      \
    }                                                                                \
    EXPORT int MPI_##nonblocking(parameters, MPI_Request *request)                   \
    {                                                                                \
        TRACED(PMPI_##nonblocking(arguments, request), record);                      \
    }

/* Counts as an array of the program and their type, or an array of types. */
#define OF(array, one_type) ((struct counts){.counts = (array), .type = (one_type)})
#define OF_TYPES(array, array_of_types) ((struct counts){.counts = (array), .types = (array_of_types)})
#define EACH(bytes) ((struct sizes){.each = (bytes)})
#define COUNTED(of) ((struct sizes){.counts = of})

COLLECTIVE(Barrier, Ibarrier, LIST(MPI_Comm comm), LIST(comm), record_simple(comm, BARRIER, -1, 0))

COLLECTIVE(Bcast, Ibcast, LIST(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
           LIST(buffer, count, type, root, comm), record_simple(comm, BCAST, root, bytes_of(count, type)))

COLLECTIVE(Reduce, Ireduce,
           LIST(const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm),
           LIST(sent, received, count, type, op, root, comm), record_simple(comm, REDUCE, root, bytes_of(count, type)))

COLLECTIVE(Allreduce, Iallreduce,
           LIST(const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           LIST(sent, received, count, type, op, comm), record_simple(comm, ALLREDUCE, -1, bytes_of(count, type)))

COLLECTIVE(Scan, Iscan, LIST(const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           LIST(sent, received, count, type, op, comm), record_simple(comm, SCAN, -1, bytes_of(count, type)))

COLLECTIVE(Exscan, Iexscan,
           LIST(const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           LIST(sent, received, count, type, op, comm), record_simple(comm, EXSCAN, -1, bytes_of(count, type)))

COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block,
           LIST(const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           LIST(sent, received, count, type, op, comm),
           record_regular(comm, REDUCE_SCATTER_BLOCK, -1, bytes_of(count, type)))

COLLECTIVE(Reduce_scatter, Ireduce_scatter,
           LIST(const void *sent, void *received, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           LIST(sent, received, counts, type, op, comm), record_known(comm, REDUCE_SCATTER, OF(counts, type)))

COLLECTIVE(Gather, Igather,
           LIST(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, int count, MPI_Datatype type,
                int root, MPI_Comm comm),
           LIST(sent, sent_count, sent_type, received, count, type, root, comm),
           record_regular(comm, GATHER, root,
                          sent == MPI_IN_PLACE ? bytes_of(count, type) : bytes_of(sent_count, sent_type)))

COLLECTIVE(Scatter, Iscatter,
           LIST(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, int count, MPI_Datatype type,
                int root, MPI_Comm comm),
           LIST(sent, sent_count, sent_type, received, count, type, root, comm),
           record_regular(comm, SCATTER, root,
                          received == MPI_IN_PLACE || communicator_of(comm)->rank == root
                              ? bytes_of(sent_count, sent_type)
                              : bytes_of(count, type)))

COLLECTIVE(Gatherv, Igatherv,
           LIST(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, const int counts[],
                const int places[], MPI_Datatype type, int root, MPI_Comm comm),
           LIST(sent, sent_count, sent_type, received, counts, places, type, root, comm),
           record_rooted(comm, GATHERV, root,
                         sent == MPI_IN_PLACE ? bytes_of(counts[root], type) : bytes_of(sent_count, sent_type),
                         OF(counts, type)))

COLLECTIVE(Scatterv, Iscatterv,
           LIST(const void *sent, const int counts[], const int places[], MPI_Datatype sent_type, void *received,
                int count, MPI_Datatype type, int root, MPI_Comm comm),
           LIST(sent, counts, places, sent_type, received, count, type, root, comm),
           record_rooted(comm, SCATTERV, root,
                         received == MPI_IN_PLACE ? bytes_of(counts[root], sent_type) : bytes_of(count, type),
                         OF(counts, sent_type)))

COLLECTIVE(Allgather, Iallgather,
           LIST(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, int count, MPI_Datatype type,
                MPI_Comm comm),
           LIST(sent, sent_count, sent_type, received, count, type, comm),
           record_regular(comm, ALLGATHER, -1,
                          sent == MPI_IN_PLACE ? bytes_of(count, type) : bytes_of(sent_count, sent_type)))

COLLECTIVE(Allgatherv, Iallgatherv,
           LIST(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, const int counts[],
                const int places[], MPI_Datatype type, MPI_Comm comm),
           LIST(sent, sent_count, sent_type, received, counts, places, type, comm),
           record_known(comm, ALLGATHERV, OF(counts, type)))

COLLECTIVE(Alltoall, Ialltoall,
           LIST(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, int count, MPI_Datatype type,
                MPI_Comm comm),
           LIST(sent, sent_count, sent_type, received, count, type, comm),
           record_regular(comm, ALLTOALL, -1,
                          sent == MPI_IN_PLACE ? bytes_of(count, type) : bytes_of(sent_count, sent_type)))

COLLECTIVE(Alltoallv, Ialltoallv,
           LIST(const void *sent, const int sent_counts[], const int sent_places[], MPI_Datatype sent_type,
                void *received, const int counts[], const int places[], MPI_Datatype type, MPI_Comm comm),
           LIST(sent, sent_counts, sent_places, sent_type, received, counts, places, type, comm),
           record_exchange(comm, ALLTOALLV, sent == MPI_IN_PLACE ? OF(counts, type) : OF(sent_counts, sent_type),
                           OF(counts, type)))

COLLECTIVE(Alltoallw, Ialltoallw,
           LIST(const void *sent, const int sent_counts[], const int sent_places[], const MPI_Datatype sent_types[],
                void *received, const int counts[], const int places[], const MPI_Datatype types[], MPI_Comm comm),
           LIST(sent, sent_counts, sent_places, sent_types, received, counts, places, types, comm),
           record_exchange(comm, ALLTOALLW,
                           sent == MPI_IN_PLACE ? OF_TYPES(counts, types) : OF_TYPES(sent_counts, sent_types),
                           OF_TYPES(counts, types)))

COLLECTIVE(Neighbor_allgather, Ineighbor_allgather,
           LIST(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, int count, MPI_Datatype type,
                MPI_Comm comm),
           LIST(sent, sent_count, sent_type, received, count, type, comm),
           record_neighbourhood(comm, NEIGHBOR_ALLGATHER, EACH(bytes_of(sent_count, sent_type)),
                                EACH(bytes_of(count, type))))

COLLECTIVE(Neighbor_allgatherv, Ineighbor_allgatherv,
           LIST(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, const int counts[],
                const int places[], MPI_Datatype type, MPI_Comm comm),
           LIST(sent, sent_count, sent_type, received, counts, places, type, comm),
           record_neighbourhood(comm, NEIGHBOR_ALLGATHERV, EACH(bytes_of(sent_count, sent_type)),
                                COUNTED(OF(counts, type))))

COLLECTIVE(Neighbor_alltoall, Ineighbor_alltoall,
           LIST(const void *sent, int sent_count, MPI_Datatype sent_type, void *received, int count, MPI_Datatype type,
                MPI_Comm comm),
           LIST(sent, sent_count, sent_type, received, count, type, comm),
           record_neighbourhood(comm, NEIGHBOR_ALLTOALL, EACH(bytes_of(sent_count, sent_type)),
                                EACH(bytes_of(count, type))))

COLLECTIVE(Neighbor_alltoallv, Ineighbor_alltoallv,
           LIST(const void *sent, const int sent_counts[], const int sent_places[], MPI_Datatype sent_type,
                void *received, const int counts[], const int places[], MPI_Datatype type, MPI_Comm comm),
           LIST(sent, sent_counts, sent_places, sent_type, received, counts, places, type, comm),
           record_neighbourhood(comm, NEIGHBOR_ALLTOALLV, COUNTED(OF(sent_counts, sent_type)),
                                COUNTED(OF(counts, type))))

COLLECTIVE(Neighbor_alltoallw, Ineighbor_alltoallw,
           LIST(const void *sent, const int sent_counts[], const MPI_Aint sent_places[],
                const MPI_Datatype sent_types[], void *received, const int counts[], const MPI_Aint places[],
                const MPI_Datatype types[], MPI_Comm comm),
           LIST(sent, sent_counts, sent_places, sent_types, received, counts, places, types, comm),
           record_neighbourhood(comm, NEIGHBOR_ALLTOALLW, COUNTED(OF_TYPES(sent_counts, sent_types)),
                                COUNTED(OF_TYPES(counts, types))))
