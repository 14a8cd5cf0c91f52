"""PyTorch's collectives by NCCL: a training step of a small network in `DistributedDataParallel`, a reduction and a gathering.

One rank by default. With `--ranks N` it starts N processes, which say to be on hosts of their own, so that they talk through sockets
also where they share a GPU: natively they compute; through Towline each is to fail at its first collective, and none to hang.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
from typing import Any

import harness

# No rank takes longer, whether it computes or fails.
LIMIT_S = 90
REFUSED = 4


def ranks(count: int) -> int:
    """Runs the ranks; 0 when all have computed, `REFUSED` when all failed at a collective, and 1 otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(count):
            environment = {
                **os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "STORE": os.path.join(folder, "store"),
                "NCCL_HOSTID": f"host-{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1",
            }  # fmt: skip
            command = [sys.executable, os.path.abspath(__file__), "--rounds", "1", "--steps", "3"]
            started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        ends = []
        for process in started:
            try:
                said, errors = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                for other in started:
                    other.kill()
                    other.communicate()
                print(f"a rank hangs: no end within {LIMIT_S} s", file=sys.stderr)
                return 1
            ends.append((process.returncode, said, errors))
    for status, said, errors in ends:
        print(f"rank ended with {status}: {said.strip() or errors.strip()[:1600]}")
    statuses = {status for status, *_ in ends}
    if statuses in ({0}, {harness.SKIPPED}):
        return int(statuses.pop())
    return REFUSED if 0 not in statuses and all("NCCL" in errors for *_, errors in ends) else 1


def main() -> int:
    parser = harness.arguments(__doc__, steps=20)
    parser.add_argument("--ranks", type=int, default=1, help="processes, which talk through sockets")
    options = parser.parse_args()
    if options.ranks > 1:
        return ranks(options.ranks)
    torch = harness.torch_that_repeats()
    distributed: Any = __import__("torch.distributed", fromlist=["init_process_group"])
    parallel: Any = __import__("torch.nn.parallel", fromlist=["DistributedDataParallel"])
    if not distributed.is_nccl_available():
        print("skipped: this PyTorch has no NCCL", file=sys.stderr)
        return harness.SKIPPED
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    with tempfile.TemporaryDirectory() as folder:
        store = os.environ.get("STORE", os.path.join(folder, "store"))
        distributed.init_process_group(
            "nccl", init_method=f"file://{store}", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=LIMIT_S)
        )
        clock = harness.Clock("torch_nccl", options)
        layers = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
        model = parallel.DistributedDataParallel(layers.cuda())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batch = torch.randn(64, 256).cuda()

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            model(batch).square().mean().backward()
            optimizer.step()

        clock.run(step, torch.cuda.synchronize)
        mine = torch.full((1 << 16,), float(rank + 1), device="cuda")
        all_of = [torch.empty_like(mine) for _ in range(size)]
        distributed.all_gather(all_of, mine)
        # An average is a kernel of its own also for one rank.
        mean = mine.clone()
        distributed.all_reduce(mean, op=distributed.ReduceOp.AVG)
        distributed.all_reduce(mine)
        distributed.barrier()
        results = harness.Results()
        for value in (mine, mean, *all_of, *(parameter.detach() for parameter in model.parameters())):
            results.add(value.cpu().numpy())
        total = size * (size + 1) / 2
        assert float(mine[0]) == total and float(mean[-1]) == total / size, "the sum over the ranks is wrong"
        clock.report(results, ranks=size)
        distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
