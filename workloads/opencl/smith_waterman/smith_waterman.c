/*
 * Smith-Waterman: the best local alignment of two DNA sequences, with affine gaps.
 *
 * `--method wavefront` launches one small kernel of seven arguments per anti-diagonal and sets all seven each time:
 * for sequences of 6K that is 12,288 launches and 86,016 arguments, the workload of tables 1 and 2 of the VOCL
 * paper. `--method tiled` launches one kernel per anti-diagonal of tiles.
 *
 * Each device aligns pairs of its own. A run writes the sequences, computes, and reads the best cell of each row and
 * the traceback directions (n x n bytes, the O(n^2) of the paper's table 4; not with --score-only).
 */
#include "../common/measure.h"
#include "../common/problem.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

extern const char smith_waterman_cl[];

/* Scores as in EDNAFULL with gaps of 10 + 1 per letter. */
#define MATCH 5
#define MISMATCH (-4)
#define GAP_OPEN 11
#define GAP_EXTEND 1

/* Below every score, and far enough from INT_MIN that subtracting GAP_EXTEND n times cannot wrap around. */
#define NEVER (INT_MIN / 2)

/* A byte of directions: where H came from, and whether the gaps that end here were extended. */
enum { FROM_NOTHING = 0, FROM_DIAGONAL = 1, FROM_LEFT = 2, FROM_UP = 3, FROM_MASK = 3, LEFT_EXTENDED = 4, UP_EXTENDED = 8 };

enum method { METHOD_WAVEFRONT, METHOD_TILED };

#define WAVEFRONT_GROUP 64
#define TILE 64

/* One pair of sequences on one device. */
struct alignment {
    unsigned char *sequences; /* the first, then the second */
    unsigned char *directions;
    cl_int (*best)[2]; /* by row from 1: score, column from 1; row 0 is border and unused */
    cl_mem sequences_buffer, h_buffer, gaps_buffer, directions_buffer, best_buffer;
    cl_kernel kernel;
};

struct aligner {
    const struct devices *devices;
    size_t length;
    enum method method;
    bool score_only;
    struct alignment *alignments; /* instance after instance, one per device in each */
};

/* A random sequence, and a copy of it with one letter in eight replaced and one in thirty lost or doubled: related
 * enough for a long alignment, different enough for it to have mismatches and gaps. */
static void random_pair(unsigned char *sequences, size_t length, uint64_t *random)
{
    static const char letters[4] = {'A', 'C', 'G', 'T'};
    for (size_t i = 0; i < length; i++)
        sequences[i] = (unsigned char)letters[random_below(random, 4)];
    size_t from = 0;
    for (size_t i = 0; i < length; i++) {
        const size_t chance = random_below(random, 240);
        if (chance < 4)
            from++;
        else if (chance < 8 && from > 0)
            from--;
        sequences[length + i] = chance < 38 || from >= length ? (unsigned char)letters[random_below(random, 4)]
                                                              : sequences[from];
        from++;
    }
}

static void alignment_create(struct alignment *alignment, const struct aligner *aligner, cl_program program,
                             uint64_t *random)
{
    const struct devices *devices = aligner->devices;
    const size_t length = aligner->length, pitch = length + 1;
    const size_t direction_bytes = aligner->score_only ? 1 : length * length;

    alignment->sequences = host_allocate(2 * length);
    alignment->directions = host_allocate(direction_bytes);
    alignment->best = host_allocate(pitch * sizeof *alignment->best);
    random_pair(alignment->sequences, length, random);

    alignment->sequences_buffer = buffer_create(devices, CL_MEM_READ_ONLY, 2 * length);
    alignment->h_buffer = buffer_create(devices, CL_MEM_READ_WRITE, 3 * pitch * sizeof(cl_int));
    alignment->gaps_buffer = buffer_create(devices, CL_MEM_READ_WRITE, 2 * pitch * sizeof(cl_int));
    alignment->directions_buffer = buffer_create(devices, CL_MEM_READ_WRITE, direction_bytes);
    alignment->best_buffer = buffer_create(devices, CL_MEM_READ_WRITE, pitch * sizeof *alignment->best);
    alignment->kernel =
        kernel_create(program, aligner->method == METHOD_TILED ? "align_tiles" : "align_diagonal");
}

