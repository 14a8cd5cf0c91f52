"""Kernels that Numba compiles, on whatever CUDA device there is: each checked against NumPy.

Run by check-numba.sh on a device in software. Numba links its PTX by the driver where there is no nvJitLink.
"""

import math
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
