#!/usr/bin/env python3
"""Computes with CuPy round after round and checks every result: memory, a texture over an array, a surface, a module's constant and variables,
streams, events. For sessions that move meanwhile; ends after the seconds that it is given.

    kinds_moved.py SECONDS
"""

import sys
import time

import cupy as cp
import numpy as np
from cupy.cuda import runtime, texture

CODE = r"""
__device__ unsigned rounds = 3;
__constant__ float factor[4] = {2.f, 3.f, 5.f, 7.f};
extern "C" __global__ void count(unsigned *out) { out[0] = ++rounds; }
extern "C" __global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * factor[i & 3];
}
extern "C" __global__ void fetch(float *out, cudaTextureObject_t image, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[y * width + x] = tex2D<float>(image, x + 0.5f, y + 0.5f);
}
"""


def main() -> int:
    until = time.monotonic() + float(sys.argv[1])
    module = cp.RawModule(code=CODE)
    count, scale, fetch = (module.get_function(name) for name in ("count", "scale", "fetch"))
    width, height = 96, 64
    picture = np.arange(width * height, dtype=np.float32).reshape(height, width)
    channel = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
    # Textures that have ended leave their numbers.
    array = texture.CUDAarray(channel, width, height)
    array.copy_from(picture)
    resource = texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=array)
    how = texture.TextureDescriptor((runtime.cudaAddressModeClamp,) * 2, runtime.cudaFilterModePoint)
    gone = texture.TextureObject(resource, how)
    image = texture.TextureObject(resource, how)
    del gone
    stream = cp.cuda.Stream(non_blocking=True)
    start, end = cp.cuda.Event(), cp.cuda.Event()
    numbers = cp.arange(1 << 20, dtype=cp.float32) % 13
    told = cp.zeros(1, dtype=cp.uint32)
    seen = cp.zeros((height, width), dtype=cp.float32)
    expected = np.arange(1 << 20, dtype=np.float32) % 13 * np.tile(np.array([2, 3, 5, 7], np.float32), 1 << 18)
    start.record()
    longest, turns = 0.0, 0
    while turns == 0 or time.monotonic() < until:
        turns += 1
        with stream:
            scaled = numbers.copy()
            scale((4096,), (256,), (scaled, 1 << 20))
            count((1,), (1,), (told,))
            fetch((6, 4), (16, 16), (seen, image, width, height))
            end.record(stream)
        stream.synchronize()
        assert (scaled.get() == expected).all(), f"turn {turns}: constants"
        assert int(told.get()[0]) == 3 + turns, f"turn {turns}: a variable is {told.get()}"
        assert (seen.get() == picture).all(), f"turn {turns}: the texture"
        elapsed = cp.cuda.get_elapsed_time(start, end)
        assert elapsed >= longest, f"turn {turns}: time went back from {longest} to {elapsed} ms"
        longest = elapsed
        if turns == 1:
            print("computing", flush=True)
    print("turns", turns, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