static void alignment_release(struct alignment *alignment)
{
    CL_CHECK(clReleaseKernel(alignment->kernel));
    CL_CHECK(clReleaseMemObject(alignment->sequences_buffer));
    CL_CHECK(clReleaseMemObject(alignment->h_buffer));
    CL_CHECK(clReleaseMemObject(alignment->gaps_buffer));
    CL_CHECK(clReleaseMemObject(alignment->directions_buffer));
    CL_CHECK(clReleaseMemObject(alignment->best_buffer));
    free(alignment->sequences);
    free(alignment->directions);
    free(alignment->best);
}

static void launch_diagonal(const struct aligner *aligner, const struct alignment *alignment, struct run *run,
                            cl_uint device, cl_uint diagonal, size_t groups, size_t group_size)
{
    const cl_uint length = (cl_uint)aligner->length;
    const struct launch launch = {.dimensions = 1, .global = {groups * group_size}, .local = {group_size}};
    /* Only the last one changes. The paper's program sets all seven, so this one does. */
    SET_ARGUMENT(alignment->kernel, 0, alignment->sequences_buffer);
    SET_ARGUMENT(alignment->kernel, 1, alignment->h_buffer);
    SET_ARGUMENT(alignment->kernel, 2, alignment->gaps_buffer);
    SET_ARGUMENT(alignment->kernel, 3, alignment->directions_buffer);
    SET_ARGUMENT(alignment->kernel, 4, alignment->best_buffer);
    SET_ARGUMENT(alignment->kernel, 5, length);
    SET_ARGUMENT(alignment->kernel, 6, diagonal);
    run_kernel(run, device, alignment->kernel, &launch, NULL);
}

/* Cells (or tiles) on an anti-diagonal of a square of `side`, diagonals counted from 0. */
static size_t diagonal_length(size_t side, size_t diagonal)
{
    return diagonal < side ? diagonal + 1 : 2 * side - 1 - diagonal;
}

/* Goes over the devices inside the loop over the diagonals, so that all of them have work from the start. */
static void enqueue_diagonals(const struct aligner *aligner, const struct alignment *alignments, struct run *run)
{
    const size_t length = aligner->length;
    if (aligner->method == METHOD_TILED) {
        const size_t tiles = round_up(length, TILE) / TILE;
        for (size_t diagonal = 0; diagonal < 2 * tiles - 1; diagonal++)
            for (cl_uint d = 0; d < aligner->devices->count; d++)
                launch_diagonal(aligner, &alignments[d], run, d, (cl_uint)diagonal,
                                diagonal_length(tiles, diagonal), TILE);
        return;
    }
    /* Diagonal 1 clears the state of length + 1 rows; the kernel says more. */
    for (size_t diagonal = 1; diagonal <= 2 * length; diagonal++) {
        const size_t items = diagonal == 1 ? length + 1 : diagonal_length(length, diagonal - 2);
        const size_t groups = round_up(items, WAVEFRONT_GROUP) / WAVEFRONT_GROUP;
        for (cl_uint d = 0; d < aligner->devices->count; d++)
            launch_diagonal(aligner, &alignments[d], run, d, (cl_uint)diagonal, groups, WAVEFRONT_GROUP);
    }
}

