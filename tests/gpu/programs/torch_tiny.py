"""PyTorch: one small addition and item() per step, so one wait for the device per step."""

import harness

options = harness.arguments(__doc__, steps=1000).parse_args()
torch = harness.torch_that_repeats()
clock = harness.Clock("torch_tiny", options)

results = harness.Results()
a = torch.arange(1024, dtype=torch.float32, device="cuda")
total = (a + a).sum().item()
assert total == 1023 * 1024, f"the sum is {total}"
product = torch.ones(64, 64, device="cuda") @ torch.full((64, 64), 2.0, device="cuda")
assert product[3, 5].item() == 128.0
clock.first_result()

value = torch.zeros(1, device="cuda")


def step() -> float:
    global value
    value = value + 1
    return value.item()


clock.run(step, torch.cuda.synchronize)
expected = 3 + options.steps * options.rounds
assert value.item() == expected, f"{value.item()} is not {expected}"
results.add(value.cpu().numpy())
results.add(torch.randn(1000, device="cuda", generator=torch.Generator("cuda").manual_seed(3)).cpu().numpy())
clock.report(results, device=torch.cuda.get_device_name(0), torch=torch.__version__)
