/*
 * One rank of a job over NCCL, on the process's first device.
 *
 *   nccl_ranks FILE RANK RANKS [once|forever]    ranks find each other by the id that rank 0 leaves in FILE
 *
 * It reduces, gathers and passes data in a ring, and tells what came. With `forever` it goes on until a call fails, and tells the state of
 * its communicator.
 */
#include "driver.h"

#include <time.h>
#include <unistd.h>

enum { COUNT = 1000, INT32 = 2, SUM = 0 };

typedef struct { char bytes[128]; } Id;
typedef void *Comm;

static void *library;

static void *find(const char *name)
{
    void *function = dlsym(library, name);
    if (function == NULL) {
        printf("no %s\n", name);
        exit(1);
    }
    return function;
}

static void expect(int result, const char *what)
{
    if (result != 0) {
        printf("%s: %d\n", what, result);
        exit(1);
    }
}

static void rest(void)
{
    struct timespec pause = {0, 10000000};
    nanosleep(&pause, NULL);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    int rank = atoi(argv[2]), ranks = atoi(argv[3]);
    int forever = argc > 4 && strcmp(argv[4], "forever") == 0;
    open_device();
    library = dlopen("libnccl.so.2", RTLD_NOW);
    if (library == NULL) {
        puts("no NCCL");
        return 1;
    }
    int (*make_id)(Id *) = (int (*)(Id *))find("ncclGetUniqueId");
    int (*join)(Comm *, int, Id, int) = (int (*)(Comm *, int, Id, int))find("ncclCommInitRank");
    int (*reduce)(const void *, void *, size_t, int, int, Comm, void *) =
        (int (*)(const void *, void *, size_t, int, int, Comm, void *))find("ncclAllReduce");
    int (*gather)(const void *, void *, size_t, int, Comm, void *) =
        (int (*)(const void *, void *, size_t, int, Comm, void *))find("ncclAllGather");
    int (*send)(const void *, size_t, int, int, Comm, void *) =
        (int (*)(const void *, size_t, int, int, Comm, void *))find("ncclSend");
    int (*receive)(void *, size_t, int, int, Comm, void *) =
        (int (*)(void *, size_t, int, int, Comm, void *))find("ncclRecv");
    int (*begin)(void) = (int (*)(void))find("ncclGroupStart");
    int (*end)(void) = (int (*)(void))find("ncclGroupEnd");
    int (*state_of)(Comm, int *) = (int (*)(Comm, int *))find("ncclCommGetAsyncError");
    int (*destroy)(Comm) = (int (*)(Comm))find("ncclCommDestroy");

    Id id;
    char fresh[4096];
    snprintf(fresh, sizeof fresh, "%s.fresh", argv[1]);
    if (rank == 0) {
        expect(make_id(&id), "an id");
        FILE *file = fopen(fresh, "wb");
        if (file == NULL || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) != 0 || rename(fresh, argv[1]) != 0)
            return 2;
    } else {
        FILE *file;
        for (int turn = 0; (file = fopen(argv[1], "rb")) == NULL; turn++) {
            if (turn > 3000)
                return 2;
            rest();
        }
        if (fread(&id, sizeof id, 1, file) != 1)
            return 2;
        fclose(file);
    }
    Comm comm;
    expect(join(&comm, ranks, id, rank), "join");

    static int32_t mine[COUNT], theirs[64 * COUNT];
    for (int i = 0; i < COUNT; i++)
        mine[i] = i * (rank + 1);
    uint64_t own = device_memory(sizeof mine), others = device_memory((size_t)ranks * sizeof mine);
    CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), own, mine, sizeof mine);
    expect(gather((void *)own, (void *)others, COUNT, INT32, comm, NULL), "gather");
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), theirs, others, (size_t)ranks * sizeof mine);
    for (int i = 0; i < ranks * COUNT; i++)
        if (theirs[i] != i % COUNT * (i / COUNT + 1)) {
            printf("gathered %d at %d\n", theirs[i], i);
            return 1;
        }
    expect(begin(), "a group");
    expect(send((void *)own, COUNT, INT32, (rank + 1) % ranks, comm, NULL), "send");
    expect(receive((void *)others, COUNT, INT32, (rank + ranks - 1) % ranks, comm, NULL), "receive");
    expect(end(), "the group's end");
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), theirs, others, sizeof mine);
    printf("from the rank before: %d\n", theirs[1]);
    expect(reduce((void *)own, (void *)own, COUNT, INT32, SUM, comm, NULL), "reduce");
    CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), mine, own, sizeof mine);
    printf("sum: %d\n", mine[1]);
    fflush(stdout);
    for (int state = 0; forever;) {
        expect(reduce((void *)own, (void *)others, COUNT, INT32, SUM, comm, NULL), "reduce");
        int copied = STATUS(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), theirs, others, sizeof mine);
        expect(state_of(comm, &state), "the state");
        if (state != 0 || copied != 0) {
            printf("copied %d, state %d\n", copied, state);
            return 0;
        }
    }
    expect(destroy(comm), "destroy");
    return 0;
}
