__kernel void vector_add(__global const float *a, __global const float *b, __global float *sum, const uint count)
{
    const uint i = get_global_id(0);
    if (i < count)
        sum[i] = a[i] + b[i];
}
