"""PyTorch: torch.compile of a transformer layer, with its gradient. Needs Triton and a C compiler."""

import time

import harness

options = harness.arguments(__doc__, steps=50).parse_args()
torch = harness.torch_that_repeats()
harness.need("triton")
from torch import nn  # noqa: E402 - after the settings above
from torch.nn import functional  # noqa: E402


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return x + self.narrow(functional.gelu(self.widen(self.norm(x))))


clock = harness.Clock("torch_compile", options)
model = nn.Sequential(*(Layer(256) for _ in range(4))).cuda()
x = torch.randn(64, 256).cuda()
compiled = torch.compile(model)


def step() -> "torch.Tensor":
    for parameter in model.parameters():
        parameter.grad = None
    loss = compiled(x).square().mean()
    loss.backward()
    return loss


start = time.perf_counter()
found = step().item()
build_s = time.perf_counter() - start
clock.first_result()
gradient = model[0].widen.weight.grad.clone()
for parameter in model.parameters():
    parameter.grad = None
expected = model(x).square().mean()
expected.backward()
assert abs(found - expected.item()) < 1e-4 * abs(expected.item()), f"{found} is not {expected.item()}"
torch.testing.assert_close(gradient, model[0].widen.weight.grad, rtol=1e-3, atol=1e-5)
clock.run(step, torch.cuda.synchronize)
results = harness.Results()
results.add(step().detach().cpu().numpy())
results.add(model[0].widen.weight.grad.cpu().numpy())
clock.report(results, build_s=build_s)
