/* One of each kind of call, on 4 ranks. What it sends to whom is written down in crates/towline-cli/tests/trace.rs. */
#include <mpi.h>
#include <stdlib.h>

static char sent[4096], received[4096];

static void messages(int rank, int ranks)
{
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, opposite = (rank + 2) % ranks;
    MPI_Status status;
    MPI_Request requests[2];

    /* 100 bytes to the next. */
    if (rank % 2 == 0) {
        MPI_Send(sent, 100, MPI_BYTE, next, 1, MPI_COMM_WORLD);
        MPI_Recv(received, 100, MPI_BYTE, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(received, 100, MPI_BYTE, before, 1, MPI_COMM_WORLD, &status);
        MPI_Ssend(sent, 100, MPI_BYTE, next, 1, MPI_COMM_WORLD);
    }
    /* 40 bytes to the opposite, which receives from anywhere. */
    MPI_Irecv(received, 10, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(sent, 10, MPI_INT, opposite, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    /* What comes next must not be taken for it. */
    MPI_Barrier(MPI_COMM_WORLD);
    /* 64 bytes to the next. */
    MPI_Sendrecv(sent, 8, MPI_DOUBLE, next, 3, received, 8, MPI_DOUBLE, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    /* Three times 7 bytes to the one before, by persistent requests, tested and waited for. */
    MPI_Send_init(sent, 7, MPI_CHAR, before, 4, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(received, 7, MPI_CHAR, next, 4, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 3; i++) {
        int done = 0, which;
        MPI_Startall(2, requests);
        MPI_Waitany(2, requests, &which, &status);
        while (!done)
            MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    /* 5 bytes to itself, and to nobody. */
    MPI_Sendrecv(sent, 5, MPI_BYTE, rank, 5, received, 5, MPI_BYTE, rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(sent, 999, MPI_BYTE, MPI_PROC_NULL, 6, MPI_COMM_WORLD);
}

/* Ranks 0 and 2, and 1 and 3, have a communicator; 1000 bytes go to the other as 250 parts of a structure with holes. */
static void parts(int rank)
{
    MPI_Comm half;
    MPI_Datatype holes;
    double sum[3] = {0}, total[3];
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Type_vector(250, 4, 8, MPI_BYTE, &holes);
    MPI_Type_commit(&holes);
    MPI_Sendrecv(sent, 1, holes, 1 - rank / 2, 7, received, 1, holes, 1 - rank / 2, 7, half, MPI_STATUS_IGNORE);
    MPI_Type_free(&holes);
    MPI_Allreduce(sum, total, 3, MPI_DOUBLE, MPI_SUM, half);
    MPI_Comm_free(&half);
}

static void collectives(int rank, int ranks)
{
    int counts[4], places[4], from_counts[4], from_places[4];
    double one = 1, sum;
    MPI_Request request;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Bcast(sent, 16, MPI_BYTE, 1, MPI_COMM_WORLD);
    MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Iallreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Gather(sent, 12, MPI_BYTE, received, 12, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Alltoall(sent, 1, MPI_INT, received, 1, MPI_INT, MPI_COMM_WORLD);
    /* rank + other bytes, nothing from 0 to 0. */
    for (int other = 0; other < ranks; other++) {
        counts[other] = from_counts[other] = rank + other;
        places[other] = from_places[other] = 16 * other;
    }
    MPI_Alltoallv(sent, counts, places, MPI_BYTE, received, from_counts, from_places, MPI_BYTE, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    messages(rank, ranks);
    parts(rank);
    collectives(rank, ranks);
    MPI_Finalize();
    return 0;
}
