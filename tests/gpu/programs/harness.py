"""What the programs beside this file share: timing, the hash of results, and the line of JSON that each ends with.

A program knows nothing of Towline. It ends with status 77 when a library that it needs is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

SKIPPED = 77

# Its threads go on looking for work for a while after NumPy's last product, on every core, and would be measured too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def stat(field: int) -> int:
    """What the kernel says of this process, by the numbers of proc(5) from the state on, which is 0."""
    with open("/proc/self/stat", encoding="ascii") as file:
        return int(file.read().rpartition(")")[2].split()[field])


def core() -> int:
    """The processor that the main thread was on last."""
    return stat(36)


def since_start() -> float:
    """Seconds since this process was made, as the kernel counts them."""
    ticks = stat(19)
    with open("/proc/uptime", encoding="ascii") as file:
        uptime = float(file.read().split()[0])
    return uptime - ticks / os.sysconf("SC_CLK_TCK")


def reference_ms() -> float:
    """What a fixed piece of the interpreter's work takes here and now.

    A virtual processor that shares its core with a neighbour's takes up to twice as long for seconds on end, and nothing inside the
    machine tells: no time that was stolen, no second thread of a core. This does.
    """

    def once() -> float:
        start = time.perf_counter()
        kept: dict[int, tuple[int, int]] = {}
        total = 0
        for number in range(8000):
            kept[number & 1023] = (number, total)
            total += len(kept) & number
        return (time.perf_counter() - start) * 1e3

    return statistics.median(once() for _ in range(3))


def need(module: str) -> Any:
    """Imports a module, or ends the program as skipped."""
    try:
        return __import__(module)
    except ImportError as error:
        print(f"skipped: {error}", file=sys.stderr)
        sys.exit(SKIPPED)


def arguments(description: str, steps: int, rounds: int = 5) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps, help="steps that are timed together (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="how often that is done (default: %(default)s)")
    return parser


class Results:
    """Collects what a program computed. Only bytes and the kind of element count, so equal hashes mean equal bits."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, array: Any) -> None:
        """Takes a numpy array, or what can become one."""
        import numpy

        plain = numpy.ascontiguousarray(numpy.asarray(array))
        self._hash.update(f"{plain.dtype}{plain.shape}".encode())
        self._hash.update(plain.tobytes())

    def digest(self) -> str:
        return self._hash.hexdigest()[:16]


class Clock:
    """Times a program's steps."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name = name
        self.options = options
        self.first_result_s: float | None = None
        self.facts: dict[str, Any] = {}

    def first_result(self) -> None:
        """To be called when the first value has come back from the device."""
        if self.first_result_s is None:
            self.first_result_s = since_start()

    def run(self, step: Callable[[], object], wait: Callable[[], object], warm_up: int = 3) -> None:
        """Times `steps` calls of `step` and one `wait` after them, `rounds` times."""
        for _ in range(warm_up):
            step()
        wait()
        self.first_result()
        rounds: dict[str, list[float]] = {"ms": [], "thread_ms": [], "core": [], "reference_ms": []}
        user = system = 0.0
        reference = reference_ms()
        for _ in range(self.options.rounds):
            before = resource.getrusage(resource.RUSAGE_SELF)
            start, thread = time.perf_counter(), time.thread_time()
            for _ in range(self.options.steps):
                step()
            wait()
            rounds["ms"].append((time.perf_counter() - start) * 1e3 / self.options.steps)
            rounds["thread_ms"].append((time.thread_time() - thread) * 1e3 / self.options.steps)
            after = resource.getrusage(resource.RUSAGE_SELF)
            user += after.ru_utime - before.ru_utime
            system += after.ru_stime - before.ru_stime
            rounds["core"].append(core())
            earlier, reference = reference, reference_ms()
            rounds["reference_ms"].append(max(earlier, reference))
        times = rounds["ms"]
        self.facts["ms_per_step"] = {
            "median": statistics.median(times),
            "min": min(times),
            "max": max(times),
        }
        # Each round's, with what this thread had of a processor, where it was at the end, and how slow the processor was around it.
        self.facts["of_rounds"] = rounds
        count = self.options.rounds * self.options.steps
        self.facts["cpu_ms_per_step"] = {"user": user * 1e3 / count, "system": system * 1e3 / count}

    def report(self, results: Results, **facts: Any) -> None:
        line = {
            "program": self.name,
            "steps": self.options.steps,
            "rounds": self.options.rounds,
            "first_result_s": self.first_result_s,
            **self.facts,
            **facts,
            "digest": results.digest(),
        }
        print(json.dumps(line), flush=True)


def torch_that_repeats() -> Any:
    """PyTorch, told to compute the same bits every time. To be called before anything else imports it."""
    # cuBLAS reads this when it is first used; without it the order of its sums may change.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch = need("torch")
    if not torch.cuda.is_available():
        print("PyTorch finds no CUDA device", file=sys.stderr)
        sys.exit(3)
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch
