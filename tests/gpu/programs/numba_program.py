"""Numba: kernels with shared memory, barriers, atomics, streams and events."""

import harness

options = harness.arguments(__doc__, steps=50).parse_args()
numpy = harness.need("numpy")
harness.need("numba")
from numba import cuda, float32  # noqa: E402 - after the check above

TILE = 16


@cuda.jit
def add(a, b, total):
    at = cuda.grid(1)
    if at < total.size:
        total[at] = a[at] + b[at]


@cuda.jit
def multiply(a, b, c):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    row, column = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    value = float32(0)
    for start in range(0, a.shape[1], TILE):
        a_tile[tx, ty] = a[row, start + ty] if row < a.shape[0] and start + ty < a.shape[1] else 0
        b_tile[tx, ty] = b[start + tx, column] if start + tx < b.shape[0] and column < b.shape[1] else 0
        cuda.syncthreads()
        for k in range(TILE):
            value += a_tile[tx, k] * b_tile[k, ty]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = value


@cuda.jit
def count(values, bins):
    at = cuda.grid(1)
    if at < values.size:
        cuda.atomic.add(bins, values[at] % bins.size, 1)


clock = harness.Clock("numba", options)
results = harness.Results()
host = numpy.random.default_rng(1)
x = host.standard_normal(50_000, dtype=numpy.float32)
y = host.standard_normal(50_000, dtype=numpy.float32)
stream = cuda.stream()
on_x, on_y = cuda.to_device(x, stream), cuda.to_device(y, stream)
total = cuda.device_array_like(on_x, stream)
add[(x.size + 255) // 256, 256, stream](on_x, on_y, total)
summed = total.copy_to_host(stream=stream)
stream.synchronize()
numpy.testing.assert_array_equal(summed, x + y)
clock.first_result()
results.add(summed)
a = host.standard_normal((100, 70), dtype=numpy.float32)
b = host.standard_normal((70, 50), dtype=numpy.float32)
c = cuda.device_array((100, 50), numpy.float32)
multiply[(7, 4), (TILE, TILE)](cuda.to_device(a), cuda.to_device(b), c)
numpy.testing.assert_allclose(c.copy_to_host(), a @ b, rtol=1e-4, atol=1e-4)
results.add(c.copy_to_host())
values = host.integers(0, 1 << 20, 30_000, dtype=numpy.int64)
bins = cuda.to_device(numpy.zeros(37, numpy.int64))
count[(values.size + 127) // 128, 128](cuda.to_device(values), bins)
numpy.testing.assert_array_equal(bins.copy_to_host(), numpy.bincount(values % 37, minlength=37))
results.add(bins.copy_to_host())
begin, end = cuda.event(), cuda.event()
begin.record()
add[(x.size + 255) // 256, 256](on_x, on_y, total)
end.record()
end.synchronize()
assert cuda.event_elapsed_time(begin, end) >= 0


def step() -> None:
    add[(x.size + 255) // 256, 256](on_x, on_y, total)


clock.run(step, cuda.synchronize)
clock.report(results)
