#include "collectives.h"

#include <stdlib.h>

/* An event of a collective: which, where, its root counted from 1, its size, then lists of sizes. */
static void begin(const struct communicator *communicator, enum collective call, int root, uint64_t bytes)
{
    event_begin(EVENT_COLLECTIVE);
    event_number(call);
    event_number(communicator->id);
    event_number((uint64_t)(root + 1));
    event_number(bytes);
}

/* Collectives between two groups are counted, but nothing knows how to replay them. */
static bool between_groups(const struct communicator *communicator)
{
    if (communicator->inter)
        trace_note(NOTE_INTER);
    return communicator->inter;
}

static uint64_t part(struct counts counts, int i)
{
    return bytes_of(counts.counts[i], counts.types != NULL ? counts.types[i] : counts.type);
}

static uint64_t sum(struct counts counts, int count)
{
    uint64_t total = 0;
    for (int i = 0; i < count; i++)
        total += part(counts, i);
    return total;
}

static void list(struct counts counts, int count)
{
    event_number((uint64_t)count);
    for (int i = 0; i < count; i++)
        event_number(part(counts, i));
}

static void count_direct(const struct communicator *communicator, int peer, uint64_t bytes)
{
    const int to = world_rank(communicator, peer);
    struct pair_counts *pair = peer == communicator->rank || to < 0 ? NULL : trace_pair(to);
    if (pair != NULL) {
        pair->direct_messages++;
        pair->direct_bytes += bytes;
    }
}

void record_simple(MPI_Comm comm, enum collective call, int root, uint64_t bytes)
{
    const struct communicator *communicator = communicator_of(comm);
    const bool inter = between_groups(communicator);
    const int world_root = inter || root < 0 ? -1 : world_rank(communicator, root);
    const bool contributes = call != BCAST || root == communicator->rank;
    trace_collective(communicator->id, call, world_root, contributes ? bytes : 0);
    if (inter)
        return;
    begin(communicator, call, world_root, bytes);
    event_end();
}

void record_regular(MPI_Comm comm, enum collective call, int root, uint64_t bytes)
{
    const struct communicator *communicator = communicator_of(comm);
    const bool inter = between_groups(communicator);
    const int world_root = inter || root < 0 ? -1 : world_rank(communicator, root);
    const uint64_t size = (uint64_t)communicator->size;
    uint64_t contributed = bytes;
    if (call == ALLTOALL || call == REDUCE_SCATTER_BLOCK)
        contributed = bytes * size;
    else if (call == SCATTER)
        contributed = root == communicator->rank ? bytes * size : 0;
    trace_collective(communicator->id, call, world_root, contributed);
    if (inter)
        return;
    const bool to_all = call == ALLTOALL || (call == SCATTER && root == communicator->rank);
    for (int i = 0; to_all && i < communicator->size; i++)
        count_direct(communicator, i, bytes);
    if (call == GATHER)
        count_direct(communicator, root, bytes);
    begin(communicator, call, world_root, bytes);
    event_end();
}

void record_rooted(MPI_Comm comm, enum collective call, int root, uint64_t own, struct counts of_all)
{
    const struct communicator *communicator = communicator_of(comm);
    const bool inter = between_groups(communicator), is_root = root == communicator->rank;
    const int world_root = inter ? -1 : world_rank(communicator, root);
    uint64_t contributed = own;
    if (call == SCATTERV)
        contributed = is_root && !inter ? sum(of_all, communicator->size) : 0;
    trace_collective(communicator->id, call, world_root, contributed);
    if (inter)
        return;
    if (call == GATHERV)
        count_direct(communicator, root, own);
    for (int i = 0; call == SCATTERV && is_root && i < communicator->size; i++)
        count_direct(communicator, i, part(of_all, i));
    begin(communicator, call, world_root, own);
    list(of_all, is_root ? communicator->size : 0);
    event_end();
}

void record_known(MPI_Comm comm, enum collective call, struct counts of_all)
{
    const struct communicator *communicator = communicator_of(comm);
    const bool inter = between_groups(communicator);
    const int size = inter ? 0 : communicator->size;
    const uint64_t total = sum(of_all, size);
    const uint64_t own = size > 0 ? part(of_all, communicator->rank) : 0;
    trace_collective(communicator->id, call, -1, call == REDUCE_SCATTER ? total : own);
    if (inter)
        return;
    begin(communicator, call, -1, own);
    list(of_all, size);
    event_end();
}

