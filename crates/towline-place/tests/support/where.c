/* Each rank says where it is: `at RANK NODE CORES`, by MPI, the system's name and the processors that it may run on. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, length = 0;
    char node[256] = "", cores[4096] = "";
    cpu_set_t set;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    gethostname(node, sizeof node - 1);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int core = 0; core < CPU_SETSIZE && length < (int)sizeof cores - 16; core++)
        if (CPU_ISSET(core, &set))
            length += snprintf(cores + length, sizeof cores - (size_t)length, "%s%d", length > 0 ? "," : "", core);
    /* One write, so that lines of ranks do not mix. */
    printf("at %d %s %s\n", rank, node, cores);
    fflush(stdout);
    return MPI_Finalize();
}
