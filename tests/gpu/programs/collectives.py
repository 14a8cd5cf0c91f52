#!/usr/bin/env python3
"""One rank of a job over NCCL.

RANK and WORLD_SIZE say which, MASTER_ADDR and MASTER_PORT where the ranks meet, DEVICE which GPU it has. The parts:
`bus` measures collectives and checks their results; `ddp`, `fsdp` and `tensor` train, and say each loss and time;
`graph` replays captured collectives, `calls` tries what training does not use; in `lost` the last rank is killed while the others wait for
it, also behind a captured collective that they keep: natively they may wait for ever. Rank 0 prints a line of JSON for each.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
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


def crossed() -> bool:
    """Captured collectives of one communicator on two streams, which do not wait for each other."""
    first, second = (torch.full((1 << 20,), 1.0, device=DEVICE) for _ in range(2))
    dist.all_reduce(first)
    dist.all_reduce(second, async_op=True).wait()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        work = dist.all_reduce(first, async_op=True)
        dist.all_reduce(second)
        work.wait()
    first.fill_(1.0)
    second.fill_(2.0)
    torch.cuda.synchronize()
    for _ in range(20):
        captured.replay()
        first.mul_(1 / RANKS)
        second.mul_(1 / RANKS)
    torch.cuda.synchronize()
    return bool((first == 1.0).all()) and bool((second == 2.0).all())


def scaled() -> bool:
    """A reduction of one's own, ended before its group is."""
    values = [torch.full((1000,), float(RANK + 1), device=DEVICE) for _ in range(2)]
    half = dist._make_nccl_premul_sum(0.5)
    with dist._coalescing_manager(device=DEVICE):
        for value in values:
            dist.all_reduce(value, op=half)
    dist.all_reduce(values[0], op=half)
    torch.cuda.synchronize()
    once = sum(range(1, RANKS + 1)) / 2
    return bool((values[0] == once * RANKS / 2).all()) and bool((values[1] == once).all())


class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Library:
    """NCCL as C programs call it, on the process's one device."""

    def __init__(self) -> None:
        self.nccl = ctypes.CDLL("libnccl.so.2")
        self.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def call(self, name: str, *arguments: object) -> None:
        status = getattr(self.nccl, name)(*arguments)
        if status:
            text = self.nccl.ncclGetLastError
            text.restype = ctypes.c_char_p
            raise RuntimeError(f"{name}: {status}: {text(None).decode()}")

    def communicator(self) -> ctypes.c_void_p:
        found = Id()
        if RANK == 0:
            self.call("ncclGetUniqueId", ctypes.byref(found))
        told = [bytes(found)]
        dist.broadcast_object_list(told, src=0, device=DEVICE)
        ctypes.memmove(ctypes.byref(found), told[0], 128)
        comm = ctypes.c_void_p()
        self.call("ncclCommInitRank", ctypes.byref(comm), RANKS, found, RANK)
        return comm

    def memory(self, size: int) -> ctypes.c_void_p:
        at = ctypes.c_void_p()
        self.call("ncclMemAlloc", ctypes.byref(at), ctypes.c_size_t(size))
        return at

    def sum(self, at: ctypes.c_void_p, out: ctypes.c_void_p, count: int, comm: ctypes.c_void_p) -> list[float]:
        """All-reduces ones, and gives what came."""
        cuda = ctypes.CDLL("libcuda.so.1")
        cuda.cuMemsetD32_v2(ctypes.c_uint64(at.value), ctypes.c_uint(0x3F800000), ctypes.c_size_t(count))
        self.call("ncclAllReduce", at, out, ctypes.c_size_t(count), 7, 0, comm, self.stream)
        room = (ctypes.c_float * count)()
        torch.cuda.synchronize()
        status = cuda.cuMemcpyDtoH_v2(room, ctypes.c_uint64(out.value), ctypes.c_size_t(4 * count))
        if status:
            raise RuntimeError(f"the copy back: {status}")
        return list(room)


def windows() -> bool:
    """Memory of the library's, as windows and as buffers, of all ranks."""
    library, count = Library(), 1 << 16
    comm = library.communicator()
    at, out = library.memory(4 * count), library.memory(4 * count)
    right = True
    for register, end in (
        ("ncclCommWindowRegister", "ncclCommWindowDeregister"),
        ("ncclCommRegister", "ncclCommDeregister"),
    ):
        handles = []
        for place in (at, out):
            handle = ctypes.c_void_p()
            flags = (1,) if "Window" in register else ()
            library.call(register, comm, place, ctypes.c_size_t(4 * count), ctypes.byref(handle), *flags)
            handles.append(handle)
        for _ in range(3):
            right = right and library.sum(at, out, count, comm) == [float(RANKS)] * count
        for handle in handles:
            library.call(end, comm, handle)
    for place in (at, out):
        library.call("ncclMemFree", place)
    library.call("ncclCommDestroy", comm)
    return right


def split() -> bool:
    """Communicators of one's own, by a group."""
    library = Library()
    comm, alone = library.communicator(), ctypes.c_void_p()
    library.call("ncclCommSplit", comm, RANK, 0, ctypes.byref(alone), None)
    at = library.memory(4)
    right = library.sum(at, at, 1, alone) == [1.0] and library.sum(at, at, 1, comm) == [float(RANKS)]
    library.call("ncclGroupStart")
    library.call("ncclCommDestroy", alone)
    library.call("ncclCommDestroy", comm)
    library.call("ncclGroupEnd")
    library.call("ncclMemFree", at)
    return right


def told() -> bool:
    """A failure has a text."""
    library = Library()
    comm = library.communicator()
    with contextlib.suppress(RuntimeError):
        library.call("ncclAllReduce", None, None, ctypes.c_size_t(1), 7, 9, comm, library.stream)
        return False
    library.call("ncclCommAbort", comm)
    return True


def calls() -> None:
    found = {}
    for part in (crossed, scaled, windows, split, told):
        try:
            found[part.__name__] = part()
        except Exception as failure:
            found[part.__name__] = str(failure)
    print(f"rank {RANK}: {found}", file=sys.stderr)
    say(found)


def lost() -> None:
    other = dist.new_group()
    values = torch.full((1 << 16,), 1.0, device=DEVICE)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        dist.all_reduce(values)
        dist.all_reduce(values, group=other)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        dist.all_reduce(values)
    captured.replay()
    torch.cuda.synchronize()
    if RANK == RANKS - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.perf_counter()
    outcome = "nothing failed"
    try:
        captured.replay()
        dist.all_reduce(values, group=other)
        torch.cuda.synchronize()
    except Exception as failure:
        outcome = f"{type(failure).__name__}: {failure}"
    say({"outcome": outcome.splitlines()[0][:200], "seconds": round(time.perf_counter() - begun, 1)})
    os._exit(0)


def main() -> None:
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", device_id=DEVICE if os.environ.get("EAGER", "1") == "1" else None)
    parts = {"bus": bus, "ddp": ddp, "fsdp": fsdp, "tensor": tensor, "graph": graph, "calls": calls, "lost": lost}
    for part in sys.argv[1:]:
        parts[part]()
    dist.destroy_process_group()


main()
