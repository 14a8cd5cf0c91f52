/*
 * One step of an all-pairs gravitational system (after Nyland, Harris and Prins, GPU Gems 3, chapter 31): each
 * work-item moves one body, and the work-group reads the other bodies through a tile in local memory.
 *
 * A body is (x, y, z, mass). The device moves the `count` bodies from `first` on; `velocities` holds only theirs.
 */
#ifdef DOUBLE_PRECISION
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
typedef double4 real4;
#else
typedef float real;
typedef float4 real4;
#endif

__kernel __attribute__((reqd_work_group_size(TILE, 1, 1)))
void step_bodies(__global const real4 *restrict positions, __global real4 *restrict moved,
                 __global real4 *restrict velocities, const uint bodies, const uint first, const uint count,
                 const real time_step, const real softening_squared)
{
    __local real4 tile[TILE];

    const uint item = get_local_id(0);
    const uint slot = get_global_id(0);
    /* Work-items beyond the end help to fill the tile, so they must not return early. */
    const bool present = slot < count;
    const real4 position = positions[first + (present ? slot : 0)];

    real x = 0, y = 0, z = 0;
    for (uint start = 0; start < bodies; start += TILE) {
        const uint other = start + item;
        /* A body without mass attracts nothing. */
        tile[item] = other < bodies ? positions[other] : (real4)(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = 0; i < TILE; i++) {
            const real4 body = tile[i];
            const real dx = body.x - position.x, dy = body.y - position.y, dz = body.z - position.z;
            const real inverse = rsqrt(dx * dx + dy * dy + dz * dz + softening_squared);
            const real pull = body.w * inverse * inverse * inverse;
            x += pull * dx;
            y += pull * dy;
            z += pull * dz;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (present) {
        const real4 velocity = velocities[slot] + time_step * (real4)(x, y, z, 0);
        velocities[slot] = velocity;
        /* The velocity's fourth component is zero, so the mass stays. */
        moved[first + slot] = position + time_step * velocity;
    }
}
