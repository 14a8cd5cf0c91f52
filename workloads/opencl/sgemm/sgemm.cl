/*
 * C = alpha A B + beta C for row-major matrices, tiled twice: a work-group computes a TILE x TILE tile of C from
 * slabs of A and B in local memory, and a work-item computes REGISTERS x REGISTERS elements of it in registers,
 * so that each value read from local memory serves REGISTERS multiplications.
 */
#ifdef DOUBLE_PRECISION
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
#else
typedef float real;
#endif

#define TILE (GROUP * REGISTERS)

__kernel __attribute__((reqd_work_group_size(GROUP, GROUP, 1)))
void gemm(const uint rows, const uint columns, const uint depth, const real alpha,
          __global const real *restrict a, __global const real *restrict b, const real beta,
          __global real *restrict c)
{
    /* A is stored transposed; the extra column spreads those writes over the banks of local memory. */
    __local real a_slab[SLAB][TILE + 1];
    __local real b_slab[SLAB][TILE];

    const uint x = get_local_id(0);
    const uint y = get_local_id(1);
    const uint item = y * GROUP + x;
    const uint first_row = get_group_id(1) * TILE;
    const uint first_column = get_group_id(0) * TILE;

    real sum[REGISTERS][REGISTERS];
    for (uint i = 0; i < REGISTERS; i++)
        for (uint j = 0; j < REGISTERS; j++)
            sum[i][j] = 0;

    for (uint start = 0; start < depth; start += SLAB) {
        /* Neighbouring work-items read neighbouring elements; what lies outside the matrices counts as zero. */
        for (uint i = item; i < TILE * SLAB; i += GROUP * GROUP) {
            const uint row = first_row + i / SLAB, k = start + i % SLAB;
            a_slab[i % SLAB][i / SLAB] = row < rows && k < depth ? a[(ulong)row * depth + k] : 0;
        }
        for (uint i = item; i < TILE * SLAB; i += GROUP * GROUP) {
            const uint k = start + i / TILE, column = first_column + i % TILE;
            b_slab[i / TILE][i % TILE] = k < depth && column < columns ? b[(ulong)k * columns + column] : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);

        for (uint k = 0; k < SLAB; k++) {
            real a_value[REGISTERS], b_value[REGISTERS];
            for (uint i = 0; i < REGISTERS; i++) {
                a_value[i] = a_slab[k][y + i * GROUP];
                b_value[i] = b_slab[k][x + i * GROUP];
            }
            for (uint i = 0; i < REGISTERS; i++)
                for (uint j = 0; j < REGISTERS; j++)
                    sum[i][j] += a_value[i] * b_value[j];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    for (uint i = 0; i < REGISTERS; i++) {
        for (uint j = 0; j < REGISTERS; j++) {
            const uint row = first_row + y + i * GROUP, column = first_column + x + j * GROUP;
            if (row < rows && column < columns) {
                const ulong at = (ulong)row * columns + column;
                c[at] = alpha * sum[i][j] + beta * c[at];
            }
        }
    }
}
