/*
 * Ping-pong between two ranks: how long the smallest message takes, and how much large ones carry. What is received is checked.
 *
 * The latency is the median of many round trips, halved; the bandwidth is that of messages of 4 MiB, several on their way at once,
 * of which each window is answered by an empty message.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { TAG = 1, WINDOW = 8, LARGE_BYTES = 4 << 20, WARM_UP = 16 };

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Microseconds one way; the other rank answers. */
static double latency_us(int rank, int trips)
{
    double *times = bench_allocate((size_t)trips, sizeof *times);
    char byte = 0;
    for (int i = -WARM_UP; i < trips; i++) {
        const double begun = bench_now();
        if (rank == 0) {
            MPI_Send(&byte, 1, MPI_CHAR, 1, TAG, MPI_COMM_WORLD);
            MPI_Recv(&byte, 1, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&byte, 1, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&byte, 1, MPI_CHAR, 0, TAG, MPI_COMM_WORLD);
        }
        if (i >= 0)
            times[i] = bench_now() - begun;
    }
    qsort(times, (size_t)trips, sizeof *times, by_time);
    const double median = times[trips / 2];
    free(times);
    return median / 2 * 1e6;
}

/* What byte `at` of message `slot` of a round is. */
static unsigned char expected(int round, int slot, int at)
{
    return (unsigned char)((unsigned)at * 31u + (unsigned)slot * 7u + (unsigned)round);
}

static void send_windows(unsigned char *bytes, int rounds)
{
    MPI_Request requests[WINDOW];
    for (int round = 0; round < rounds; round++) {
        for (int slot = 0; slot < WINDOW; slot++)
            MPI_Isend(bytes + (size_t)slot * LARGE_BYTES, LARGE_BYTES, MPI_UNSIGNED_CHAR, 1, TAG, MPI_COMM_WORLD, &requests[slot]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        MPI_Recv(NULL, 0, MPI_UNSIGNED_CHAR, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void receive_windows(unsigned char *bytes, int rounds)
{
    MPI_Request requests[WINDOW];
    for (int round = 0; round < rounds; round++) {
        for (int slot = 0; slot < WINDOW; slot++)
            MPI_Irecv(bytes + (size_t)slot * LARGE_BYTES, LARGE_BYTES, MPI_UNSIGNED_CHAR, 0, TAG, MPI_COMM_WORLD, &requests[slot]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        MPI_Send(NULL, 0, MPI_UNSIGNED_CHAR, 0, TAG, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    static const int rounds_of_class[] = {4, 64}, trips_of_class[] = {1000, 10000};
    struct bench bench = {.workload = "pingpong", .classes = "S|A"};
    bench_begin(&bench, &argc, &argv, "Ping-pong: latency and bandwidth between two ranks.", NULL, NULL, 0);
    if (bench.ranks != 2)
        bench_refuse(&bench, "this takes 2 ranks, not %d", bench.ranks);
    const int rounds = rounds_of_class[bench.class_index];
    const double latency = latency_us(bench.rank, trips_of_class[bench.class_index]);

    unsigned char *bytes = bench_allocate((size_t)WINDOW * LARGE_BYTES, 1);
    if (bench.rank == 0)
        for (int slot = 0; slot < WINDOW; slot++)
            for (int at = 0; at < LARGE_BYTES; at++)
                bytes[(size_t)slot * LARGE_BYTES + (size_t)at] = expected(rounds, slot, at);
    /* Once without the clock: pages and connections are made at first use. */
    (bench.rank == 0 ? send_windows : receive_windows)(bytes, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = bench_now();
    (bench.rank == 0 ? send_windows : receive_windows)(bytes, rounds);
    const double seconds = bench_now() - begun;

    int wrong = 0;
    if (bench.rank == 1)
        for (int slot = 0; slot < WINDOW; slot++)
            for (int at = 0; at < LARGE_BYTES; at++)
                wrong += bytes[(size_t)slot * LARGE_BYTES + (size_t)at] != expected(rounds, slot, at);
    MPI_Bcast(&wrong, 1, MPI_INT, 1, MPI_COMM_WORLD);
    free(bytes);

    char extra[64];
    snprintf(extra, sizeof extra, ",\"latency_us\":%.3f", latency);
    struct result result = {.iterations = rounds, .seconds = seconds, .rate_key = "bandwidth_mb_per_s", .extra = extra};
    snprintf(result.size, sizeof result.size, "%d", LARGE_BYTES);
    result.work = (double)rounds * WINDOW * LARGE_BYTES / 1e6;
    result.checked = true;
    result.passed = wrong == 0;
    result.max_error = wrong;
    return bench_end(&bench, &result);
}
