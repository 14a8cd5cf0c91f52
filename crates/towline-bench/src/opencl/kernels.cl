// Kernels of the measurements. The host checks what they leave behind.

kernel void nothing(void) {}

// Seven arguments, as the wavefront of Smith-Waterman has.
kernel void seven(global int *out, int a, int b, int c, int d, int e, int f)
{
    out[0] = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f;
}

kernel void increment(global int *data)
{
    data[get_global_id(0)] += 1;
}

// 16 chains of fused multiply-adds, without memory: 32 operations in each round.
kernel void flops_single(global float *out, int rounds, float factor)
{
    float16 x = (float16)(get_global_id(0) * 1e-6f) + (float16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const float16 y = (float16)(factor);
    for (int i = 0; i < rounds; i++)
        x = mad(x, y, y);
    const float8 half_sum = x.lo + x.hi;
    const float4 quarter = half_sum.lo + half_sum.hi;
    out[get_global_id(0)] = quarter.x + quarter.y + quarter.z + quarter.w;
}

#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
kernel void flops_double(global double *out, int rounds, double factor)
{
    double16 x = (double16)(get_global_id(0) * 1e-6)
                 + (double16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const double16 y = (double16)(factor);
    for (int i = 0; i < rounds; i++)
        x = mad(x, y, y);
    const double8 half_sum = x.lo + x.hi;
    const double4 quarter = half_sum.lo + half_sum.hi;
    out[get_global_id(0)] = quarter.x + quarter.y + quarter.z + quarter.w;
}
#endif

// Device memory: reads and writes 16 bytes per work-item and round, neighbours side by side.
kernel void global_copy(global const float4 *in, global float4 *out)
{
    const size_t i = get_global_id(0);
    out[i] = in[i] + 1.0f;
}

// On-chip memory: every round reads and writes 4 bytes of local memory per work-item.
kernel void local_copy(global float *out, int rounds)
{
    local float tile[64];
    const int me = get_local_id(0);
    tile[me] = me;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < rounds; i++) {
        const float next = tile[(me + i) & 63];
        barrier(CLK_LOCAL_MEM_FENCE);
        tile[me] = next + 1.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[get_global_id(0)] = tile[me];
}
