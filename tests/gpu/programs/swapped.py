"""Fills device memory, works on all of it, and tells what came out: a program that swapping must not change."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time

import torch

GIB = 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, required=True, help="device memory to fill")
    parser.add_argument("--seconds", type=float, default=10, help="how long to work")
    parser.add_argument("--steps", type=int, default=0, help="how many steps to work instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wait", action="store_true", help="say 'ready' and wait for a line before the work")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    count = 8
    each = int(options.gib * GIB / count / 8)
    blocks = [torch.arange(part, part + each, device="cuda", dtype=torch.int64) for part in range(count)]
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(256, 1024, device="cuda")
    torch.cuda.synchronize()
    if options.wait:
        print("ready", flush=True)
        sys.stdin.readline()
    started, longest, steps, losses = time.monotonic(), 0.0, 0, []
    while steps < options.steps if options.steps else time.monotonic() - started < options.seconds:
        before = time.monotonic()
        block = blocks[steps % count]
        block.mul_(3).add_(steps)
        optimizer.zero_grad()
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        longest = max(longest, time.monotonic() - before)
        steps += 1
    spent = time.monotonic() - started
    digest = hashlib.sha256(repr(losses).encode())
    for block in blocks:
        digest.update(repr([block.sum().item(), block[::4097].sum().item(), block[-1].item()]).encode())
    print(f"steps {steps} seconds {spent:.3f} longest {longest:.3f} digest {digest.hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    main()
