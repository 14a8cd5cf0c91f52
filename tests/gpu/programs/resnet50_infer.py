"""PyTorch: inference of ResNet-50, one image at a time, the class read after each."""

import harness

options = harness.arguments(__doc__, steps=50).parse_args()
torch = harness.torch_that_repeats()
from resnet import resnet50  # noqa: E402 - after the settings above

clock = harness.Clock("resnet50_infer", options)
model = resnet50().cuda().eval()
images = torch.randn(8, 3, 224, 224).cuda()
at = 0


def step() -> int:
    global at
    at = (at + 1) % len(images)
    return model(images[at : at + 1]).argmax(1).item()


with torch.inference_mode():
    clock.run(step, torch.cuda.synchronize)
    results = harness.Results()
    for image in images:
        scores = model(image[None]).cpu()
        assert torch.isfinite(scores).all()
        results.add(scores.numpy())
clock.report(results)
