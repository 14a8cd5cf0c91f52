// Smith-Waterman: the best local alignment of two DNA sequences, with affine gaps.
//
// `--method wavefront` launches one small kernel of seven arguments per anti-diagonal: for sequences of 6K that is 12,288
// launches and 86,016 arguments, the workload of tables 1 and 2 of the VOCL paper. `--method tiled` launches one kernel per
// anti-diagonal of tiles.
//
// Each device aligns pairs of its own. A run writes the sequences, computes, and reads the best cell of each row and the
// traceback directions (n x n bytes, the O(n^2) of the paper's table 4; not with --score-only).
#include "../common/measure.h"
#include "reference.h"

#include <cmath>
#include <cstdio>

using namespace pair;

constexpr unsigned wavefront_group = 64, tile = 64;

enum method { method_wavefront, method_tiled };

// Rows and columns are counted from 1; the border is row 0 and column 0. Diagonal 1 is all border: its launch clears the
// state. Diagonals 2 to 2 n hold the cells. Cells on one anti-diagonal depend only on the two before it.
//
//   h      three anti-diagonals of H in turn, each indexed by row
//   gaps   E by row, then F by column: each belongs to one thread at a time and is updated in place
//   best   by row: the best H so far, and its column
__global__ void align_diagonal(const unsigned char *__restrict__ sequences, int *h, int *__restrict__ gaps,
                               unsigned char *__restrict__ directions, int2 *__restrict__ best, unsigned length,
                               unsigned diagonal) {
    const unsigned item = blockIdx.x * blockDim.x + threadIdx.x, pitch = length + 1;
    if (diagonal == 1) {
        if (item > length) return;
        for (unsigned i = 0; i < 3; i++) h[static_cast<size_t>(i) * pitch + item] = 0;
        gaps[item] = never;
        gaps[pitch + item] = never;
        best[item] = {0, 0};
        return;
    }
    const unsigned first_row = diagonal > length ? diagonal - length : 1, row = first_row + item;
    if (row > min(diagonal - 1, length)) return;
    const unsigned column = diagonal - row;
    int *h_now = h + static_cast<size_t>(diagonal % 3) * pitch;
    const int *h_before = h + static_cast<size_t>((diagonal + 2) % 3) * pitch;
    const int *h_two_before = h + static_cast<size_t>((diagonal + 1) % 3) * pitch;
    int e = gaps[row], f = gaps[pitch + column];
    unsigned char direction;
    const int value = cell(h_two_before[row - 1], h_before[row], h_before[row - 1], e, f,
                           substitution(sequences[row - 1], sequences[length + column - 1]), direction);
    gaps[row] = e;
    gaps[pitch + column] = f;
    h_now[row] = value;
    if (value > best[row].x) best[row] = {value, static_cast<int>(column)};
    if (directions != nullptr) directions[directions_of_diagonal(length, diagonal - 2) + item] = direction;
}

// One anti-diagonal of tiles per launch: a block computes one tile, a thread one row of it, the tile's own anti-diagonals
// in step. Rows and columns are counted from 0 here.
//
//   h      the lowest row of H computed so far by column, the rightmost column by row, then the corners: H at the lower
//          right of the last tile on each diagonal of tiles (where column - row is constant)
//   gaps   E by row, then F by column
//   best   by row + 1: the best H so far and its column, counted from 1
__global__ void __launch_bounds__(tile)
    align_tiles(const unsigned char *__restrict__ sequences, int *h, int *gaps, unsigned char *__restrict__ directions,
                int2 *best, unsigned length, unsigned tile_diagonal) {
    // The row above, replaced from left to right by the rows of the tile.
    __shared__ int h_up[tile], f_up[tile];
    __shared__ unsigned char letters[tile];

    const unsigned item = threadIdx.x, pitch = length + 1, tiles = (length + tile - 1) / tile;
    const unsigned first_tile_row = tile_diagonal >= tiles ? tile_diagonal - tiles + 1 : 0;
    const unsigned tile_row = first_tile_row + blockIdx.x, tile_column = tile_diagonal - tile_row;
    const unsigned row = tile_row * tile + item, first_column = tile_column * tile, own_column = first_column + item;
    int *h_bottom = h, *h_right = h + pitch;
    int *h_corner = h + 2 * static_cast<size_t>(pitch) + (tile_column + tiles - 1 - tile_row);

    const bool row_present = row < length, column_present = own_column < length;
    const unsigned char letter = row_present ? sequences[row] : 0;
    letters[item] = column_present ? sequences[length + own_column] : 0;
    h_up[item] = tile_row > 0 && column_present ? h_bottom[own_column] : 0;
    f_up[item] = tile_row > 0 && column_present ? gaps[pitch + own_column] : never;

    const bool has_left = tile_column > 0 && row_present;
    int h_left = has_left ? h_right[row] : 0, e = has_left ? gaps[row] : never, h_diagonal = 0;
    if (has_left && item > 0)
        h_diagonal = h_right[row - 1];
    else if (has_left && tile_row > 0)
        h_diagonal = *h_corner;
    int2 found = has_left ? best[row + 1] : int2{0, 0};
    // Also keeps these reads ahead of the writes below by the neighbour above.
    __syncthreads();

    for (unsigned step = 0; step < 2 * tile - 1; step++) {
        // Wraps around to a large number before this row's turn.
        const unsigned at = step - item, column = first_column + at;
        if (row_present && at < tile && column < length) {
            const int above = h_up[at];
            int f = f_up[at];
            unsigned char direction;
            const int value = cell(h_diagonal, h_left, above, e, f, substitution(letter, letters[at]), direction);
            h_diagonal = above;
            h_left = value;
            h_up[at] = value;
            f_up[at] = f;
            if (value > found.x) found = {value, static_cast<int>(column) + 1};
            if (directions != nullptr) {
                const unsigned diagonal = row + column, first_row = diagonal < length ? 0 : diagonal - length + 1;
                directions[directions_of_diagonal(length, diagonal) + (row - first_row)] = direction;
            }
        }
        __syncthreads();
    }
    if (row_present) {
        h_right[row] = h_left;
        gaps[row] = e;
        best[row + 1] = found;
    }
    if (column_present) {
        h_bottom[own_column] = h_up[item];
        gaps[pitch + own_column] = f_up[item];
    }
    // Only a whole tile has a neighbour at its lower right.
    if (item == tile - 1) *h_corner = h_left;
}

// One pair of sequences on one device.
struct alignment {
    host_array<unsigned char> sequences; // the first, then the second
    host_array<unsigned char> directions;
    host_array<int2> best; // by row from 1: score, column from 1; row 0 is border and unused
    device_array<unsigned char> on_sequences, on_directions;
    device_array<int> h, gaps;
    device_array<int2> on_best;

    alignment(const devices &devices, size_t device, bool score_only, random_source &random)
        : alignment(devices, device, devices.options->size, score_only) {
        random_sequences(sequences.data(), devices.options->size, random);
    }

private:
    alignment(const devices &devices, size_t device, size_t n, bool score_only)
        : sequences(*devices.options, 2 * n), directions(*devices.options, score_only ? 0 : n * n),
          best(*devices.options, n + 1), on_sequences(devices, device, 2 * n),
          on_directions(devices, device, score_only ? 0 : n * n), h(devices, device, 3 * (n + 1)),
          gaps(devices, device, 2 * (n + 1)), on_best(devices, device, n + 1) {}
};

struct aligner {
    const devices &on;
    size_t length;
    int method;
    bool score_only;
    std::vector<alignment> alignments; // instance after instance, one per device in each

