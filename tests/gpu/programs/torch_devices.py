"""PyTorch on two devices: products on both, whose operands and results go from one to the other."""

import sys

import harness

options = harness.arguments(__doc__, steps=20).parse_args()
torch = harness.torch_that_repeats()
if torch.cuda.device_count() < 2:
    print("skipped: needs two CUDA devices", file=sys.stderr)
    sys.exit(harness.SKIPPED)
clock = harness.Clock("torch_devices", options)

results = harness.Results()
first, second = torch.device("cuda", 0), torch.device("cuda", 1)
generator = torch.Generator("cpu").manual_seed(7)
start = torch.randn(2048, 2048, generator=generator)
here, there = start.to(first), start.to(second)
assert torch.equal(here.to(second), there), "a copy from the first device to the second has other values"
assert torch.equal(there.to(first), here), "a copy from the second device to the first has other values"
clock.first_result()


def step() -> None:
    global here
    product = torch.tanh(here @ here / 2048)
    # Ordered on both devices by PyTorch's events alone.
    moved = product.to(second, non_blocking=True)
    moved = torch.tanh(moved @ there / 45)
    here = moved.to(first, non_blocking=True)


def wait() -> None:
    torch.cuda.synchronize(first)
    torch.cuda.synchronize(second)


clock.run(step, wait)
results.add(here.cpu().numpy())
parts = torch.nn.parallel.scatter(start.pin_memory(), [0, 1])
sums = [part.double().sum().cpu() for part in parts]
assert abs(float(sum(sums)) - float(start.double().sum())) < 1e-6
results.add(torch.stack(sums).numpy())
clock.report(
    results,
    devices=[torch.cuda.get_device_name(device) for device in (first, second)],
    peers=torch.cuda.can_device_access_peer(first, second),
    torch=torch.__version__,
)
