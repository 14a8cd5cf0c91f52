"""PyTorch: a training step of ResNet-50. With --item the loss is read after every step, which waits for the device."""

import harness

parser = harness.arguments(__doc__, steps=10)
parser.add_argument("--item", action="store_true", help="read the loss after every step")
parser.add_argument("--batch", type=int, default=32)
options = parser.parse_args()
torch = harness.torch_that_repeats()
from resnet import resnet50  # noqa: E402 - after the settings above

clock = harness.Clock("resnet50_train" + ("_item" if options.item else ""), options)
model = resnet50().cuda().train()
assert sum(p.numel() for p in model.parameters()) == 25_557_032, "this is not ResNet-50"
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
criterion = torch.nn.CrossEntropyLoss()
images = torch.randn(options.batch, 3, 224, 224).cuda()
labels = torch.randint(0, 1000, (options.batch,)).cuda()
losses = []


def step() -> None:
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item() if options.item else loss.detach())


clock.run(step, torch.cuda.synchronize)
results = harness.Results()
values = torch.tensor([float(loss) for loss in losses])
assert torch.isfinite(values).all() and values[-1] < values[0], f"the loss does not fall: {values.tolist()}"
results.add(values.numpy())
for parameter in model.parameters():
    results.add(parameter.detach().cpu().numpy())
clock.report(results, batch=options.batch, loss=values[-1].item())
