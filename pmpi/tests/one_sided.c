/* Rank 0 writes 24 bytes into rank 1's memory and reads 16 bytes of it. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank;
    double *memory, own[4] = {5, 6, 7, 8};
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_allocate(4 * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    MPI_Win_fence(0, window);
    if (rank == 0)
        MPI_Put(own, 3, MPI_DOUBLE, 1, 0, 3, MPI_DOUBLE, window);
    MPI_Win_fence(0, window);
    if (rank == 0)
        MPI_Get(own, 2, MPI_DOUBLE, 1, 0, 2, MPI_DOUBLE, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
