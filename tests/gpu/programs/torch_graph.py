"""PyTorch: 100 replays of a captured graph per step, waited for once. The graph is a small network's forward pass."""

import harness

options = harness.arguments(__doc__, steps=5).parse_args()
torch = harness.torch_that_repeats()
clock = harness.Clock("torch_graph", options)
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(16))).cuda().eval()
x = torch.randn(32, 256, device="cuda")

with torch.inference_mode():
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)

    def step() -> None:
        for _ in range(100):
            graph.replay()
        torch.cuda.synchronize()

    clock.run(step, torch.cuda.synchronize)
    x.copy_(torch.full((32, 256), 0.5))
    graph.replay()
    results = harness.Results()
    replayed = y.cpu()
    torch.testing.assert_close(replayed, model(x).cpu(), rtol=1e-4, atol=1e-5)
    results.add(replayed.numpy())
clock.report(results, replays_per_step=100)
