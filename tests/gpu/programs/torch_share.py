"""PyTorch tensors on a device go to another process and back (`torch.multiprocessing`), ordered by its own events and by ours.

Three exchanges: a queue of tensors that the other process changes in place; an event that this process records behind long work and
the other one's stream waits for; and one that the other records and this one waits for.
"""

from __future__ import annotations

import sys
from typing import Any

import harness

SIZE = 1 << 20
SLOW = 40


def slow_work(torch: Any, operand: Any) -> None:
    """Some tens of milliseconds on the current stream."""
    for _ in range(SLOW):
        torch.matmul(operand, operand)


def other(queue: Any, answers: Any, count: int) -> None:
    """The other process."""
    torch = harness.torch_that_repeats()
    try:
        for _ in range(count):
            tensor = queue.get()
            tensor.add_(1)
            torch.cuda.synchronize()
            answers.put(float(tensor.double().sum()))
            del tensor
        shared, handle = queue.get()
        device = torch.device("cuda", 0)
        # Stands behind the first process's slow work, by the event alone: nobody synchronises in between.
        recorded = torch.cuda.Event.from_ipc_handle(device, handle)
        torch.cuda.current_stream().wait_event(recorded)
        answers.put(float(shared.double().sum()))
        operand = torch.randn(4096, 4096, device=device)
        ours = torch.cuda.Event(interprocess=True)
        torch.cuda.synchronize()
        slow_work(torch, operand)
        shared.fill_(3)
        ours.record()
        answers.put(bytes(ours.ipc_handle()))
        # Until the first process is done with the event.
        queue.get()
        answers.put("done")
    except Exception as error:  # the first process tells of it
        answers.put(f"failed: {error!r}")
        raise


def main() -> None:
    options = harness.arguments(__doc__, steps=20, rounds=1).parse_args()
    torch = harness.torch_that_repeats()
    multiprocessing = __import__("torch.multiprocessing", fromlist=["get_context"]).get_context("spawn")
    clock = harness.Clock("torch_share", options)
    queue, answers = multiprocessing.Queue(), multiprocessing.Queue()
    child = multiprocessing.Process(target=other, args=(queue, answers, options.steps + 3), daemon=True)
    child.start()
    results = harness.Results()

    def answer() -> Any:
        told = answers.get(timeout=90)
        if isinstance(told, str) and told.startswith("failed"):
            print(told, file=sys.stderr)
            sys.exit(1)
        return told

    def step() -> None:
        tensor = torch.arange(SIZE, dtype=torch.float32, device="cuda")
        queue.put(tensor)
        assert answer() == SIZE * (SIZE - 1) / 2 + SIZE, "the other process computed on other values"
        assert float(tensor[-1]) == SIZE, "what the other process wrote is not there"

    clock.run(step, torch.cuda.synchronize)

    operand = torch.randn(4096, 4096, device="cuda")
    shared = torch.zeros(SIZE, device="cuda")
    event = torch.cuda.Event(interprocess=True)
    torch.cuda.synchronize()
    slow_work(torch, operand)
    shared.fill_(2)
    event.record()
    queue.put((shared, bytes(event.ipc_handle())))
    seen = answer()
    assert seen == 2 * SIZE, f"the other process did not wait for the event: {seen}"
    theirs = torch.cuda.Event.from_ipc_handle(torch.device("cuda", 0), answer())
    torch.cuda.current_stream().wait_event(theirs)
    back = float(shared.double().sum())
    assert back == 3 * SIZE, f"this process did not wait for the other's event: {back}"
    queue.put("go")
    assert answer() == "done"
    child.join(30)
    results.add(torch.tensor([seen, back]).numpy())
    clock.report(results, seen=seen, back=back, status=child.exitcode, torch=torch.__version__)


if __name__ == "__main__":
    main()
