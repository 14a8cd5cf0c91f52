#!/usr/bin/env python3
"""Trains a small residual network on made-up images and prints the loss of every step: for sessions that move meanwhile.

    train_moved.py STEPS [--graph] [--resnet]

With 0 steps it trains until its standard input has a line. With --graph every step is a launch of one CUDA graph; with --resnet the network is torchvision's ResNet-50.
"""

import itertools
import os
import select
import sys

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(x + self.norms[1](self.second(y)))


def main() -> int:
    steps, by_graph = int(sys.argv[1]), "--graph" in sys.argv
    torch.manual_seed(5)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    device = torch.device("cuda")
    if "--resnet" in sys.argv:
        import torchvision

        net, side = torchvision.models.resnet50(num_classes=100), 224
    else:
        net, side = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.ReLU(), *(Block(64) for _ in range(4)),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100),
        ), 96  # fmt: skip
    net = net.to(device)
    generator = torch.Generator(device="cpu").manual_seed(7)
    images = torch.randn(32, 3, side, side, generator=generator).pin_memory().to(device, non_blocking=True)
    labels = torch.randint(100, (32,), generator=generator).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = loss_of(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    if by_graph:
        before = torch.cuda.Stream()
        before.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(before):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(before)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = step()

        def again() -> torch.Tensor:
            graph.replay()
            return kept
    else:
        again = step
    for number in range(steps) if steps else itertools.count():
        print(number, f"{again().item():.9e}", flush=True)
        if not steps and select.select([sys.stdin], [], [], 0)[0]:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main())
