"""PyTorch under its profiler, which looks at devices by CUPTI: the product is right, and the host's side is told."""

import harness

options = harness.arguments(__doc__, steps=20).parse_args()
torch = harness.torch_that_repeats()
clock = harness.Clock("torch_profiler", options)

results = harness.Results()
left = torch.arange(256, dtype=torch.float32, device="cuda").reshape(16, 16)
clock.first_result()

product = left


def step() -> float:
    global product
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        product = left @ left
        torch.cuda.synchronize()
    names = {event.key for event in profile.key_averages()}
    assert "aten::mm" in names, sorted(names)
    return product[0, 0].item()


clock.run(step, torch.cuda.synchronize)
results.add(product.cpu().numpy())
clock.report(results, device=torch.cuda.get_device_name(0), torch=torch.__version__)
