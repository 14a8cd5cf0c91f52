// The parts of the alignment that need no GPU: scores, the recurrences of one cell, the reference, and the way back.
//
//   E[i][j] = max(E[i][j-1] - gap_extend, H[i][j-1] - gap_open)      a gap in the first sequence
//   F[i][j] = max(F[i-1][j] - gap_extend, H[i-1][j] - gap_open)      a gap in the second sequence
//   H[i][j] = max(0, H[i-1][j-1] + score(i, j), E[i][j], F[i][j])
//
// with H = 0 and E = F = never on the border (Gotoh).
#ifndef WORKLOADS_CUDA_SMITH_WATERMAN_REFERENCE_H
#define WORKLOADS_CUDA_SMITH_WATERMAN_REFERENCE_H

#include "../common/problem.h"

#include <algorithm>
#include <climits>
#include <vector>

namespace pair {

// Scores as in EDNAFULL with gaps of 10 + 1 per letter.
constexpr int match = 5, mismatch = -4, gap_open = 11, gap_extend = 1;

// Below every score, and far enough from INT_MIN that subtracting gap_extend n times cannot wrap around.
constexpr int never = INT_MIN / 2;

// A byte of directions: where H came from, and whether the gaps that end here were extended.
enum { from_nothing = 0, from_diagonal = 1, from_left = 2, from_up = 3, from_mask = 3, left_extended = 4, up_extended = 8 };

HOST_DEVICE int larger(int a, int b) { return a > b ? a : b; }

HOST_DEVICE int substitution(unsigned char first, unsigned char second) { return first == second ? match : mismatch; }

// Computes one cell: updates e and f from the values to the left and above, returns H.
HOST_DEVICE int cell(int h_diagonal, int h_left, int h_up, int &e, int &f, int score, unsigned char &direction) {
    const int e_extended = e - gap_extend, e_opened = h_left - gap_open;
    const int f_extended = f - gap_extend, f_opened = h_up - gap_open;
    e = larger(e_extended, e_opened);
    f = larger(f_extended, f_opened);
    const int aligned = h_diagonal + score;
    const int h = larger(larger(aligned, 0), larger(e, f));
    direction = static_cast<unsigned char>((h == 0 ? from_nothing : h == aligned ? from_diagonal : h == e ? from_left : from_up) |
                                           (e_extended > e_opened ? left_extended : 0) |
                                           (f_extended > f_opened ? up_extended : 0));
    return h;
}

// Where the bytes of anti-diagonal `diagonal` (row + column, both from 0) begin: neighbouring threads write neighbours.
HOST_DEVICE size_t directions_of_diagonal(size_t length, size_t diagonal) {
    if (diagonal < length) return diagonal * (diagonal + 1) / 2;
    const size_t left = 2 * length - 1 - diagonal;
    return length * length - left * (left + 1) / 2;
}

// Cells (or tiles) on an anti-diagonal of a square of `side`, diagonals counted from 0.
inline size_t diagonal_length(size_t side, size_t diagonal) {
    return diagonal < side ? diagonal + 1 : 2 * side - 1 - diagonal;
}

// A random sequence, and a copy of it with one letter in eight replaced and one in thirty lost or doubled: related enough
// for a long alignment, different enough for it to have mismatches and gaps.
inline void random_sequences(unsigned char *sequences, size_t length, random_source &random) {
    const auto letter = [&] { return static_cast<unsigned char>("ACGT"[random.below(4)]); };
    for (size_t i = 0; i < length; i++) sequences[i] = letter();
    size_t from = 0;
    for (size_t i = 0; i < length; i++) {
        const size_t chance = random.below(240);
        if (chance < 4)
            from++;
        else if (chance < 8 && from > 0)
            from--;
        sequences[length + i] = chance < 38 || from >= length ? letter() : sequences[from];
        from++;
    }
}

// The score by the recurrences, row after row.
inline int reference_score(const unsigned char *sequences, size_t length) {
    std::vector<int> h(length + 1, 0), f(length + 1, never);
    int best = 0;
    for (size_t row = 1; row <= length; row++) {
        int e = never, diagonal = 0;
        for (size_t column = 1; column <= length; column++) {
            e = larger(e - gap_extend, h[column - 1] - gap_open);
            f[column] = larger(f[column] - gap_extend, h[column] - gap_open);
            const int aligned = diagonal + substitution(sequences[row - 1], sequences[length + column - 1]);
            diagonal = h[column];
            h[column] = larger(larger(aligned, 0), larger(e, f[column]));
            best = larger(best, h[column]);
        }
    }
    return best;
}

// Follows the directions back from a cell, row and column counted from 1, and adds up the score of the path that they
// describe.
inline long path_score(const unsigned char *sequences, const unsigned char *directions, size_t length, size_t row,
                       size_t column) {
    const unsigned char *first = sequences, *second = sequences + length;
    long score = 0;
    int gap = from_nothing;
    while (row > 0 && column > 0) {
        const size_t diagonal = row + column - 2, first_row = diagonal < length ? 0 : diagonal - length + 1;
        const unsigned char direction = directions[directions_of_diagonal(length, diagonal) + (row - 1) - first_row];
        const int from = gap != from_nothing ? gap : direction & from_mask;
        if (from == from_nothing) break;
        if (from == from_diagonal) {
            score += substitution(first[row - 1], second[column - 1]);
            row--, column--;
            continue;
        }
        const bool extended = (direction & (from == from_left ? left_extended : up_extended)) != 0;
        score -= extended ? gap_extend : gap_open;
        gap = extended ? from : from_nothing;
        (from == from_left ? column : row)--;
    }
    return score;
}

} // namespace pair

#endif
