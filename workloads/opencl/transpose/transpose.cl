/*
 * Transposes a row-major matrix through tiles in local memory, so that both the reads and the writes of global
 * memory run along rows.
 */
#ifdef DOUBLE_PRECISION
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
#else
typedef float real;
#endif

__kernel __attribute__((reqd_work_group_size(TILE, GROUP_ROWS, 1)))
void transpose(__global const real *restrict input, __global real *restrict output, const uint rows,
               const uint columns)
{
    /* The extra column puts the elements of a tile's column into different banks. */
    __local real tile[TILE][TILE + 1];

    const uint x = get_local_id(0);
    const uint first_row = get_group_id(1) * TILE;
    const uint first_column = get_group_id(0) * TILE;

    for (uint y = get_local_id(1); y < TILE; y += GROUP_ROWS) {
        const uint row = first_row + y, column = first_column + x;
        if (row < rows && column < columns)
            tile[y][x] = input[(ulong)row * columns + column];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint y = get_local_id(1); y < TILE; y += GROUP_ROWS) {
        const uint row = first_row + x, column = first_column + y;
        if (row < rows && column < columns)
            output[(ulong)column * rows + row] = tile[x][y];
    }
}
