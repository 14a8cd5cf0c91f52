/* Start and end, the making of communicators, and one-sided communication. */
#include "communicators.h"
#include "point_to_point.h"
#include "traced.h"

#include <stdlib.h>

/* ---- start and end ---- */

void trace_begin(void)
{
    trace_start();
    if (trace_is_on())
        communicators_start();
}

EXPORT int MPI_Init(int *argc, char ***argv)
{
    trace_check_family();
    const int status = PMPI_Init(argc, argv);
    if (status == MPI_SUCCESS)
        trace_begin();
    return status;
}

EXPORT int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
    trace_check_family();
    const int status = PMPI_Init_thread(argc, argv, wanted, provided);
    if (status == MPI_SUCCESS)
        trace_begin();
    return status;
}

EXPORT int MPI_Finalize(void)
{
    trace_stop(STATE_FINALIZED);
    return PMPI_Finalize();
}

EXPORT int MPI_Abort(MPI_Comm comm, int code)
{
    trace_stop(STATE_ABORTED);
    return PMPI_Abort(comm, code);
}

/* ---- communicators ---- */

#define LIST(...) __VA_ARGS__

#define MAKER(name, parameters, arguments)                              \
    EXPORT int MPI_##name(parameters, MPI_Comm *made)                   \
    {                                                                   \
        TRACED(PMPI_##name(arguments, made), communicator_made(*made)); \
    }

MAKER(Comm_dup, LIST(MPI_Comm comm), LIST(comm))
MAKER(Comm_dup_with_info, LIST(MPI_Comm comm, MPI_Info info), LIST(comm, info))
MAKER(Comm_create, LIST(MPI_Comm comm, MPI_Group group), LIST(comm, group))
MAKER(Comm_create_group, LIST(MPI_Comm comm, MPI_Group group, int tag), LIST(comm, group, tag))
MAKER(Comm_split, LIST(MPI_Comm comm, int color, int order), LIST(comm, color, order))
MAKER(Comm_split_type, LIST(MPI_Comm comm, int type, int order, MPI_Info info), LIST(comm, type, order, info))
MAKER(Cart_create, LIST(MPI_Comm comm, int axes, const int sizes[], const int periodic[], int reorder),
      LIST(comm, axes, sizes, periodic, reorder))
MAKER(Cart_sub, LIST(MPI_Comm comm, const int remaining[]), LIST(comm, remaining))
MAKER(Graph_create, LIST(MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder),
      LIST(comm, nodes, index, edges, reorder))
MAKER(Dist_graph_create,
      LIST(MPI_Comm comm, int count, const int sources[], const int degrees[], const int targets[],
           const int weights[], MPI_Info info, int reorder),
      LIST(comm, count, sources, degrees, targets, weights, info, reorder))
MAKER(Dist_graph_create_adjacent,
      LIST(MPI_Comm comm, int in, const int sources[], const int in_weights[], int out, const int targets[],
           const int out_weights[], MPI_Info info, int reorder),
      LIST(comm, in, sources, in_weights, out, targets, out_weights, info, reorder))
MAKER(Intercomm_create, LIST(MPI_Comm local, int leader, MPI_Comm bridge, int remote_leader, int tag),
      LIST(local, leader, bridge, remote_leader, tag))
MAKER(Intercomm_merge, LIST(MPI_Comm comm, int high), LIST(comm, high))

/* The new communicator must not be used before the request completes, but its ranks are those of the old one, and its turn is
 * now. */
EXPORT int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *made, MPI_Request *request)
{
    TRACED(PMPI_Comm_idup(comm, made, request), trace_note(NOTE_PARTITIONED));
}

EXPORT int MPI_Comm_spawn(const char *command, char *argv[], int most, MPI_Info info, int root, MPI_Comm comm,
                          MPI_Comm *made, int errors[])
{
    TRACED(PMPI_Comm_spawn(command, argv, most, info, root, comm, made, errors), trace_note(NOTE_SPAWN));
}

EXPORT int MPI_Comm_spawn_multiple(int count, char *commands[], char **argv[], const int most[], const MPI_Info infos[],
                                   int root, MPI_Comm comm, MPI_Comm *made, int errors[])
{
    TRACED(PMPI_Comm_spawn_multiple(count, commands, argv, most, infos, root, comm, made, errors),
           trace_note(NOTE_SPAWN));
}

/* ---- one-sided communication ---- */

static int window_key = MPI_KEYVAL_INVALID;

struct window {
    int size;
    int world[];
};

static int window_freed(MPI_Win window, int keyval, void *value, void *state)
{
    (void)window, (void)keyval, (void)state;
    free(value);
    return MPI_SUCCESS;
}

