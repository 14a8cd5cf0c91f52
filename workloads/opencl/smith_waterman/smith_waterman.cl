/*
 * Smith-Waterman local alignment of two sequences with affine gaps (Gotoh's recurrences):
 *
 *   E[i][j] = max(E[i][j-1] - GAP_EXTEND, H[i][j-1] - GAP_OPEN)      a gap in the first sequence
 *   F[i][j] = max(F[i-1][j] - GAP_EXTEND, H[i-1][j] - GAP_OPEN)      a gap in the second sequence
 *   H[i][j] = max(0, H[i-1][j-1] + score(i, j), E[i][j], F[i][j])
 *
 * with H = 0 and E = F = NEVER on the border. Cells on one anti-diagonal depend only on the two before it, so they
 * are computed together. E of a row and F of a column belong to one work-item at a time and are updated in place.
 *
 * Where each value came from goes to `directions`, one byte per cell, diagonal after diagonal, so that neighbouring
 * work-items write neighbouring bytes; the host follows them back from the best cell. Built with SCORE_ONLY the
 * kernels leave them out.
 *
 * MATCH, MISMATCH, GAP_OPEN, GAP_EXTEND, FROM_*, *_EXTENDED and NEVER come from smith_waterman.c.
 */

/* Where the bytes of anti-diagonal `diagonal` (row + column, both from 0) begin. */
ulong directions_of_diagonal(const ulong length, const ulong diagonal)
{
    if (diagonal < length)
        return diagonal * (diagonal + 1) / 2;
    const ulong left = 2 * length - 1 - diagonal;
    return length * length - left * (left + 1) / 2;
}

int substitution(const uchar first, const uchar second)
{
    return first == second ? MATCH : MISMATCH;
}

/* Computes one cell: updates *e and *f from the values to the left and above, returns H. */
int cell(const int h_diagonal, const int h_left, const int h_up, int *e, int *f, const int score,
         uchar *direction)
{
    const int e_extended = *e - GAP_EXTEND, e_opened = h_left - GAP_OPEN;
    const int f_extended = *f - GAP_EXTEND, f_opened = h_up - GAP_OPEN;
    *e = max(e_extended, e_opened);
    *f = max(f_extended, f_opened);
    const int aligned = h_diagonal + score;
    const int h = max(max(aligned, 0), max(*e, *f));
    *direction = (uchar)((h == 0 ? FROM_NOTHING : h == aligned ? FROM_DIAGONAL : h == *e ? FROM_LEFT : FROM_UP) |
                         (e_extended > e_opened ? LEFT_EXTENDED : 0) |
                         (f_extended > f_opened ? UP_EXTENDED : 0));
    return h;
}

/*
 * One anti-diagonal per launch, as in the VOCL paper: 2 n launches for sequences of length n. Rows and columns are
 * counted from 1; the border is row 0 and column 0. Diagonal 1 is all border: its launch clears the state. Diagonals
 * 2 to 2 n hold the cells.
 *
 *   h      three anti-diagonals of H in turn, each indexed by row
 *   gaps   E by row, then F by column
 *   best   by row: the best H so far, then its column
 */
__kernel void align_diagonal(__global const uchar *restrict sequences, __global int *restrict h,
                             __global int *restrict gaps, __global uchar *restrict directions,
                             __global int *restrict best, const uint length, const uint diagonal)
{
    const uint item = get_global_id(0);
    const uint pitch = length + 1;

    if (diagonal == 1) {
        if (item <= length) {
            for (uint i = 0; i < 3; i++)
                h[i * pitch + item] = 0;
            gaps[item] = NEVER;
            gaps[pitch + item] = NEVER;
            best[2 * item] = 0;
            best[2 * item + 1] = 0;
        }
        return;
    }

    const uint first_row = diagonal > length ? diagonal - length : 1;
    const uint row = first_row + item;
    if (row > min(diagonal - 1, length))
        return;
    const uint column = diagonal - row;

    __global int *h_now = h + diagonal % 3 * pitch;
    __global const int *h_before = h + (diagonal + 2) % 3 * pitch;
    __global const int *h_two_before = h + (diagonal + 1) % 3 * pitch;
    int e = gaps[row], f = gaps[pitch + column];
    uchar direction;
    const int value = cell(h_two_before[row - 1], h_before[row], h_before[row - 1], &e, &f,
                           substitution(sequences[row - 1], sequences[length + column - 1]), &direction);
    gaps[row] = e;
    gaps[pitch + column] = f;
    h_now[row] = value;
    if (value > best[2 * row]) {
        best[2 * row] = value;
        best[2 * row + 1] = (int)column;
    }
#ifndef SCORE_ONLY
    directions[directions_of_diagonal(length, diagonal - 2) + item] = direction;
#endif
}

