"""CuPy: own kernels, element-wise kernels, reductions, sorting, matrices, FFTs and random numbers."""

import harness

options = harness.arguments(__doc__, steps=200).parse_args()
numpy = harness.need("numpy")
cupy = harness.need("cupy")
clock = harness.Clock("cupy", options)
results = harness.Results()

scale_add = cupy.RawKernel(
    r"""
extern "C" __global__ void scale_add(const float *x, float *y, float factor, int count) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) y[at] = factor * x[at] + y[at];
}
""",
    "scale_add",
)
host = numpy.random.default_rng(1)
x = host.standard_normal(100_000, dtype=numpy.float32)
y = host.standard_normal(100_000, dtype=numpy.float32)
on_x, on_y = cupy.asarray(x), cupy.asarray(y)
scale_add(((x.size + 255) // 256,), (256,), (on_x, on_y, numpy.float32(2), numpy.int32(x.size)))
numpy.testing.assert_allclose(cupy.asnumpy(on_y), 2 * x + y, rtol=1e-5, atol=1e-5)
clock.first_result()
results.add(cupy.asnumpy(on_y))

squares = cupy.ElementwiseKernel("float32 a, float32 b", "float32 c", "c = (a - b) * (a - b)", "squares")
numpy.testing.assert_allclose(cupy.asnumpy(squares(on_x, on_y)), (x - cupy.asnumpy(on_y)) ** 2, rtol=1e-5, atol=1e-6)
assert abs(float(on_x.astype(cupy.float64).sum()) - x.astype(numpy.float64).sum()) < 1e-6
numpy.testing.assert_array_equal(cupy.asnumpy(cupy.sort(on_x)), numpy.sort(x))
numpy.testing.assert_array_equal(cupy.asnumpy(cupy.cumsum(cupy.arange(1000))), numpy.cumsum(numpy.arange(1000)))
a = host.standard_normal((300, 200))
b = host.standard_normal((200, 100))
product = cupy.asarray(a) @ cupy.asarray(b)
numpy.testing.assert_allclose(cupy.asnumpy(product), a @ b, rtol=1e-9, atol=1e-9)
results.add(cupy.asnumpy(product))
spectrum = cupy.fft.fft(cupy.asarray(a), axis=1)
numpy.testing.assert_allclose(cupy.asnumpy(spectrum), numpy.fft.fft(a, axis=1), rtol=1e-9, atol=1e-9)
results.add(cupy.asnumpy(spectrum))
square = a[:200] @ a[:200].T + 200 * numpy.eye(200)
solved = cupy.linalg.solve(cupy.asarray(square), cupy.asarray(b))
numpy.testing.assert_allclose(square @ cupy.asnumpy(solved), b, rtol=1e-7, atol=1e-7)
uniform = cupy.random.RandomState(5).uniform(size=10_000)
assert 0.48 < float(uniform.mean()) < 0.52
results.add(cupy.asnumpy(uniform))
with cupy.cuda.Stream() as stream:
    later = cupy.asarray(x) * 3
    stream.synchronize()
numpy.testing.assert_allclose(cupy.asnumpy(later), x * 3, rtol=1e-6)


def step() -> None:
    (squares(on_x, on_y).sum() + cupy.sqrt(cupy.abs(on_x)).max()).item()


clock.run(step, cupy.cuda.Device().synchronize)
clock.report(results, cupy=cupy.__version__)
