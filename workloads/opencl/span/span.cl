/*
 * Leaves this device's mark on every byte. Multiplying first makes the result depend on the order of the devices, so
 * that neither a device that was left out nor two that were swapped go unseen.
 */
__kernel void leave_mark(__global uchar *bytes, const uint count, const uchar device)
{
    const uint i = get_global_id(0);
    if (i < count)
        bytes[i] = (uchar)(bytes[i] * 5 + device);
}
