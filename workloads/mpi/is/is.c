/*
 * NPB IS: sorts integers by ranking them, ten times (NAS report RNR-91-002, section 2.4.5).
 *
 * Keys are the sums of four random numbers, so that the middle is dense. Each iteration changes two keys, then every
 * rank counts its keys by bucket, the counts are added up, buckets are dealt to ranks so that each has about as many keys,
 * the keys go to their ranks (alltoallv), and are counted there. Only the last iteration's keys are put in order at the end,
 * for the full check.
 */
#include "bench.h"
#include "npb_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITERATIONS 10
#define TESTS 5

/* Where to look after each iteration, and which rank the key has there, up to the iteration (NPB 2, IS). */
struct problem {
    int keys_log2, values_log2;
    int index[TESTS];
    int rank[TESTS];
    /* What the iteration adds to the expected rank: +1, or -1, counted from one or from zero. */
    int sign[TESTS], offset[TESTS];
};

static const struct problem problems[] = {
    {16, 11, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}, {1, 1, 1, -1, -1}, {0, 0, 0, 0, 0}},
    {20, 16, {357773, 934767, 875723, 898999, 404505}, {1249, 11698, 1039987, 1043896, 1048018},
     {1, 1, -1, -1, -1}, {-2, -2, 0, 0, 0}},
    {23, 19, {2112377, 662041, 5336171, 3642833, 4250760}, {104, 17523, 123928, 8288932, 8388264},
     {1, 1, 1, -1, -1}, {-1, -1, -1, 1, 1}},
    {25, 21, {41869, 812306, 5102857, 18232239, 26860214}, {33422937, 10244, 59149, 33135281, 99},
     {-1, 1, 1, -1, 1}, {0, 0, 0, 0, 0}},
    {27, 23, {44172927, 72999161, 74326391, 129606274, 21736814}, {61147, 882988, 266290, 133997595, 133525895},
     {1, 1, 1, -1, -1}, {0, 0, 0, 0, 0}},
};

#define BUCKETS_LOG2_MAX 10

struct sorter {
    const struct bench *bench;
    const struct problem *problem;
    int key_count;   /* of this rank */
    int value_count; /* values that keys can have */
    int buckets, bucket_shift;
    int *keys;
    int *grouped;              /* keys by bucket */
    int *received;             /* keys of this rank's buckets */
    int received_capacity;
    int received_count;
    int first_value, last_value; /* that this rank counts; last is one further */
    long long smaller;           /* keys of ranks before this one */
    int *counts;               /* of values up to and with this one, among the received */
    int *bucket_sizes, *bucket_totals, *bucket_at;
    int *send_counts, *send_at, *receive_counts, *receive_at;
    int passed; /* tests of this rank that were right */
};

static void make_keys(struct sorter *sorter)
{
    const uint64_t first = (uint64_t)sorter->bench->rank * (uint64_t)sorter->key_count;
    uint64_t state = npb_random_skip(NPB_SEED, 4 * first);
    const double quarter = sorter->value_count / 4;
    for (int i = 0; i < sorter->key_count; i++) {
        double sum = npb_random(&state);
        sum += npb_random(&state);
        sum += npb_random(&state);
        sum += npb_random(&state);
        sorter->keys[i] = (int)(quarter * sum);
    }
}

/* Groups the keys by bucket and counts them. */
static void group_keys(struct sorter *sorter)
{
    memset(sorter->bucket_sizes, 0, (size_t)sorter->buckets * sizeof(int));
    for (int i = 0; i < sorter->key_count; i++)
        sorter->bucket_sizes[sorter->keys[i] >> sorter->bucket_shift]++;
    int at = 0;
    for (int bucket = 0; bucket < sorter->buckets; bucket++) {
        sorter->bucket_at[bucket] = at;
        at += sorter->bucket_sizes[bucket];
    }
    for (int i = 0; i < sorter->key_count; i++)
        sorter->grouped[sorter->bucket_at[sorter->keys[i] >> sorter->bucket_shift]++] = sorter->keys[i];
}