    // Goes over the devices inside the loop over the diagonals, so that all of them have work from the start.
    void launch_diagonals(const alignment *instance, run &run) const {
        const bool tiled = method == method_tiled;
        const unsigned group = tiled ? tile : wavefront_group, n = static_cast<unsigned>(length);
        const size_t side = tiled ? divide_up(length, tile) : length;
        const unsigned first = tiled ? 0 : 1, end = static_cast<unsigned>(tiled ? 2 * side - 1 : 2 * length + 1);
        for (unsigned diagonal = first; diagonal < end; diagonal++) {
            // Diagonal 1 of cells clears the state of length + 1 rows.
            const size_t cells = tiled ? diagonal_length(side, diagonal)
                                       : divide_up(diagonal == 1 ? length + 1 : diagonal_length(length, diagonal - 2), group);
            for (size_t d = 0; d < on.count(); d++) {
                const alignment &pair = instance[d];
                unsigned char *directions = score_only ? nullptr : pair.on_directions.data();
                const auto kernel = tiled ? align_tiles : align_diagonal;
                run.kernel(d, [&](cudaStream_t stream) {
                    kernel<<<static_cast<unsigned>(cells), group, 0, stream>>>(
                        pair.on_sequences.data(), pair.h.data(), pair.gaps.data(), directions, pair.on_best.data(), n, diagonal);
                });
            }
        }
    }
    void issue(run &run) const {
        for (size_t i = 0; i < alignments.size(); i += on.count()) {
            const alignment *instance = &alignments[i];
            for (size_t d = 0; d < on.count(); d++)
                CUDA_CHECK(cudaMemcpyAsync(instance[d].on_sequences.data(), instance[d].sequences.data(),
                                           instance[d].sequences.bytes(), cudaMemcpyHostToDevice, run.stream(d)));
            launch_diagonals(instance, run);
            for (size_t d = 0; d < on.count(); d++) {
                CUDA_CHECK(cudaMemcpyAsync(instance[d].best.data(), instance[d].on_best.data(), instance[d].best.bytes(),
                                           cudaMemcpyDeviceToHost, run.stream(d)));
                if (score_only) continue;
                CUDA_CHECK(cudaMemcpyAsync(instance[d].directions.data(), instance[d].on_directions.data(),
                                           instance[d].directions.bytes(), cudaMemcpyDeviceToHost, run.stream(d)));
            }
        }
    }
    // All arithmetic is on integers, so the tolerance is zero: the score is the reference's, and the alignment that the
    // directions describe, scored letter by letter, has it.
    void check(const alignment &pair, verdict &verdict) const {
        size_t row = 1;
        for (size_t other = 2; other <= length; other++)
            if (pair.best[other].x > pair.best[row].x) row = other;
        const int score = pair.best[row].x, column = pair.best[row].y;
        const int expected = reference_score(pair.sequences.data(), length);
        if (score != expected) std::fprintf(stderr, "smith_waterman: score %d, expected %d\n", score, expected);
        verdict.hold(std::fabs(static_cast<double>(score) - expected) / std::max(expected, 1), 0);
        if (score_only || score != expected || score == 0) return;
        if (column < 1 || static_cast<size_t>(column) > length) {
            std::fprintf(stderr, "smith_waterman: no column %d\n", column);
            verdict.passed = false;
            return;
        }
        const long path = path_score(pair.sequences.data(), pair.directions.data(), length, row, static_cast<size_t>(column));
        if (path != score) std::fprintf(stderr, "smith_waterman: the traced alignment scores %ld, not %d\n", path, score);
        verdict.hold(std::fabs(static_cast<double>(path - score)) / score, 0);
    }
};

int main(int argc, char **argv) {
    options options{"smith_waterman", 1024};
    int method = method_wavefront;
    bool score_only = false;
    options_parse(options, argc, argv, "Finds the best local alignment of two DNA sequences, for each device a pair.",
                  "letters of each sequence",
                  {{"method", option_kind::choice, &method, 0, "wavefront|tiled",
                    "a launch per anti-diagonal of cells or of tiles (default: wavefront)"},
                   {"score-only", option_kind::flag, &score_only, 0, nullptr, "no directions, so no alignment: O(n) memory"}});
    // Diagonals and scores stay within 32 bits.
    if (options.size > 1 << 27) usage_error(options, "--size %zu: at most 134217728", options.size);
    const devices devices(options);
    aligner aligner{devices, options.size, method, score_only, {}};
    random_source random{options.seed};
    for (size_t i = 0; i < options.instances; i++)
        for (size_t d = 0; d < devices.count(); d++) aligner.alignments.emplace_back(devices, d, score_only, random);

    const measurement measurement = measure(devices, [&](run &run) { aligner.issue(run); });
    verdict verdict;
    uint64_t digest = hash_bytes(nullptr, 0);
    for (const alignment &pair : aligner.alignments) {
        // Row 0 of `best` is border, which the tiled method leaves unwritten.
        digest = hash_bytes(pair.best.data() + 1, pair.best.bytes() - sizeof(int2), digest);
        digest = hash_bytes(pair.directions.data(), score_only ? 0 : pair.directions.bytes(), digest);
        if (!options.skip_check) aligner.check(pair, verdict);
    }
    const double n = static_cast<double>(options.size);
    const rate rate = {"gcups", "GCUPS", n * n * static_cast<double>(aligner.alignments.size()) * 1e-9};
    return report(devices, measurement, rate, nullptr, options.skip_check ? nullptr : &verdict, digest);
}
