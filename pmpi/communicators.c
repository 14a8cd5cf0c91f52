#include "communicators.h"

#include <stdlib.h>
#include <string.h>

/* A program that makes more than this many has the rest counted as one, and is told so. */
#define MOST_COMMUNICATORS 65536
#define GROUP_SLOTS 16384

static struct communicator world, self, unknown;
static int key = MPI_KEYVAL_INVALID;
static uint32_t made = 2;
/* How many communicators there were with a group, by the group's hash. */
static struct {
    uint64_t hash;
    uint32_t count;
} groups[GROUP_SLOTS];
/* Most calls use the communicator of the call before. */
static MPI_Comm last_comm;
static struct communicator *last;

int world_rank(const struct communicator *communicator, int rank)
{
    return rank >= 0 && rank < communicator->peers ? communicator->world[rank] : -1;
}

void communicator_hold(struct communicator *communicator)
{
    communicator->references++;
}

void communicator_drop(struct communicator *communicator)
{
    if (--communicator->references == 0) {
        free(communicator->world);
        free(communicator);
    }
}

/* Called when MPI frees a communicator. */
static int freed(MPI_Comm comm, int keyval, void *value, void *state)
{
    (void)comm, (void)keyval, (void)state;
    last = NULL;
    communicator_drop(value);
    return MPI_SUCCESS;
}

/* Ranks in MPI_COMM_WORLD of a group, into `ranks`, with -1 for those outside. */
static void translate(MPI_Group group, int size, int *ranks)
{
    MPI_Group world_group;
    int *own = malloc((size_t)size * sizeof(int));
    PMPI_Comm_group(MPI_COMM_WORLD, &world_group);
    if (own != NULL) {
        for (int i = 0; i < size; i++)
            own[i] = i;
        PMPI_Group_translate_ranks(group, size, own, world_group, ranks);
        for (int i = 0; i < size; i++)
            if (ranks[i] == MPI_UNDEFINED || ranks[i] < 0)
                ranks[i] = -1;
    }
    free(own);
    PMPI_Group_free(&world_group);
}

static uint32_t ordinal_of(const uint32_t *words, size_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ words[i]) * UINT64_C(0x100000001b3);
    hash |= 1;
    for (uint64_t probe = 0; probe < GROUP_SLOTS; probe++) {
        const uint64_t slot = ((hash >> 20) + probe) % GROUP_SLOTS;
        if (groups[slot].hash == 0)
            groups[slot].hash = hash;
        if (groups[slot].hash == hash)
            return groups[slot].count++;
    }
    trace_note(NOTE_TABLE_FULL);
    return UINT32_MAX;
}

/* A record of rank-N.comms: length in words, id, ordinal, whether there are two groups, sizes of both, ranks of both. */
static void write_record(struct communicator *communicator, MPI_Comm comm)
{
    MPI_Group group, remote_group = MPI_GROUP_NULL;
    int size = 0, remote = 0;
    PMPI_Comm_group(comm, &group);
    PMPI_Group_size(group, &size);
    if (communicator->inter) {
        PMPI_Comm_remote_group(comm, &remote_group);
        PMPI_Group_size(remote_group, &remote);
    }
    const size_t count = 6 + (size_t)size + (size_t)remote;
    uint32_t *words = malloc(count * sizeof *words);
    if (words != NULL) {
        translate(group, size, (int *)words + 6);
        if (communicator->inter)
            translate(remote_group, remote, (int *)words + 6 + size);
        words[0] = (uint32_t)count;
        words[1] = communicator->id;
        words[3] = communicator->inter;
        words[4] = (uint32_t)size;
        words[5] = (uint32_t)remote;
        words[2] = ordinal_of(words + 3, count - 3);
        trace_write_communicator(words, count);
    }
    free(words);
    PMPI_Group_free(&group);
    if (communicator->inter)
        PMPI_Group_free(&remote_group);
}

static void fill(struct communicator *communicator, MPI_Comm comm)
{
    MPI_Group group;
    int inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    communicator->inter = inter != 0;
    PMPI_Comm_rank(comm, &communicator->rank);
    PMPI_Comm_size(comm, &communicator->size);
    if (communicator->inter)
        PMPI_Comm_remote_group(comm, &group);
    else
        PMPI_Comm_group(comm, &group);
    PMPI_Group_size(group, &communicator->peers);
    communicator->world = malloc((size_t)communicator->peers * sizeof(int) + 1);
    if (communicator->world != NULL)
        translate(group, communicator->peers, communicator->world);
    else
        communicator->peers = 0;
    PMPI_Group_free(&group);
}

void communicators_start(void)
{
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, freed, &key, NULL);
    world = (struct communicator){.id = 0, .references = 1};
    fill(&world, MPI_COMM_WORLD);
    write_record(&world, MPI_COMM_WORLD);
    self = (struct communicator){.id = 1, .references = 1};
    fill(&self, MPI_COMM_SELF);
    write_record(&self, MPI_COMM_SELF);
    unknown = (struct communicator){.id = UINT32_MAX, .references = 1};
}

static struct communicator *make(MPI_Comm comm)
{
    struct communicator *communicator = NULL;
    if (made < MOST_COMMUNICATORS)
        communicator = calloc(1, sizeof *communicator);
    if (communicator == NULL) {
        trace_note(NOTE_TABLE_FULL);
        return &unknown;
    }
    communicator->id = made++;
    communicator->references = 1;
    fill(communicator, comm);
    write_record(communicator, comm);
    PMPI_Comm_set_attr(comm, key, communicator);
    return communicator;
}

struct communicator *communicator_of(MPI_Comm comm)
{
    struct communicator *found = NULL;
    int is_set = 0;
    if (comm == MPI_COMM_WORLD)
        return &world;
    if (comm == MPI_COMM_SELF)
        return &self;
    if (last != NULL && comm == last_comm)
        return last;
    if (comm == MPI_COMM_NULL)
        return &unknown;
    PMPI_Comm_get_attr(comm, key, &found, &is_set);
    if (!is_set)
        found = make(comm);
    last_comm = comm;
    last = found;
    return found;
}

void communicator_made(MPI_Comm comm)
{
    if (comm != MPI_COMM_NULL)
        communicator_of(comm);
}
