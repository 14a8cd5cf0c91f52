/*
 * Forces on the own atoms, each from its list of neighbours. The lists lie next to one another, entry by entry, so that
 * work-items side by side read side by side. `forces` gets the force and the energy, `sums` the virial and the pairs.
 */
__kernel void lj_forces(uint own, __global const float4 *positions, __global const int *counts,
                        __global const int *lists, float cutoff_squared, __global float4 *forces,
                        __global float2 *sums)
{
    const size_t i = get_global_id(0);
    if (i >= own)
        return;
    const float4 here = positions[i];
    const int count = counts[i];
    float4 force = (float4)(0.0f);
    float virial = 0.0f, pairs = 0.0f;
    for (int at = 0; at < count; at++) {
        const float4 there = positions[lists[(size_t)at * own + i]];
        const float dx = here.x - there.x, dy = here.y - there.y, dz = here.z - there.z;
        const float squared = dx * dx + dy * dy + dz * dz;
        if (squared < cutoff_squared) {
            const float inverse = 1.0f / squared, sixth = inverse * inverse * inverse;
            const float factor = 48.0f * inverse * sixth * (sixth - 0.5f);
            force.x += factor * dx;
            force.y += factor * dy;
            force.z += factor * dz;
            force.w += 2.0f * sixth * (sixth - 1.0f);
            virial += 0.5f * factor * squared;
            pairs += 1.0f;
        }
    }
    forces[i] = force;
    sums[i] = (float2)(virial, pairs);
}
