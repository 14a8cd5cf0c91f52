#!/usr/bin/env python3
"""Runs kernels of public programs through the CUDA driver API, against references on the processor.

    public_kernels.py FOLDER [--only NAME,...] [--save FILE] [--against FILE]

FOLDER holds the kernels' PTX, a file for each program of public_kernels.md, named as there: none of it is Towline's, and none of it lies
in this repository. --save keeps what kernels computed (a file for numpy); --against says of each whether another run, on another device,
left the same bytes. Needs numpy, and nothing else but libcuda.so.1. Exits with 1 when a kernel is wrong.
"""

import argparse
import ctypes
import hashlib
import heapq
import pathlib
import re
import sys

import numpy as np

F32, I32, U32 = np.float32, np.int32, np.uint32


class Device:
    """The first CUDA device and its primary context."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(256)
        self("cuDeviceGetName", name, 256, device)
        self.name = name.value.decode()

    def __call__(self, call, *arguments):
        status = getattr(self.cuda, call)(*arguments)
        if status:
            raise RuntimeError(f"{call} says {status}")

    def program(self, file):
        """The kernels of a file, found by their name without C++'s decoration."""
        text = file.read_bytes()
        module = ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text))
        names = re.findall(rb"\.entry\s+([\w$]+)", text)

        def find(wanted):
            fitting = [name for name in names if wanted.encode() in name]
            if len(fitting) != 1:
                raise RuntimeError(f"{len(fitting)} kernels of {file.name} are called {wanted}")
            function = ctypes.c_void_p()
            self("cuModuleGetFunction", ctypes.byref(function), module, fitting[0])
            return Kernel(self, function)

        def symbol(wanted):
            address, length = ctypes.c_uint64(), ctypes.c_size_t()
            self("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(length), module, wanted.encode())
            return Memory(self, address.value, length.value)

        find.symbol = symbol
        return find

    def array(self, contents):
        contents = np.ascontiguousarray(contents)
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(contents.nbytes, 4)))
        memory = Memory(self, address.value, contents.nbytes, contents.dtype, contents.shape)
        memory.write(contents)
        return memory


class Memory:
    """Memory of the device."""

    def __init__(self, device, address, length, dtype=None, shape=None):
        self.device, self.address, self.length, self.dtype, self.shape = device, address, length, dtype, shape

    def write(self, contents):
        contents = np.ascontiguousarray(contents)
        assert contents.nbytes <= self.length
        where, size = ctypes.c_void_p(contents.ctypes.data), ctypes.c_size_t(contents.nbytes)
        self.device("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), where, size)

    def read(self):
        contents = np.empty(self.shape, self.dtype)
        where, size = ctypes.c_void_p(contents.ctypes.data), ctypes.c_size_t(contents.nbytes)
        self.device("cuMemcpyDtoH_v2", where, ctypes.c_uint64(self.address), size)
        return contents


class Kernel:
    """A kernel: `kernel[grid, block, shared](arguments)`."""

    def __init__(self, device, function):
        self.device, self.function = device, function

    def __getitem__(self, shape):
        grid, block, *shared = shape
        return lambda *arguments: self.launch(grid, block, shared[0] if shared else 0, arguments)

    def launch(self, grid, block, shared, arguments):
        def value(argument):
            if isinstance(argument, Memory):
                return ctypes.c_uint64(argument.address)
            if isinstance(argument, (float, np.floating)):
                return ctypes.c_float(argument)
            return ctypes.c_int32(int(argument)) if int(argument) < 1 << 31 else ctypes.c_uint32(int(argument))

        def extent(size):
            size = tuple(size) if isinstance(size, (tuple, list)) else (size,)
            return [ctypes.c_uint32(int(one)) for one in (*size, 1, 1)[:3]]

        values = [value(argument) for argument in arguments]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(one) for one in values))
        sizes = [*extent(grid), *extent(block), ctypes.c_uint32(shared)]
        self.device("cuLaunchKernel", self.function, *sizes, None, places, None)
        self.device("cuCtxSynchronize")


