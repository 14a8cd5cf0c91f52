"""JAX: a jitted training step of a small network, a convolution, a scan, sorting and random numbers."""

import os

import harness

# All of the memory at the start would leave none for a second process.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")
options = harness.arguments(__doc__, steps=50).parse_args()
numpy = harness.need("numpy")
jax = harness.need("jax")
import jax.numpy as jnp  # noqa: E402 - after the settings above

if jax.devices()[0].platform != "gpu":
    raise SystemExit(f"JAX finds no GPU: {jax.devices()}")

clock = harness.Clock("jax", options)
results = harness.Results()
keys = jax.random.split(jax.random.PRNGKey(1), 6)
weights = [jax.random.normal(key, shape) * 0.05 for key, shape in zip(keys, ((256, 512), (512, 512), (512, 10)))]
x = jax.random.normal(keys[3], (128, 256))
y = jax.random.randint(keys[4], (128,), 0, 10)


def loss_of(weights, x, y):
    for weight in weights[:-1]:
        x = jax.nn.relu(x @ weight)
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ weights[-1]), y[:, None], axis=1).mean()


@jax.jit
def train(weights, x, y):
    loss, gradient = jax.value_and_grad(loss_of)(weights, x, y)
    return [weight - 0.1 * slope for weight, slope in zip(weights, gradient)], loss


first = float(loss_of(weights, x, y))
clock.first_result()
kept = []


def step() -> None:
    global weights
    weights, loss = train(weights, x, y)
    kept.append(loss)


clock.run(step, lambda: jax.block_until_ready(weights))
assert float(kept[-1]) < first, f"the loss does not fall: {first} to {float(kept[-1])}"
for weight in weights:
    results.add(weight)
image = jax.random.normal(keys[5], (2, 3, 32, 32))
filters = jax.random.normal(keys[0], (8, 3, 3, 3))
convolved = jax.lax.conv(image, filters, (1, 1), "SAME")
assert convolved.shape == (2, 8, 32, 32) and bool(jnp.isfinite(convolved).all())
results.add(convolved)
sums = jax.jit(lambda values: jax.lax.scan(lambda sum, value: (sum + value, sum + value), 0, values)[1])(jnp.arange(100))
numpy.testing.assert_array_equal(numpy.asarray(sums), numpy.cumsum(numpy.arange(100)))
numpy.testing.assert_array_equal(numpy.asarray(jnp.sort(x[:, 0])), numpy.sort(numpy.asarray(x[:, 0])))
clock.report(results, jax=jax.__version__, device=str(jax.devices()[0]))