/* NULL when there is no memory. */
static const struct window *window_of(MPI_Win win)
{
    struct window *window = NULL;
    int is_set = 0, size = 0;
    MPI_Group group, world;
    if (window_key == MPI_KEYVAL_INVALID)
        PMPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, window_freed, &window_key, NULL);
    PMPI_Win_get_attr(win, window_key, &window, &is_set);
    if (is_set)
        return window;
    PMPI_Win_get_group(win, &group);
    PMPI_Group_size(group, &size);
    window = malloc(sizeof *window + 2 * (size_t)size * sizeof(int));
    if (window != NULL) {
        int *own = window->world + size;
        window->size = size;
        for (int i = 0; i < size; i++)
            own[i] = i;
        PMPI_Comm_group(MPI_COMM_WORLD, &world);
        PMPI_Group_translate_ranks(group, size, own, world, window->world);
        PMPI_Group_free(&world);
        PMPI_Win_set_attr(win, window_key, window);
    }
    PMPI_Group_free(&group);
    return window;
}

static void count_one_sided(MPI_Win win, int target, uint64_t put, uint64_t got)
{
    trace_note(NOTE_ONE_SIDED);
    const struct window *window = target < 0 ? NULL : window_of(win);
    struct pair_counts *pair =
        window == NULL || target >= window->size ? NULL : trace_pair(window->world[target]);
    if (pair == NULL)
        return;
    pair->put_messages += put > 0;
    pair->put_bytes += put;
    pair->got_messages += got > 0;
    pair->got_bytes += got;
}

#define ORIGIN const void *origin, int count, MPI_Datatype type
#define TARGET int target, MPI_Aint place, int target_count, MPI_Datatype target_type
#define TARGET_ARGUMENTS target, place, target_count, target_type

EXPORT int MPI_Put(ORIGIN, TARGET, MPI_Win win)
{
    TRACED(PMPI_Put(origin, count, type, TARGET_ARGUMENTS, win), count_one_sided(win, target, bytes_of(count, type), 0));
}

EXPORT int MPI_Rput(ORIGIN, TARGET, MPI_Win win, MPI_Request *request)
{
    TRACED(PMPI_Rput(origin, count, type, TARGET_ARGUMENTS, win, request),
           count_one_sided(win, target, bytes_of(count, type), 0));
}

EXPORT int MPI_Get(void *origin, int count, MPI_Datatype type, TARGET, MPI_Win win)
{
    TRACED(PMPI_Get(origin, count, type, TARGET_ARGUMENTS, win), count_one_sided(win, target, 0, bytes_of(count, type)));
}

EXPORT int MPI_Rget(void *origin, int count, MPI_Datatype type, TARGET, MPI_Win win, MPI_Request *request)
{
    TRACED(PMPI_Rget(origin, count, type, TARGET_ARGUMENTS, win, request),
           count_one_sided(win, target, 0, bytes_of(count, type)));
}

EXPORT int MPI_Accumulate(ORIGIN, TARGET, MPI_Op op, MPI_Win win)
{
    TRACED(PMPI_Accumulate(origin, count, type, TARGET_ARGUMENTS, op, win),
           count_one_sided(win, target, bytes_of(count, type), 0));
}

EXPORT int MPI_Raccumulate(ORIGIN, TARGET, MPI_Op op, MPI_Win win, MPI_Request *request)
{
    TRACED(PMPI_Raccumulate(origin, count, type, TARGET_ARGUMENTS, op, win, request),
           count_one_sided(win, target, bytes_of(count, type), 0));
}

EXPORT int MPI_Get_accumulate(ORIGIN, void *result, int result_count, MPI_Datatype result_type, TARGET, MPI_Op op,
                              MPI_Win win)
{
    TRACED(PMPI_Get_accumulate(origin, count, type, result, result_count, result_type, TARGET_ARGUMENTS, op, win),
           count_one_sided(win, target, bytes_of(count, type), bytes_of(result_count, result_type)));
}

EXPORT int MPI_Fetch_and_op(const void *origin, void *result, MPI_Datatype type, int target, MPI_Aint place, MPI_Op op,
                            MPI_Win win)
{
    TRACED(PMPI_Fetch_and_op(origin, result, type, target, place, op, win),
           count_one_sided(win, target, bytes_of(1, type), bytes_of(1, type)));
}

EXPORT int MPI_Compare_and_swap(const void *origin, const void *compare, void *result, MPI_Datatype type, int target,
                                MPI_Aint place, MPI_Win win)
{
    TRACED(PMPI_Compare_and_swap(origin, compare, result, type, target, place, win),
           count_one_sided(win, target, bytes_of(1, type), bytes_of(1, type)));
}