/*
 * One anti-diagonal of TILE x TILE tiles per launch: a work-group computes one tile, a work-item one row of it, the
 * tile's own anti-diagonals in step. Rows and columns are counted from 0 here.
 *
 *   h      the lowest row of H computed so far by column, the rightmost column by row, then the corners: H at the
 *          lower right of the last tile on each diagonal of tiles (where column - row is constant)
 *   gaps   E by row, then F by column
 *   best   by row + 1: the best H so far and its column, counted from 1
 */
__kernel __attribute__((reqd_work_group_size(TILE, 1, 1)))
void align_tiles(__global const uchar *restrict sequences, __global int *restrict h, __global int *restrict gaps,
                 __global uchar *restrict directions, __global int *restrict best, const uint length,
                 const uint tile_diagonal)
{
    /* The row above, replaced from left to right by the rows of the tile. */
    __local int h_up[TILE];
    __local int f_up[TILE];
    __local uchar letters[TILE];

    const uint item = get_local_id(0);
    const uint pitch = length + 1;
    const uint tiles = (length + TILE - 1) / TILE;
    const uint first_tile_row = tile_diagonal >= tiles ? tile_diagonal - tiles + 1 : 0;
    const uint tile_row = first_tile_row + get_group_id(0);
    const uint tile_column = tile_diagonal - tile_row;
    const uint row = tile_row * TILE + item;
    const uint first_column = tile_column * TILE;
    const uint own_column = first_column + item;
    __global int *h_bottom = h;
    __global int *h_right = h + pitch;
    __global int *h_corner = h + 2 * pitch + (tile_column + tiles - 1 - tile_row);

    const bool row_present = row < length;
    const bool column_present = own_column < length;
    const uchar letter = row_present ? sequences[row] : 0;
    letters[item] = column_present ? sequences[length + own_column] : 0;
    h_up[item] = tile_row > 0 && column_present ? h_bottom[own_column] : 0;
    f_up[item] = tile_row > 0 && column_present ? gaps[pitch + own_column] : NEVER;

    const bool has_left = tile_column > 0 && row_present;
    int h_left = has_left ? h_right[row] : 0;
    int e = has_left ? gaps[row] : NEVER;
    int h_diagonal = 0;
    if (has_left && item > 0)
        h_diagonal = h_right[row - 1];
    else if (has_left && tile_row > 0)
        h_diagonal = *h_corner;
    int best_value = has_left ? best[2 * row + 2] : 0;
    int best_column = has_left ? best[2 * row + 3] : 0;
    /* The global fence keeps these reads ahead of the writes below by the neighbour above. */
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);

    for (uint step = 0; step < 2 * TILE - 1; step++) {
        /* Wraps around to a large number before this row's turn. */
        const uint at = step - item;
        const uint column = first_column + at;
        if (row_present && at < TILE && column < length) {
            const int above = h_up[at];
            int f = f_up[at];
            uchar direction;
            const int value =
                cell(h_diagonal, h_left, above, &e, &f, substitution(letter, letters[at]), &direction);
            h_diagonal = above;
            h_left = value;
            h_up[at] = value;
            f_up[at] = f;
            if (value > best_value) {
                best_value = value;
                best_column = (int)column + 1;
            }
#ifndef SCORE_ONLY
            const uint diagonal = row + column;
            const uint first_row = diagonal < length ? 0 : diagonal - length + 1;
            directions[directions_of_diagonal(length, diagonal) + (row - first_row)] = direction;
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    if (row_present) {
        h_right[row] = h_left;
        gaps[row] = e;
        best[2 * row + 2] = best_value;
        best[2 * row + 3] = best_column;
    }
    if (column_present) {
        h_bottom[own_column] = h_up[item];
        gaps[pitch + own_column] = f_up[item];
    }
    /* Only a whole tile has a neighbour at its lower right. */
    if (item == TILE - 1)
        *h_corner = h_left;
}