void record_exchange(MPI_Comm comm, enum collective call, struct counts sent, struct counts received)
{
    const struct communicator *communicator = communicator_of(comm);
    const bool inter = between_groups(communicator);
    const int size = communicator->peers;
    const uint64_t total = sum(sent, size);
    trace_collective(communicator->id, call, -1, total);
    if (inter)
        return;
    for (int i = 0; i < size; i++)
        if (part(sent, i) > 0)
            count_direct(communicator, i, part(sent, i));
    begin(communicator, call, -1, total);
    list(sent, size);
    list(received, size);
    event_end();
}

/* ---- neighbourhoods ---- */

struct neighbours {
    int sources, targets;
    int *from, *to; /* ranks of the communicator */
};

static bool find_neighbours(MPI_Comm comm, struct neighbours *neighbours)
{
    int topology = MPI_UNDEFINED, weighted = 0, axes = 0;
    const struct communicator *communicator = communicator_of(comm);
    *neighbours = (struct neighbours){0};
    PMPI_Topo_test(comm, &topology);
    if (topology == MPI_CART) {
        PMPI_Cartdim_get(comm, &axes);
        neighbours->sources = neighbours->targets = 2 * axes;
    } else if (topology == MPI_GRAPH) {
        PMPI_Graph_neighbors_count(comm, communicator->rank, &neighbours->sources);
        neighbours->targets = neighbours->sources;
    } else if (topology == MPI_DIST_GRAPH) {
        PMPI_Dist_graph_neighbors_count(comm, &neighbours->sources, &neighbours->targets, &weighted);
    }
    const size_t most = (size_t)neighbours->sources + (size_t)neighbours->targets + 1;
    neighbours->from = malloc(2 * most * sizeof(int));
    if (neighbours->from == NULL || topology == MPI_UNDEFINED)
        return false;
    /* The second half is for weights, which nobody asks for. */
    neighbours->to = neighbours->from + neighbours->sources;
    if (topology == MPI_CART) {
        for (int axis = 0; axis < axes; axis++)
            PMPI_Cart_shift(comm, axis, 1, &neighbours->from[2 * axis], &neighbours->from[2 * axis + 1]);
    } else if (topology == MPI_GRAPH) {
        PMPI_Graph_neighbors(comm, communicator->rank, neighbours->sources, neighbours->from);
    } else {
        int *weights = neighbours->from + most;
        PMPI_Dist_graph_neighbors(comm, neighbours->sources, neighbours->from, weights, neighbours->targets,
                                  neighbours->to, weights + neighbours->sources);
    }
    for (int i = 0; topology != MPI_DIST_GRAPH && i < neighbours->targets; i++)
        neighbours->to[i] = neighbours->from[i];
    return true;
}

static uint64_t size_of(const struct sizes *sizes, int i)
{
    return sizes->counts.counts != NULL ? part(sizes->counts, i) : sizes->each;
}

/* In the event: how many, then for each the rank in MPI_COMM_WORLD counted from 1 (0 for none) and the bytes. */
static void peer_list(const struct communicator *communicator, int count, const int *peers, const struct sizes *sizes)
{
    event_number((uint64_t)count);
    for (int i = 0; i < count; i++) {
        event_number((uint64_t)(world_rank(communicator, peers[i]) + 1));
        event_number(size_of(sizes, i));
    }
}

void record_neighbourhood(MPI_Comm comm, enum collective call, struct sizes sent, struct sizes received)
{
    struct neighbours neighbours;
    const struct communicator *communicator = communicator_of(comm);
    if (find_neighbours(comm, &neighbours)) {
        uint64_t total = 0;
        for (int i = 0; i < neighbours.targets; i++) {
            if (neighbours.to[i] < 0)
                continue;
            total += size_of(&sent, i);
            count_direct(communicator, neighbours.to[i], size_of(&sent, i));
        }
        trace_collective(communicator->id, call, -1, total);
        begin(communicator, call, -1, total);
        peer_list(communicator, neighbours.targets, neighbours.to, &sent);
        peer_list(communicator, neighbours.sources, neighbours.from, &received);
        event_end();
    } else {
        trace_note(NOTE_PARTITIONED);
    }
    free(neighbours.from);
}
