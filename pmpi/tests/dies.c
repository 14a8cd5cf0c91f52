/* Every rank sends 8 bytes to the next ten times; then rank 2 is killed, and the others wait for it. */
#include <mpi.h>
#include <signal.h>

int main(int argc, char **argv)
{
    int rank, ranks;
    double value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 10; i++)
        MPI_Sendrecv_replace(&value, 1, MPI_DOUBLE, (rank + 1) % ranks, 0, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
    if (rank == 2)
        raise(SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