/* Deals the buckets in order: a rank is full when it and those before it have their share of all keys. */
static void deal_buckets(struct sorter *sorter)
{
    const int ranks = sorter->bench->ranks;
    const long long total = (long long)sorter->key_count * ranks;
    long long dealt = 0, before = 0;
    int rank = 0, bucket = 0, sent = 0;
    for (rank = 0; rank < ranks; rank++) {
        const int first = bucket;
        const long long share = total * (rank + 1) / ranks;
        before = dealt;
        sorter->send_at[rank] = sent;
        while (bucket < sorter->buckets && (dealt < share || rank == ranks - 1)) {
            dealt += sorter->bucket_totals[bucket];
            sent += sorter->bucket_sizes[bucket];
            bucket++;
        }
        sorter->send_counts[rank] = sent - sorter->send_at[rank];
        if (rank == sorter->bench->rank) {
            sorter->first_value = first << sorter->bucket_shift;
            sorter->last_value = bucket << sorter->bucket_shift;
            sorter->smaller = before;
        }
    }
}

static void exchange_keys(struct sorter *sorter)
{
    const int ranks = sorter->bench->ranks;
    MPI_Alltoall(sorter->send_counts, 1, MPI_INT, sorter->receive_counts, 1, MPI_INT, MPI_COMM_WORLD);
    int count = 0;
    for (int rank = 0; rank < ranks; rank++) {
        sorter->receive_at[rank] = count;
        count += sorter->receive_counts[rank];
    }
    if (count > sorter->received_capacity) {
        free(sorter->received);
        sorter->received_capacity = count + count / 8;
        sorter->received = bench_allocate((size_t)sorter->received_capacity, sizeof(int));
    }
    sorter->received_count = count;
    MPI_Alltoallv(sorter->grouped, sorter->send_counts, sorter->send_at, MPI_INT, sorter->received,
                  sorter->receive_counts, sorter->receive_at, MPI_INT, MPI_COMM_WORLD);
}

static void count_values(struct sorter *sorter)
{
    const int values = sorter->last_value - sorter->first_value;
    memset(sorter->counts, 0, (size_t)values * sizeof(int));
    for (int i = 0; i < sorter->received_count; i++)
        sorter->counts[sorter->received[i] - sorter->first_value]++;
    for (int value = 1; value < values; value++)
        sorter->counts[value] += sorter->counts[value - 1];
}

/* The keys at the tested places, as all ranks know them, have the published ranks. */
static void check_ranks(struct sorter *sorter, const int *tested, int iteration)
{
    const struct problem *problem = sorter->problem;
    for (int test = 0; test < TESTS; test++) {
        const int key = tested[test];
        if (key < sorter->first_value || key >= sorter->last_value || key == 0)
            continue;
        long long rank = sorter->smaller;
        if (key > sorter->first_value)
            rank += sorter->counts[key - 1 - sorter->first_value];
        const long long expected =
            problem->rank[test] + (long long)problem->sign[test] * iteration + problem->offset[test];
        if (rank == expected)
            sorter->passed++;
    }
}

static void rank_keys(struct sorter *sorter, int iteration)
{
    const int rank = sorter->bench->rank;
    if (rank == 0) {
        sorter->keys[iteration] = iteration;
        sorter->keys[iteration + ITERATIONS] = sorter->value_count - iteration;
    }
    /* The tested keys ride along with the sizes of the buckets. */
    int *tested = sorter->bucket_sizes + sorter->buckets;
    group_keys(sorter);
    for (int test = 0; test < TESTS; test++) {
        const int at = sorter->problem->index[test] - rank * sorter->key_count;
        tested[test] = at >= 0 && at < sorter->key_count ? sorter->keys[at] : 0;
    }
    MPI_Allreduce(sorter->bucket_sizes, sorter->bucket_totals, sorter->buckets + TESTS, MPI_INT, MPI_SUM,
                  MPI_COMM_WORLD);
    deal_buckets(sorter);
    exchange_keys(sorter);
    count_values(sorter);
    if (iteration > 0)
        check_ranks(sorter, sorter->bucket_totals + sorter->buckets, iteration);
}

