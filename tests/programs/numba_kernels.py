"""Kernels that Numba compiles, on whatever CUDA device there is: each checked against NumPy.

Run by check-numba.sh on a device in software. Numba links its PTX by the driver where there is no nvJitLink. The PTX is left in the folder
that an argument names.
"""

import math
import pathlib
import sys
import warnings

import numpy as np
from numba import cuda, float32

warnings.filterwarnings("ignore")
COUNT, BLOCK = 1000, 128
GRID = (COUNT + BLOCK - 1) // BLOCK


@cuda.jit
def add(a, b, c):
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


@cuda.jit
def multiply(a, b, c):
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        total = 0.0
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total


@cuda.jit
def reduce(a, total):
    shared = cuda.shared.array(128, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    shared[thread] = a[i] if i < a.size else 0
    cuda.syncthreads()
    half = 64
    while half > 0:
        if thread < half:
            shared[thread] += shared[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        cuda.atomic.add(total, 0, shared[0])


@cuda.jit
def histogram(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, values[i], 1)


@cuda.jit
def maths(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = math.sin(x[i]) * math.exp(-x[i]) + math.sqrt(x[i])


@cuda.jit(device=True)
def weight(value):
    return value * value + 1.5


@cuda.jit
def dot(x, y, total):
    """A stride of the whole grid, a sum in shared memory whose size the launch says, one atomic per block."""
    shared = cuda.shared.array(0, float32)
    thread, stride = cuda.threadIdx.x, cuda.gridsize(1)
    own = float32(0)
    for i in range(cuda.grid(1), x.size, stride):
        own += weight(x[i]) * y[i]
    shared[thread] = own
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if thread < half:
            shared[thread] += shared[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        cuda.atomic.add(total, 0, shared[0])


@cuda.jit
def warp_sums(values, sums):
    """Each warp adds up its numbers by shuffles; its first lane writes."""
    i = cuda.grid(1)
    own = values[i]
    for distance in (16, 8, 4, 2, 1):
        own += cuda.shfl_down_sync(0xFFFFFFFF, own, distance)
    if cuda.laneid == 0:
        sums[i // 32] = own


@cuda.jit
def smooth(matrix, rounds):
    """All blocks wait for each other between rounds, as only a cooperative launch can."""
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    for number in range(rounds):
        left = matrix[number, i - 1] if i > 0 else 0
        right = matrix[number, i + 1] if i + 1 < matrix.shape[1] else 0
        matrix[number + 1, i] = left + right - matrix[number, i]
        grid.sync()


def told(name, is_right):
    print(f"{name}: {'right' if is_right else 'WRONG'}")
    assert is_right


random = np.random.default_rng(1)
a, b = random.random(COUNT, dtype=np.float32), random.random(COUNT, dtype=np.float32)
c = np.zeros_like(a)
add[GRID, BLOCK](a, b, c)
told("add", (c == a + b).all())

left, right, product = random.random((20, 30)), random.random((30, 10)), np.zeros((20, 10))
multiply[(3, 2), (8, 8)](left, right, product)
told("multiply", np.allclose(product, left @ right))

total = np.zeros(1, dtype=np.float32)
reduce[GRID, BLOCK](a, total)
told("reduce", np.isclose(total[0], a.sum(), rtol=1e-5))

values, counts = random.integers(0, 16, COUNT).astype(np.int32), np.zeros(16, dtype=np.int32)
histogram[GRID, BLOCK](values, counts)
told("histogram", (counts == np.bincount(values, minlength=16)).all())

x, y = random.random(COUNT), np.zeros(COUNT)
maths[GRID, BLOCK](x, y)
told("maths", np.allclose(y, np.sin(x) * np.exp(-x) + np.sqrt(x), rtol=1e-12))

x, y = random.random(10_000, dtype=np.float32), random.random(10_000, dtype=np.float32)
total = np.zeros(1, dtype=np.float32)
dot[8, 128, 0, 128 * 4](x, y, total)
told("dot", np.isclose(total[0], ((x * x + 1.5) * y).sum(dtype=np.float64), rtol=1e-4))

values, sums = random.integers(0, 1000, 4 * BLOCK).astype(np.int32), np.zeros(4 * BLOCK // 32, dtype=np.int32)
warp_sums[4, BLOCK](values, sums)
told("warp_sums", (sums == values.reshape(-1, 32).sum(axis=1)).all())

ROUNDS, BLOCKS = 12, 4
matrix = np.zeros((ROUNDS + 1, BLOCKS * 64), dtype=np.int64)
matrix[0] = random.integers(0, 100, matrix.shape[1])
expected = matrix.copy()
for number in range(ROUNDS):
    around = np.pad(expected[number], 1)
    expected[number + 1] = around[:-2] + around[2:] - expected[number]
smooth[BLOCKS, 64](matrix, ROUNDS)
told("smooth", (matrix == expected).all())

stream = cuda.stream()
on_device = cuda.to_device(x, stream=stream)
doubled = cuda.device_array_like(on_device, stream=stream)
add[(x.size + BLOCK - 1) // BLOCK, BLOCK, stream](on_device, on_device, doubled)
told("stream", (doubled.copy_to_host(stream=stream) == x + x).all())

for folder in map(pathlib.Path, sys.argv[1:]):
    folder.mkdir(parents=True, exist_ok=True)
    for name, kernel in list(globals().items()):
        if hasattr(kernel, "inspect_asm"):
            for number, text in enumerate(kernel.inspect_asm().values()):
                (folder / f"numba-{name}-{number}.ptx").write_text(text)