CASES = {}


def case(check):
    """A function of (device, program, random) that gives, by name, what was computed, what is right, and the tolerance."""
    CASES[check.__name__] = check
    return check


def blocks(count, size):
    return -(-count // size)


# PolyBench-ACC, built with -DMINI_DATASET: its sizes are constants.


@case
def pb_gemm(device, program, random):
    a, b, c = (random.random((128, 128), F32) for _ in range(3))
    memory = [device.array(one) for one in (a, b, c)]
    program("gemm_kernel")[(4, 16), (32, 8)](128, 128, 128, F32(1.5), F32(0.5), *memory)
    right = 0.5 * c.astype(float) + 1.5 * a.astype(float) @ b
    return {"c": (memory[2].read(), right, 1e-5)}


@case
def pb_atax(device, program, random):
    a, x = random.random((1024, 1024), F32), random.random(1024, F32)
    a_at, x_at, y, tmp = (device.array(one) for one in (a, x, np.zeros(1024, F32), np.zeros(1024, F32)))
    program("atax_kernel1")[4, 256](1024, 1024, a_at, x_at, tmp)
    program("atax_kernel2")[4, 256](1024, 1024, a_at, y, tmp)
    wide = a.astype(float)
    return {"y": (y.read(), wide.T @ (wide @ x), 1e-4)}


@case
def pb_mvt(device, program, random):
    a, x1, x2, y1, y2 = (random.random(size, F32) for size in ((1024, 1024), 1024, 1024, 1024, 1024))
    a_at, x1_at, x2_at, y1_at, y2_at = (device.array(one) for one in (a, x1, x2, y1, y2))
    program("mvt_kernel1")[4, 256](1024, a_at, x1_at, y1_at)
    program("mvt_kernel2")[4, 256](1024, a_at, x2_at, y2_at)
    wide = a.astype(float)
    return {"x1": (x1_at.read(), x1 + wide @ y1, 1e-4), "x2": (x2_at.read(), x2 + wide.T @ y2, 1e-4)}


@case
def pb_correlation(device, program, random):
    data = random.random((512, 512), F32) * F32(1e4)
    data_at, mean, std, sym = (device.array(one) for one in (data, np.zeros(512, F32), np.zeros(512, F32), np.zeros((512, 512), F32)))
    program("mean_kernel")[2, 256](512, 512, mean, data_at)
    program("std_kernel")[2, 256](512, 512, mean, std, data_at)
    program("reduce_kernel")[(16, 64), (32, 8)](512, 512, mean, std, data_at)
    program("corr_kernel")[2, 256](512, 512, sym, data_at)
    wide, number = data.astype(float), float(F32(3214212.01))
    means = wide.sum(0) / number
    deviation = np.sqrt(((wide - means) ** 2).sum(0) / number)
    deviation[deviation <= 0.005] = 1
    scaled = (wide - means) / (np.sqrt(number) * deviation)
    right = scaled.T @ scaled
    np.fill_diagonal(right, 1)
    right[511, 511] = 0
    return {"std": (std.read(), deviation, 1e-4), "correlation": (sym.read(), right, 1e-4)}


@case
def pb_fdtd2d(device, program, random):
    ex, ey, hz = (random.random((512, 512), F32) for _ in range(3))
    fict = np.arange(500, dtype=F32)
    fict_at, ex_at, ey_at, hz_at = (device.array(one) for one in (fict, ex, ey, hz))
    shape = ((16, 64), (32, 8))
    ex, ey, hz = (one.astype(float) for one in (ex, ey, hz))
    for step in range(4):
        program("fdtd_step1_kernel")[shape](512, 512, fict_at, ex_at, ey_at, hz_at, step)
        program("fdtd_step2_kernel")[shape](512, 512, ex_at, ey_at, hz_at, step)
        program("fdtd_step3_kernel")[shape](512, 512, ex_at, ey_at, hz_at, step)
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ey[0] = step
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= float(F32(0.7)) * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return {"hz": (hz_at.read(), hz, 1e-5)}


@case
def pb_conv2d(device, program, random):
    a = random.random((1024, 1024), F32)
    a_at, b_at = device.array(a), device.array(np.zeros_like(a))
    program("convolution2D_kernel")[(32, 128), (32, 8)](1024, 1024, a_at, b_at)
    weights = [[0.2, 0.5, -0.8], [-0.3, 0.6, -0.9], [0.4, 0.7, 0.1]]
    right = np.zeros_like(a, float)
    for row in range(3):
        for column in range(3):
            right[1:-1, 1:-1] += weights[row][column] * a[row : row + 1022, column : column + 1022].astype(float)
    return {"b": (b_at.read(), right, 1e-5)}


@case
def pb_jacobi2d(device, program, random):
    a = random.random((256, 256), F32)
    a_at, b_at = device.array(a), device.array(np.zeros_like(a))
    right = a.astype(float)
    for _ in range(5):
        program("runJacobiCUDA_kernel1")[(8, 32), (32, 8)](256, a_at, b_at)
        program("runJacobiCUDA_kernel2")[(8, 32), (32, 8)](256, a_at, b_at)
        inner = right[1:-1, 1:-1] + right[1:-1, :-2] + right[1:-1, 2:] + right[2:, 1:-1] + right[:-2, 1:-1]
        right[1:-1, 1:-1] = 0.2 * inner
    return {"a": (a_at.read(), right, 1e-5)}


@case
def pb_gramschmidt(device, program, random):
    a = random.random((512, 512), F32)
    a_at, r_at, q_at = device.array(a), device.array(np.zeros_like(a)), device.array(np.zeros_like(a))
    wide, right = a.astype(float), np.zeros((512, 512))
    for k in range(8):
        for kernel in ("gramschmidt_kernel1", "gramschmidt_kernel2", "gramschmidt_kernel3"):
            program(kernel)[2, 256](512, 512, a_at, r_at, q_at, k)
        length = np.sqrt((wide[:, k] ** 2).sum())
        right[:, k] = wide[:, k] / length
        wide[:, k + 1 :] -= np.outer(right[:, k], right[:, k] @ wide[:, k + 1 :])
    return {"q": (q_at.read(), right, 2e-4)}


@case
def pb_lu(device, program, random):
    a = random.random((512, 512), F32) + F32(512) * np.eye(512, dtype=F32)
    a_at, right = device.array(a), a.astype(float)
    for k in range(16):
        program("lu_kernel1")[2, 256](512, a_at, k)
        program("lu_kernel2")[(16, 64), (32, 8)](512, a_at, k)
        right[k, k + 1 :] /= right[k, k]
        right[k + 1 :, k + 1 :] -= np.outer(right[k + 1 :, k], right[k, k + 1 :])
    return {"a": (a_at.read(), right, 1e-5)}


# Rodinia.


@case
def rd_pathfinder(device, program, random):
    rows, columns, height = 21, 4000, 20
    wall = random.integers(0, 10, (rows, columns)).astype(I32)
    source, result, wall_at = device.array(wall[0]), device.array(np.zeros(columns, I32)), device.array(wall[1:])
    # A pyramid of all 20 rows: blocks of 256 give 216 results each.
    program("dynproc_kernel")[blocks(columns, 216), 256](height, wall_at, source, result, columns, rows, 0, height)
    right = wall[0].astype(int)
    for row in wall[1:]:
        padded = np.pad(right, 1, mode="edge")
        right = row + np.minimum(np.minimum(padded[:-2], padded[1:-1]), padded[2:])
    return {"result": (result.read(), right, 0)}


@case
def rd_needle(device, program, random):
    size, penalty = 128, 10
    reference = random.integers(-4, 12, (size + 1, size + 1)).astype(I32)
    right = np.zeros((size + 1, size + 1), int)
    right[0], right[:, 0] = -penalty * np.arange(size + 1), -penalty * np.arange(size + 1)
    reference_at, matrix = device.array(reference), device.array(right.astype(I32))
    width = size // 16
    for step in range(1, width + 1):
        program("needle_cuda_shared_1")[step, 16](reference_at, matrix, size + 1, penalty, step, width)
    for step in range(width - 1, 0, -1):
        program("needle_cuda_shared_2")[step, 16](reference_at, matrix, size + 1, penalty, step, width)
    for row in range(1, size + 1):
        for column in range(1, size + 1):
            way = right[row - 1, column - 1] + reference[row, column]
            right[row, column] = max(way, right[row, column - 1] - penalty, right[row - 1, column] - penalty)
    return {"matrix": (matrix.read(), right, 0)}


def graph(random, nodes):
    """A connected graph: where each node's edges begin, where they lead, and how far each node is from the first."""
    ends = [[node + 1] if node + 1 < nodes else [] for node in range(nodes)]
    for node in range(nodes):
        ends[node] += random.integers(0, nodes, 3).tolist()
    starts = np.cumsum([0] + [len(one) for one in ends])
    distance, queue = np.full(nodes, -1), [(0, 0)]
    while queue:
        far, node = heapq.heappop(queue)
        if distance[node] < 0:
            distance[node] = far
            for end in ends[node]:
                heapq.heappush(queue, (far + 1, end))
    return starts, np.concatenate(ends).astype(I32), distance


@case
def rd_bfs(device, program, random):
    nodes = 3000
    starts, edges, right = graph(random, nodes)
    described = np.stack([starts[:-1], np.diff(starts)], 1).astype(I32)
    mask, updating, visited = (np.zeros(nodes, np.uint8) for _ in range(3))
    cost = np.full(nodes, -1, I32)
    mask[0], visited[0], cost[0] = 1, 1, 0
    places = [device.array(one) for one in (described, edges, mask, updating, visited, cost, np.zeros(1, np.uint8))]
    nodes_at, edges_at, mask_at, updating_at, visited_at, cost_at, over = places
    for _ in range(nodes):
        over.write(np.zeros(1, np.uint8))
        program("6Kernel")[blocks(nodes, 512), 512](nodes_at, edges_at, mask_at, updating_at, visited_at, cost_at, nodes)
        program("7Kernel2")[blocks(nodes, 512), 512](mask_at, updating_at, visited_at, over, nodes)
        if not over.read()[0]:
            break
    return {"cost": (cost_at.read(), right, 0)}


@case
def rd_hotspot(device, program, random):
    size, iterations = 128, 2
    temperature = random.random((size, size), F32) * 20 + 320
    power = random.random((size, size), F32)
    cap, rx, ry, rz, step = 0.5, 2.0, 3.0, 4.0, 0.01
    power_at, source, result = (device.array(one) for one in (power, temperature, np.zeros_like(temperature)))
    small = 16 - iterations * 2
    count = blocks(size, small)
    program("calculate_temp")[(count, count), (16, 16)](
        iterations, power_at, source, result, size, size, iterations, iterations, *map(F32, (cap, rx, ry, rz, step, 0))
    )
    right = temperature.astype(float)
    for _ in range(iterations):
        padded = np.pad(right, 1, mode="edge")
        vertical = padded[2:, 1:-1] + padded[:-2, 1:-1] - 2 * right
        horizontal = padded[1:-1, 2:] + padded[1:-1, :-2] - 2 * right
        right = right + step / cap * (power + vertical / ry + horizontal / rx + (80 - right) / rz)
    return {"temperature": (result.read(), right, 1e-5)}


@case
def rd_lud(device, program, random):
    size = 64
    matrix = random.random((size, size), F32) + F32(size) * np.eye(size, dtype=F32)
    place, right = device.array(matrix), matrix.astype(float)
    for at in range(0, size - 16, 16):
        rest = (size - at) // 16 - 1
        program("lud_diagonal")[1, 16](place, size, at)
        program("lud_perimeter")[rest, 32](place, size, at)
        program("lud_internal")[(rest, rest), (16, 16)](place, size, at)
    program("lud_diagonal")[1, 16](place, size, size - 16)
    for k in range(size):
        right[k + 1 :, k] /= right[k, k]
        right[k + 1 :, k + 1 :] -= np.outer(right[k + 1 :, k], right[k, k + 1 :])
    return {"matrix": (place.read(), right, 1e-5)}


@case
def rd_nn(device, program, random):
    places = random.random((5000, 2), F32) * 90
    result = device.array(np.zeros(5000, F32))
    program("euclid")[blocks(5000, 256), 256](device.array(places), result, 5000, F32(30), F32(90))
    right = np.hypot(30 - places[:, 0].astype(float), 90 - places[:, 1].astype(float))
    return {"distance": (result.read(), right, 1e-5)}


@case
def rd_gaussian(device, program, random):
    size = 64
    a = random.random((size, size), F32) + F32(size) * np.eye(size, dtype=F32)
    b = random.random(size, F32)
    m_at, a_at, b_at = (device.array(one) for one in (np.zeros_like(a), a, b))
    wide, right = a.astype(float), b.astype(float)
    for t in range(size - 1):
        program("4Fan1")[1, 512](m_at, a_at, size, t)
        program("4Fan2")[(16, 16), (4, 4)](m_at, a_at, b_at, size, size - t, t)
        factor = wide[t + 1 :, t] / wide[t, t]
        wide[t + 1 :, t:] -= np.outer(factor, wide[t, t:])
        right[t + 1 :] -= factor * right[t]
    return {"b": (b_at.read(), right, 1e-5)}


# NVIDIA's CUDA samples.


@case
def cs_matrixmul(device, program, random):
    a, b = random.random((96, 64), F32), random.random((64, 128), F32)
    c = device.array(np.zeros((96, 128), F32))
    program("ILi32E")[(4, 3), (32, 32)](c, device.array(a), device.array(b), 64, 128)
    return {"c": (c.read(), a.astype(float) @ b, 1e-5)}


@case
def cs_atomics(device, program, random):
    threads = 64 * 256
    start = np.zeros(11, I32)
    start[[8, 10]] = 0xFF
    place = device.array(start)
    program("testKernel")[64, 256](place)
    right, found = np.zeros(11, I32), place.read()
    right[0], right[1], right[3], right[8], right[9] = 10 * threads, -10 * threads, threads - 1, 1, -1
    for _ in range(threads):
        right[5] = 0 if right[5] >= 17 else right[5] + 1
        right[6] = 137 if right[6] == 0 or right[6] > 137 else right[6] - 1
    right[10] = 0xFF ^ np.bitwise_xor.reduce(np.arange(threads))
    # The sample says of these: whichever thread came last.
    assert 0 <= found[2] < threads and 0 <= found[7] < threads
    found[[2, 7]] = 0
    right[8] = 0xFF & np.bitwise_and.reduce(2 * np.arange(threads) + 7)
    return {"counts": (found, right, 0)}


@case
def cs_bitonic(device, program, random):
    keys = random.integers(0, 1 << 32, 8 * 1024, U32)
    values = np.arange(8 * 1024, dtype=U32)
    keys_at, values_at = device.array(keys), device.array(values)
    program("bitonicSortSharedP")[8, 512](keys_at, values_at, keys_at, values_at, 1024, 1)
    order = np.argsort(keys.reshape(8, 1024), 1, "stable")
    right = np.take_along_axis(keys.reshape(8, 1024), order, 1).ravel()
    return {"keys": (keys_at.read(), right, 0), "values": (keys[values_at.read()], right, 0)}


@case
def cs_convsep(device, program, random):
    width = height = 256
    image, weights = random.random((height, width), F32), random.random(17, F32)
    source, middle, result = (device.array(one) for one in (image, np.zeros_like(image), np.zeros_like(image)))
    program.symbol("c_Kernel").write(weights)
    program("convolutionRowsKernel")[(width // 128, height // 4), (16, 4)](middle, source, width, height, width)
    program("convolutionColumnsKernel")[(width // 16, height // 64), (16, 8)](result, middle, width, height, width)
    right = image.astype(float)
    for axis in (1, 0):
        right = np.apply_along_axis(lambda line: np.convolve(line, weights.astype(float), "same"), axis, right)
    return {"image": (result.read(), right, 1e-5)}


@case
def cs_histogram256(device, program, random):
    data = random.integers(0, 256, 1 << 18).astype(np.uint8)
    partial, total = device.array(np.zeros((240, 256), U32)), device.array(np.zeros(256, U32))
    program("18histogram256Kernel")[240, 192](partial, device.array(data), data.size // 4)
    program("mergeHistogram256Kernel")[256, 256](total, partial, 240)
    return {"counts": (total.read(), np.bincount(data, minlength=256), 0)}


@case
def cs_histogram64(device, program, random):
    data = random.integers(0, 256, 1 << 18).astype(np.uint8)
    partial, total = device.array(np.zeros((128, 64), U32)), device.array(np.zeros(64, U32))
    program("17histogram64Kernel")[128, 64](partial, device.array(data), data.size // 16)
    program("mergeHistogram64Kernel")[64, 256](total, partial, 128)
    return {"counts": (total.read(), np.bincount(data >> 2, minlength=64), 0)}


@case
def cs_scalarprod(device, program, random):
    a, b = random.random((64, 4096), F32), random.random((64, 4096), F32)
    result = device.array(np.zeros(64, F32))
    program("scalarProdGPU")[32, 256](result, device.array(a), device.array(b), 64, 4096)
    return {"products": (result.read(), (a.astype(float) * b).sum(1), 1e-5)}


@case
def cs_scan(device, program, random):
    data = random.integers(0, 1000, 16 * 1024, U32)
    result = device.array(np.zeros_like(data))
    program("scanExclusiveSharedP5uint4")[16, 256](result, device.array(data), 1024)
    parts = data.reshape(16, 1024)
    return {"sums": (result.read(), (np.cumsum(parts, 1) - parts).ravel(), 0)}


@case
def cs_shflscan(device, program, random):
    data = random.integers(0, 100, 256 * 256).astype(I32)
    place, sums = device.array(data), device.array(np.zeros(256, I32))
    program("shfl_scan_test")[256, 256, 32](place, 32, sums)
    program("shfl_scan_test")[1, 256, 32](sums, 32, device.array(np.zeros(1, I32)))
    found = place.read()
    add = device.array(found[256:])
    program("uniform_add")[255, 256](add, sums, 255 * 256)
    whole = np.concatenate([found[:256], add.read()])
    return {"sums": (whole, np.cumsum(data), 0)}


# SHOC.


@case
def sh_reduction(device, program, random):
    data = random.random(1 << 16, F32)
    result = device.array(np.zeros(64, F32))
    program("reduceIfLi256E")[64, 256, 1024](device.array(data), result, data.size)
    # Each block takes 512 neighbours at every 64th place.
    right = data.astype(float).reshape(-1, 64, 512).sum((0, 2))
    return {"sums": (result.read(), right, 1e-5)}


@case
def sh_scan(device, program, random):
    data = random.random(64 * 1024, F32)
    place, sums, result = device.array(data), device.array(np.zeros(64, F32)), device.array(np.zeros_like(data))
    program("6reduceIfLi256E")[64, 256, 1024](place, sums, data.size)
    program("scan_single_blockIfLi256E")[1, 256, 2048](sums, 64)
    program("bottom_scanIf6float4Li256E")[64, 256, 2048](place, result, sums, data.size)
    return {"sums": (result.read(), np.cumsum(data.astype(float)), 1e-4)}


@case
def sh_bfs(device, program, random):
    nodes, width = 3000, 32
    starts, edges, right = graph(random, nodes)
    levels = np.full(nodes, 0xFFFFFFFF, U32)
    levels[0] = 0
    levels_at, starts_at, edges_at, flag = (device.array(one) for one in (levels, starts.astype(U32), edges.astype(U32), np.zeros(1, I32)))
    for level in range(nodes):
        flag.write(np.zeros(1, I32))
        program("BFS_kernel_warp")[blocks(nodes * width // 32, 256), 256](
            levels_at, starts_at, edges_at, width, 32, nodes, level, flag
        )
        if not flag.read()[0]:
            break
    return {"levels": (levels_at.read(), right, 0)}


@case
def sh_triad(device, program, random):
    a, b = random.random(1 << 16, F32), random.random(1 << 16, F32)
    c = device.array(np.zeros_like(a))
    program("triad")[256, 256](device.array(a), device.array(b), c, F32(1.75))
    return {"c": (c.read(), a + 1.75 * b.astype(float), 1e-6)}


@case
def sh_md5(device, program, random):
    length, values = 5, 10
    keyspace, wanted = values**length, 70_707
    digits = [wanted // values**place % values for place in range(length)]
    digest = np.frombuffer(hashlib.md5(bytes(digits)).digest(), U32)
    index, key, found = (device.array(one) for one in (np.full(1, -1, I32), np.zeros(8, np.uint8), np.zeros(4, U32)))
    program("FindKeyWithDigest_Kernel")[blocks(keyspace // values, 384), 384](*digest, keyspace, length, values, index, key, found)
    right = np.array(digits + [0] * (8 - length))
    return {"index": (index.read(), np.array([wanted]), 0), "key": (key.read(), right, 0), "digest": (found.read(), digest, 0)}


def compare(found, right, tolerance):
    """What is wrong with what was found, if something is. A tolerance is relative to the largest number."""
    if found.shape != right.shape:
        return f"{found.shape} in the place of {right.shape}"
    if tolerance == 0:
        wrong = np.flatnonzero(found.astype(np.int64) != right.astype(np.int64))
        return f"{wrong.size} differ, the first at {wrong[0]}" if wrong.size else None
    error = np.abs(found.astype(float) - right).max() / max(np.abs(right).max(), 1e-30)
    return None if error <= tolerance else f"off by {error:.2g}, and {tolerance:.2g} is allowed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--save", type=pathlib.Path)
    parser.add_argument("--against", type=pathlib.Path)
    options = parser.parse_args()
    other = np.load(options.against) if options.against else {}
    device, kept = Device(), {}
    passed = failed = skipped = same = within = 0
    print(f"on {device.name}")
    for name, check in CASES.items():
        if options.only and name not in options.only.split(","):
            continue
        file = options.folder / f"{name}.ptx"
        if not file.exists():
            print(f"SKIPPED {name}: there is no {file}")
            skipped += 1
            continue
        try:
            results = check(device, device.program(file), np.random.default_rng(7))
        except (RuntimeError, AssertionError) as error:
            print(f"FAILED  {name}: {error!r}")
            failed += 1
            continue
        words = []
        for what, (found, right, tolerance) in results.items():
            wrong = compare(found, np.asarray(right), tolerance)
            key = f"{name}.{what}"
            kept[key] = found
            if key in other:
                equal = other[key].tobytes() == found.tobytes()
                same, within = same + equal, within + (not equal)
                if not equal:
                    words.append(f"{what}: other bytes than in {options.against.name}")
                    wrong = wrong or compare(found, other[key].astype(float), 2 * tolerance)
            if wrong:
                words.append(f"{what}: {wrong}")
                break
        failed += bool(wrong)
        passed += not wrong
        print(f"{'FAILED ' if wrong else 'right  '} {name} {'; '.join(words)}")
    if options.save:
        np.savez_compressed(options.save, **kept)
    print(f"{passed} right, {failed} wrong, {skipped} skipped" + (f"; {same} results with the same bytes, {within} without" if other else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