/* Puts the received keys in order and counts those that are out of order, also across ranks, or lost. */
static long long sort_and_count_errors(struct sorter *sorter)
{
    const struct bench *bench = sorter->bench;
    int *sorted = bench_allocate((size_t)sorter->received_count + 1, sizeof(int));
    int at = 0;
    for (int value = sorter->first_value; value < sorter->last_value; value++)
        while (at < sorter->counts[value - sorter->first_value])
            sorted[at++] = value;
    long long errors = at != sorter->received_count;
    /* What counting restored is what came: the sums agree. */
    long long sums[2] = {0, 0};
    for (int i = 0; i < sorter->received_count; i++) {
        sums[0] += sorter->received[i];
        sums[1] += sorted[i];
        errors += i > 0 && sorted[i - 1] > sorted[i];
    }
    errors += sums[0] != sums[1];
    /* The largest key so far goes from rank to rank; one without keys passes it on. */
    int largest_before = -1;
    if (bench->rank > 0)
        MPI_Recv(&largest_before, 1, MPI_INT, bench->rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int largest = largest_before;
    if (sorter->received_count > 0) {
        errors += largest_before > sorted[0];
        largest = sorted[sorter->received_count - 1];
    }
    if (bench->rank + 1 < bench->ranks)
        MPI_Send(&largest, 1, MPI_INT, bench->rank + 1, 0, MPI_COMM_WORLD);
    free(sorted);
    long long both[2] = {errors, sorter->received_count}, totals[2];
    MPI_Allreduce(both, totals, 2, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return totals[0] + (totals[1] != (long long)sorter->key_count * bench->ranks);
}

int main(int argc, char **argv)
{
    struct bench bench = {.workload = "is", .classes = "S|W|A|B|C"};
    bench_begin(&bench, &argc, &argv, "NPB IS: ranks integer keys, with all-to-all exchanges.", NULL, NULL, 0);
    const struct problem *problem = &problems[bench.class_index];
    if (log2_exact(bench.ranks) < 0 || bench.ranks > 1024)
        bench_refuse(&bench, "the number of ranks must be a power of two up to 1024, not %d", bench.ranks);

    struct sorter sorter = {.bench = &bench, .problem = problem};
    sorter.key_count = (1 << problem->keys_log2) / bench.ranks;
    sorter.value_count = 1 << problem->values_log2;
    const int buckets_log2 = BUCKETS_LOG2_MAX < problem->values_log2 ? BUCKETS_LOG2_MAX : problem->values_log2;
    sorter.buckets = 1 << buckets_log2;
    sorter.bucket_shift = problem->values_log2 - buckets_log2;
    if (sorter.key_count < 2 * ITERATIONS + 1)
        bench_refuse(&bench, "class %s has too few keys for %d ranks", bench.class_name, bench.ranks);
    sorter.received_capacity = sorter.key_count + sorter.key_count / 2;
    sorter.keys = bench_allocate((size_t)sorter.key_count, sizeof(int));
    sorter.grouped = bench_allocate((size_t)sorter.key_count, sizeof(int));
    sorter.received = bench_allocate((size_t)sorter.received_capacity, sizeof(int));
    /* A rank may be dealt all values when the others' keys are few. */
    sorter.counts = bench_allocate((size_t)sorter.value_count + 1, sizeof(int));
    sorter.bucket_sizes = bench_allocate((size_t)sorter.buckets + TESTS, sizeof(int));
    sorter.bucket_totals = bench_allocate((size_t)sorter.buckets + TESTS, sizeof(int));
    sorter.bucket_at = bench_allocate((size_t)sorter.buckets, sizeof(int));
    int *of_ranks = bench_allocate((size_t)bench.ranks * 4, sizeof(int));
    sorter.send_counts = of_ranks;
    sorter.send_at = of_ranks + bench.ranks;
    sorter.receive_counts = of_ranks + 2 * bench.ranks;
    sorter.receive_at = of_ranks + 3 * bench.ranks;
    make_keys(&sorter);

    rank_keys(&sorter, 1);
    sorter.passed = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = bench_now();
    for (int iteration = 1; iteration <= ITERATIONS; iteration++)
        rank_keys(&sorter, iteration);
    const double seconds = bench_now() - start;

    int passed = 0;
    MPI_Allreduce(&sorter.passed, &passed, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    const long long errors = sort_and_count_errors(&sorter);
    const int missing = TESTS * ITERATIONS - passed;
    struct result result = {
        .iterations = ITERATIONS,
        .seconds = seconds,
        .rate_key = "mkeys_per_s",
        .work = (double)ITERATIONS * (1 << problem->keys_log2) * 1e-6,
        .checked = true,
        .passed = errors == 0 && missing == 0,
        .max_error = (double)(errors + missing),
    };
    snprintf(result.size, sizeof result.size, "%d", 1 << problem->keys_log2);
    return bench_end(&bench, &result);
}