static void issue(void *state, struct run *run)
{
    const struct aligner *aligner = state;
    const cl_uint count = aligner->devices->count;
    const size_t length = aligner->length;
    for (size_t i = 0; i < aligner->devices->options->instances; i++) {
        const struct alignment *alignments = &aligner->alignments[i * count];
        for (cl_uint d = 0; d < count; d++)
            CL_CHECK(clEnqueueWriteBuffer(run->queues[d], alignments[d].sequences_buffer, CL_FALSE, 0,
                                          2 * length, alignments[d].sequences, 0, NULL, NULL));
        enqueue_diagonals(aligner, alignments, run);
        for (cl_uint d = 0; d < count; d++) {
            const struct alignment *alignment = &alignments[d];
            CL_CHECK(clEnqueueReadBuffer(run->queues[d], alignment->best_buffer, CL_FALSE, 0,
                                         (length + 1) * sizeof *alignment->best, alignment->best, 0, NULL,
                                         NULL));
            if (!aligner->score_only)
                CL_CHECK(clEnqueueReadBuffer(run->queues[d], alignment->directions_buffer, CL_FALSE, 0,
                                             length * length, alignment->directions, 0, NULL, NULL));
            CL_CHECK(clFlush(run->queues[d]));
        }
    }
}

static int substitution(unsigned char first, unsigned char second)
{
    return first == second ? MATCH : MISMATCH;
}

static int maximum(int a, int b)
{
    return a > b ? a : b;
}

/* The score by the recurrences, row after row. */
static int reference_score(const unsigned char *sequences, size_t length)
{
    int *h = host_allocate((length + 1) * sizeof *h);
    int *f = host_allocate((length + 1) * sizeof *f);
    int best = 0;
    for (size_t column = 0; column <= length; column++) {
        h[column] = 0;
        f[column] = NEVER;
    }
    for (size_t row = 1; row <= length; row++) {
        int e = NEVER, diagonal = 0;
        for (size_t column = 1; column <= length; column++) {
            e = maximum(e - GAP_EXTEND, h[column - 1] - GAP_OPEN);
            f[column] = maximum(f[column] - GAP_EXTEND, h[column] - GAP_OPEN);
            const int aligned = diagonal + substitution(sequences[row - 1], sequences[length + column - 1]);
            diagonal = h[column];
            h[column] = maximum(maximum(aligned, 0), maximum(e, f[column]));
            best = maximum(best, h[column]);
        }
    }
    free(h);
    free(f);
    return best;
}

/* The direction byte of a cell, row and column counted from 1; directions_of_diagonal in the kernel is its twin. */
static unsigned char direction_at(const struct alignment *alignment, size_t length, size_t row, size_t column)
{
    const size_t diagonal = row + column - 2;
    if (diagonal < length)
        return alignment->directions[diagonal * (diagonal + 1) / 2 + row - 1];
    const size_t left = 2 * length - 1 - diagonal;
    return alignment->directions[length * length - left * (left + 1) / 2 + (row - 1) - (diagonal - length + 1)];
}

/* Follows the directions back from a cell and adds up the score of the path that they describe. */
static long path_score(const struct alignment *alignment, size_t length, size_t row, size_t column)
{
    const unsigned char *first = alignment->sequences, *second = alignment->sequences + length;
    long score = 0;
    int gap = FROM_NOTHING;
    while (row > 0 && column > 0) {
        const unsigned char direction = direction_at(alignment, length, row, column);
        const int from = gap != FROM_NOTHING ? gap : direction & FROM_MASK;
        if (from == FROM_NOTHING)
            break;
        if (from == FROM_DIAGONAL) {
            score += substitution(first[row - 1], second[column - 1]);
            row--, column--;
            continue;
        }
        const bool extended = (direction & (from == FROM_LEFT ? LEFT_EXTENDED : UP_EXTENDED)) != 0;
        score -= extended ? GAP_EXTEND : GAP_OPEN;
        gap = extended ? from : FROM_NOTHING;
        if (from == FROM_LEFT)
            column--;
        else
            row--;
    }
    return score;
}

/* All arithmetic is on integers, so the tolerance is zero: the score is the reference's, and the alignment that the
 * directions describe, scored letter by letter, has it. */
