/* Ranks in a line: ten times each computes for 20 ms of its processor, sends to the next, where there is one, and meets the others. */
#include <mpi.h>
#include <time.h>

int main(int argc, char **argv)
{
    int rank, ranks;
    double value = 0, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int next = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    const int previous = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    for (int i = 0; i < 10; i++) {
        const clock_t end = clock() + CLOCKS_PER_SEC / 50;
        while (clock() < end)
            continue;
        MPI_Request requests[2];
        MPI_Irecv(&sum, 1, MPI_DOUBLE, previous, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&value, 1, MPI_DOUBLE, next, 0, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
