#!/usr/bin/env python3
"""Sessions with more device memory together than there is (`serve --swap`): are results right, and what does it cost?

    swap.py FOLDER [--room GIB] [--out FILE]     # FOLDER has towline and its libraries

A native program takes all memory of the GPU but for `--room`, so that the host's memory is enough. It needs PyTorch.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import suite

HERE = pathlib.Path(__file__).resolve().parent
SAID = re.compile(r"steps (\d+) seconds ([0-9.]+) longest ([0-9.]+) digest (\w+)")
SWAPPED = re.compile(r"session (\d+): swapped out for session (\d+) in ([0-9.]+)(s|ms|µs): (\d+) bytes")
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
FILL = """
import sys, torch
full = torch.empty(int(float(sys.argv[1]) * 2**30), dtype=torch.uint8, device="cuda")
print("full", flush=True)
sys.stdin.read()
"""
LIMIT_S = 200


class Program:
    """A program on the server, or beside it."""

    def __init__(self, prefix: list[str], *arguments: str) -> None:
        command = [*prefix, sys.executable, str(HERE / "programs" / "swapped.py"), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self) -> dict[str, Any]:
        said = self.line()
        self.process.wait(LIMIT_S)
        found = SAID.fullmatch(said)
        if not found:
            return {"failed": f"exit status {self.process.returncode}, last word {said!r}"}
        steps, seconds, longest, digest = found.groups()
        return {"steps": int(steps), "seconds": float(seconds), "longest_s": float(longest), "digest": digest}


class Server:
    def __init__(self, folder: pathlib.Path, scratch: pathlib.Path, swap: str) -> None:
        self.towline, self.log = str(folder / "towline"), scratch / "server.log"
        address = f"shm://{scratch}/socket"
        command = [self.towline, "serve", "--cuda", "auto", "--listen", address, "--swap", swap]
        self.process = subprocess.Popen(command, stderr=self.log.open("w"), stdout=subprocess.DEVNULL)
        self.prefix = [self.towline, "run", "--server", address, "--"]
        self.address = address
        for _ in range(100):
            if (scratch / "socket").exists():
                return
            time.sleep(0.1)
        sys.exit(f"the server does not start:\n{self.log.read_text()[-2000:]}")

    def swaps(self) -> list[dict[str, Any]]:
        """Every session that gave way: for which one, in how long, and how many bytes."""
        swaps = []
        for session, asker, number, unit, size in SWAPPED.findall(self.log.read_text()):
            seconds = float(number) * UNITS[unit]
            swaps.append({"session": int(session), "for": int(asker), "seconds": seconds, "bytes": int(size)})
        return swaps

    def status(self) -> list[dict[str, Any]]:
        command = [self.towline, "status", "--json", "--server", self.address]
        told = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return json.loads(told.stdout)[0]["sessions"]

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def summary(swaps: list[dict[str, Any]]) -> str:
    if not swaps:
        return "no swap"
    rates = sorted(swap["bytes"] / swap["seconds"] / 1e9 for swap in swaps)
    return f"{len(swaps)} swaps, median {rates[len(rates) // 2]:.1f} GB/s out"


def measure(server: Server, size: list[str], steps: int) -> dict[str, Any]:
    whole, short = [*size, "--steps", str(steps)], [*size, "--steps", str(steps // 10)]
    results: dict[str, Any] = {"native": Program([], *whole).result()}
    results["alone"] = Program(server.prefix, *whole).result()
    # Busy ones take turns.
    both = [Program(server.prefix, *whole) for _ in range(2)]
    results["together"] = [one.result() for one in both]
    results["together_swaps"] = server.swaps()
    # One that has nothing to do goes at once, and is back when it has.
    idle = Program(server.prefix, *whole, "--wait")
    idle.line()
    results["beside_idle"] = Program(server.prefix, *short).result()
    told = ("id", "device_memory_bytes", "swapped_bytes")
    results["idle_state"] = [{key: session[key] for key in told} for session in server.status()]
    idle.go()
    results["idle_after"] = idle.result()
    # One that is killed while it is out leaves nothing.
    lost = Program(server.prefix, *whole, "--wait")
    lost.line()
    results["beside_lost"] = Program(server.prefix, *short).result()
    lost.process.kill()
    lost.process.wait()
    time.sleep(2)
    results["left_after_kill"] = server.status()
    three = [Program(server.prefix, *short) for _ in range(3)]
    results["three"] = [one.result() for one in three]
    results["swaps"] = server.swaps()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--room", type=float, default=36, help="GiB that are left to the programs")
    parser.add_argument("--steps", type=int, default=6000, help="how many steps a program works")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    free = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()[0]
    part = options.room * 0.6
    command = [sys.executable, "-c", FILL, str(float(free) / 1024 - options.room)]
    filler = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert filler.stdout and filler.stdin
    filler.stdout.readline()
    results: dict[str, Any] = {"schema": 1, "kind": "swap", "machine": suite.machine(), "over": "shm"}
    results |= {"room_gib": options.room, "program_gib": part}
    with tempfile.TemporaryDirectory() as scratch:
        server = Server(options.folder, pathlib.Path(scratch), f"{int(options.room * 2)}G")
        try:
            results |= measure(server, ["--gib", f"{part:.2f}"], options.steps)
        finally:
            server.end()
            log = server.log.read_text().splitlines()
            print("\n".join([line for line in log if " WARN" in line or " ERROR" in line][:10]))
            filler.stdin.close()
            filler.wait(30)
    print("together:", summary(results["together_swaps"]))
    print("all:", summary(results["swaps"]))
    for key, value in results.items():
        if key not in ("swaps", "together_swaps"):
            print(f"{key}: {value}")
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    whole = (results["native"], results["alone"], results["idle_after"], *results["together"])
    short = (results["beside_idle"], results["beside_lost"], *results["three"])
    if any(len({one.get("digest") for one in same}) != 1 for same in (whole, short)):
        sys.exit("results differ")


if __name__ == "__main__":
    main()