static struct verdict check(const struct aligner *aligner)
{
    const size_t count = aligner->devices->options->instances * aligner->devices->count;
    struct verdict verdict = {.passed = true};
    for (size_t i = 0; i < count; i++) {
        const struct alignment *alignment = &aligner->alignments[i];
        size_t best_row = 1;
        for (size_t row = 2; row <= aligner->length; row++) {
            if (alignment->best[row][0] > alignment->best[best_row][0])
                best_row = row;
        }
        const int score = alignment->best[best_row][0];
        const int expected = reference_score(alignment->sequences, aligner->length);
        if (score != expected) {
            fprintf(stderr, "smith_waterman: pair %zu: score %d, expected %d\n", i, score, expected);
            verdict.passed = false;
            verdict.max_error = fmax(verdict.max_error, fabs((double)score - expected) / fmax(expected, 1));
            continue;
        }
        if (aligner->score_only || score == 0)
            continue;
        const cl_int column = alignment->best[best_row][1];
        if (column < 1 || (size_t)column > aligner->length) {
            fprintf(stderr, "smith_waterman: pair %zu: no column %d\n", i, (int)column);
            verdict.passed = false;
            continue;
        }
        const long path = path_score(alignment, aligner->length, best_row, (size_t)column);
        if (path != score) {
            fprintf(stderr, "smith_waterman: pair %zu: the traced alignment scores %ld, not %d\n", i, path, score);
            verdict.passed = false;
            verdict.max_error = fmax(verdict.max_error, fabs((double)(path - score)) / score);
        }
    }
    return verdict;
}

int main(int argc, char **argv)
{
    struct options options = {DEFAULT_OPTIONS, .workload = "smith_waterman", .size = 1024};
    struct aligner aligner = {.method = METHOD_WAVEFRONT};
    const struct option own[] = {
        {"method", OPTION_CHOICE, &aligner.method, 0, "wavefront|tiled",
         "a launch per anti-diagonal of cells or of tiles (default: wavefront)"},
        {"score-only", OPTION_FLAG, &aligner.score_only, 0, NULL, "no directions, so no alignment: O(n) memory"},
    };
    options_parse(&options, argc, argv, "Finds the best local alignment of two DNA sequences, for each device a pair.",
                  "letters of each sequence", (struct option_table){own, 2});
    /* Diagonals and scores stay within 32 bits. */
    if (options.size > 1 << 27)
        usage_error(&options, "--size %zu: at most 134217728", options.size);

    struct devices devices;
    devices_open(&devices, &options);
    devices_require_group_size(&devices, aligner.method == METHOD_TILED ? TILE : WAVEFRONT_GROUP);
    aligner.devices = &devices;
    aligner.length = options.size;

    char build_options[384];
    snprintf(build_options, sizeof build_options,
             "-DMATCH=%d -DMISMATCH=%d -DGAP_OPEN=%d -DGAP_EXTEND=%d -DNEVER=%d -DFROM_NOTHING=%d "
             "-DFROM_DIAGONAL=%d -DFROM_LEFT=%d -DFROM_UP=%d -DLEFT_EXTENDED=%d -DUP_EXTENDED=%d -DTILE=%d%s",
             MATCH, MISMATCH, GAP_OPEN, GAP_EXTEND, NEVER, FROM_NOTHING, FROM_DIAGONAL, FROM_LEFT, FROM_UP,
             LEFT_EXTENDED, UP_EXTENDED, TILE, aligner.score_only ? " -DSCORE_ONLY" : "");
    cl_program program = program_build(&devices, smith_waterman_cl, build_options);

    const size_t count = options.instances * devices.count;
    uint64_t random = options.seed;
    aligner.alignments = host_allocate(count * sizeof *aligner.alignments);
    for (size_t i = 0; i < count; i++)
        alignment_create(&aligner.alignments[i], &aligner, program, &random);

    const struct measurement measurement = measure(&devices, issue, &aligner);
    struct verdict verdict;
    if (!options.skip_check)
        verdict = check(&aligner);
    const double n = (double)options.size;
    const struct rate rate = {"gcups", "GCUPS", n * n * (double)count * 1e-9};
    const int status = report(&devices, &measurement, rate, NULL, options.skip_check ? NULL : &verdict);

    for (size_t i = 0; i < count; i++)
        alignment_release(&aligner.alignments[i]);
    free(aligner.alignments);
    CL_CHECK(clReleaseProgram(program));
    devices_close(&devices);
    return status;
}
