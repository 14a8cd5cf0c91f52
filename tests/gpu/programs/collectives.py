#!/usr/bin/env python3
"""One rank of a job over NCCL.

RANK and WORLD_SIZE say which, MASTER_ADDR and MASTER_PORT where the ranks meet, DEVICE which GPU it has. The parts:
`bus` measures collectives and checks their results; `ddp`, `fsdp` and `tensor` train, and say each loss and time;
`graph` replays captured collectives. Rank 0 prints a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", int(os.environ.get("DEVICE", RANK)))


def say(value: object) -> None:
    if RANK == 0:
        print(json.dumps(value), flush=True)


def seconds(call, rounds: int, each: bool) -> float:
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(rounds):
        call()
        if each:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / rounds


def operations(count: int):
    """Each collective over `count` floats: bytes, their share that crosses the bus, the call, a check of its result."""
    mine = torch.full((count,), float(RANK + 1), device=DEVICE)
    other = torch.empty(count, device=DEVICE)
    gathered = torch.empty(count * RANKS, device=DEVICE)
    spread = torch.full((count * RANKS,), float(RANK + 1), device=DEVICE)
    total = float(sum(range(1, RANKS + 1)))
    turn = torch.empty(count, device=DEVICE)

    def all_reduce() -> None:
        turn.copy_(mine)
        dist.all_reduce(turn)

    def exchange() -> None:
        to, by = (RANK + 1) % RANKS, (RANK - 1) % RANKS
        both = [dist.P2POp(dist.isend, mine, to), dist.P2POp(dist.irecv, other, by)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    around = (RANKS - 1) / RANKS
    size = count * 4
    yield (
        "all_reduce",
        size,
        2 * around,
        lambda: dist.all_reduce(turn),
        lambda: (all_reduce(), bool((turn == total).all()))[1],
    )
    yield (
        "all_gather",
        size * RANKS,
        around,
        lambda: dist.all_gather_into_tensor(gathered, mine),
        lambda: bool((gathered.view(RANKS, count) == torch.arange(1.0, RANKS + 1, device=DEVICE)[:, None]).all()),
    )
    yield (
        "reduce_scatter",
        size * RANKS,
        around,
        lambda: dist.reduce_scatter_tensor(other, spread),
        lambda: bool((other == total).all()),
    )
    yield "send_recv", size, 1.0, exchange, lambda: bool((other == float((RANK - 1) % RANKS + 1)).all())


def bus() -> None:
    rows = []
    for size in (int(size) for size in os.environ.get("SIZES", "8,1024,65536,1048576,16777216,268435456").split(",")):
        for name, moved, factor, call, check in operations(max(size // 4, 1)):
            for _ in range(5):
                call()
            rounds = 100 if size <= 1 << 20 else 20
            queued, waited = seconds(call, rounds, False), seconds(call, rounds, True)
            right = check()
            rows.append(
                {
                    "operation": name,
                    "bytes": size,
                    "us": round(queued * 1e6, 2),
                    "waited_us": round(waited * 1e6, 2),
                    "bus_gb_s": round(moved * factor / queued / 1e9, 3),
                    "right": right,
                }
            )
    say(rows)


def train(wrap, steps: int = 20) -> None:
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    model, batch = wrap()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    losses, times = [], []
    for step in range(steps):
        torch.manual_seed(step * RANKS + RANK)
        inputs, targets = batch()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - begun)
    times = sorted(times[5:])
    say({"losses": losses, "ms_per_step": round(times[len(times) // 2] * 1e3, 3)})


def ddp() -> None:
    def wrap():
        import torchvision

        model = torchvision.models.resnet50(num_classes=100).to(DEVICE)
        wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=[DEVICE.index])

        def images():
            return (torch.randn(32, 3, 224, 224, device=DEVICE), torch.randint(0, 100, (32,), device=DEVICE))

        return wrapped, images

    train(wrap)


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)

    def forward(self, values):
        return self.inner(values)


def fsdp() -> None:
    def wrap():
        from torch.distributed.fsdp import fully_shard

        model = torch.nn.Sequential(
            *(Block(512) for _ in range(4)), torch.nn.Flatten(), torch.nn.Linear(512 * 64, 100)
        ).to(DEVICE)
        for layer in model[:4]:
            fully_shard(layer)
        fully_shard(model)
        return model, lambda: (torch.randn(16, 64, 512, device=DEVICE), torch.randint(0, 100, (16,), device=DEVICE))

    train(wrap)


def tensor() -> None:
    def wrap():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cuda", (RANKS,))
        torch.manual_seed(0)
        layers = [
            torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024))
            for _ in range(4)
        ]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(1024, 100)).to(DEVICE)
        for layer in model[:4]:
            parallelize_module(layer, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

        def batch():
            # The ranks of a tensor-parallel model see the same.
            torch.manual_seed(7)
            return torch.randn(256, 1024, device=DEVICE), torch.randint(0, 100, (256,), device=DEVICE)

        return model, batch

    train(wrap)


def graph() -> None:
    values = torch.full((1 << 16,), 1.0, device=DEVICE)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        dist.all_reduce(values)
    torch.cuda.synchronize()
    values.fill_(1.0)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        dist.all_reduce(values)
        values.mul_(0.5)
    values.fill_(1.0)
    torch.cuda.synchronize()
    for _ in range(4):
        captured.replay()
    torch.cuda.synchronize()
    say({"right": bool((values == (RANKS / 2) ** 4).all())})


def main() -> None:
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", device_id=DEVICE if os.environ.get("EAGER", "1") == "1" else None)
    parts = {"bus": bus, "ddp": ddp, "fsdp": fsdp, "tensor": tensor, "graph": graph}
    for part in sys.argv[1:]:
        parts[part]()
    dist.destroy_process_group()


main()
