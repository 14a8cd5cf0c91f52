/*
 * What tracing costs: a million times 8 bytes from a rank to itself, and 100,000 times between two ranks. Prints processor and
 * wall time per call; run it with and without `towline trace`.
 */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

#define ALONE 1000000
#define TOGETHER 100000

static double processor_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    double value = 1, other;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double wall = MPI_Wtime(), processor = processor_seconds();
    for (int i = 0; i < ALONE; i++)
        MPI_Sendrecv(&value, 1, MPI_DOUBLE, rank, 0, &other, 1, MPI_DOUBLE, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wall = MPI_Wtime() - wall;
    processor = processor_seconds() - processor;
    if (rank == 0)
        printf("sendrecv with itself: %.0f ns of processor, %.0f ns of time\n", processor / ALONE * 1e9, wall / ALONE * 1e9);
    wall = MPI_Wtime();
    for (int i = 0; ranks > 1 && rank < 2 && i < TOGETHER; i++) {
        if (i % 2 == rank)
            MPI_Send(&value, 1, MPI_DOUBLE, 1 - rank, 0, MPI_COMM_WORLD);
        else
            MPI_Recv(&value, 1, MPI_DOUBLE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    wall = MPI_Wtime() - wall;
    if (rank == 0 && ranks > 1)
        printf("ping-pong: %.0f ns of time\n", wall / TOGETHER * 1e9);
    MPI_Finalize();
    return 0;
}
