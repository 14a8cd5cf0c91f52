#!/usr/bin/env python3
"""Runs ranks over NCCL on two GPUs, natively and through Towline, and compares results and times.

`collectives.sh run` calls this, with an interpreter that has PyTorch. The ranks are `programs/collectives.py`.

The ways: `native` and `one` (both GPUs are one server's, by TCP; `one-shm` by shared memory); `sockets` (native,
NCCL with its sockets alone) and `two` (a server each, whose workers reach each other by the network).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import suite

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 2
PARTS = ("bus", "graph", "calls", "ddp", "tensor", "fsdp", "lost")
SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
# The way, and what it is compared with.
WAYS = {"native": "native", "one": "native", "one-shm": "native", "sockets": "sockets", "two": "sockets"}


def nccl() -> str:
    """The library that PyTorch brings."""
    where = subprocess.run(
        [sys.executable, "-c", "import nvidia.nccl as it; print(list(it.__path__)[0])"],
        capture_output=True,
        text=True,
        check=True,
    )
    return str(pathlib.Path(where.stdout.strip()) / "lib" / "libnccl.so.2")


@contextlib.contextmanager
def server(options: argparse.Namespace, listen: str, collectives: str, *more: str, **variables: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as scratch:
        ready, log = pathlib.Path(scratch) / "ready", pathlib.Path(scratch) / "log"
        command = [str(options.folder / "towline"), "serve", "--backend", "off", "--insecure", "--no-encryption"]
        command += ["--listen", listen.replace("SCRATCH", scratch), "--ready-file", str(ready)]
        command += ["--collectives", collectives, "--nccl", options.nccl, *more]
        with log.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | variables)
        try:
            deadline = time.monotonic() + 60
            while not (ready.exists() and ready.read_text().strip()):
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"the server did not start: {log.read_text()}")
                time.sleep(0.05)
            yield ready.read_text().split()[0]
        finally:
            process.terminate()
            process.wait()
            for line in log.read_text().splitlines():
                if re.search("ERROR|WARN|panic", line):
                    print(line, file=sys.stderr)


@contextlib.contextmanager
def way(options: argparse.Namespace, name: str) -> Iterator[list[tuple[list[str], dict[str, str]]]]:
    """For each rank what starts it, and its variables."""
    run = [str(options.folder / "towline"), "run", "--no-encryption", "--server"]
    with contextlib.ExitStack() as stack:
        if name in ("native", "sockets"):
            variables = SOCKETS if name == "sockets" else {}
            yield [([], {"DEVICE": str(rank), **variables}) for rank in range(RANKS)]
        elif name == "two":
            servers = [
                stack.enter_context(server(options, "127.0.0.1:0", "network", "--device", str(rank), **SOCKETS))
                for rank in range(RANKS)
            ]
            yield [([*run, address, "--"], {"DEVICE": "0"}) for address in servers]
        else:
            listen = "shm://SCRATCH/socket" if name == "one-shm" else "127.0.0.1:0"
            address = stack.enter_context(server(options, listen, "local"))
            yield [([*run, address, "--"], {"DEVICE": str(rank)}) for rank in range(RANKS)]


def ranks(options: argparse.Namespace, starts: list[tuple[list[str], dict[str, str]]], part: str) -> Any:
    """What rank 0 says of a part; none if any rank failed."""
    common = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "SIZES": options.sizes}
    if part == "lost":
        # PyTorch's own watchdog is to leave it to the call.
        common["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    processes = []
    for rank, (command, variables) in enumerate(starts):
        program = [*command, sys.executable, str(HERE / "programs" / "collectives.py"), part]
        env = os.environ | common | variables | {"RANK": str(rank)}
        processes.append(subprocess.Popen(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = []
    for process in processes:
        try:
            said.append(process.communicate(timeout=options.limit))
        except subprocess.TimeoutExpired:
            process.kill()
            said.append(process.communicate())
    wanted = [0] * (RANKS - 1) + [-signal.SIGKILL if part == "lost" else 0]
    if [process.returncode for process in processes] != wanted:
        for _, errors in said:
            print(errors[-1500:], file=sys.stderr)
        return None
    return json.loads(said[0][0].splitlines()[-1])


def legs(unit: str, name: str, values: dict[str, float]) -> dict[str, Any]:
    ratios = {
        key: {"median": round(value / values[WAYS[key]], 4)} for key, value in values.items() if WAYS[key] in values
    }
    shown = {key: {"median": round(value, 3)} for key, value in values.items()}
    ratios = {key: ratio for key, ratio in ratios.items() if WAYS[key] != key}
    print(f"{name}: { ({key: value['median'] for key, value in shown.items()}) } {unit}", flush=True)
    return {"id": name, "unit": unit, "legs": shown, "ratios": ratios}


def compare(told: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    buses: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for name, parts in told.items():
        for row in parts.get("bus") or []:
            if not row["right"]:
                sys.exit(f"{name}: {row} is wrong")
            buses.setdefault((row["operation"], row["bytes"]), {})[name] = row
    for (operation, size), by_way in buses.items():
        large = size > 1 << 20
        for key, unit in (("bus_gb_s", "GB/s"),) if large else (("us", "us"), ("waited_us", "us")):
            label = f"{operation}, {size} bytes" + (", each waited for" if key == "waited_us" else "")
            yield legs(unit, label, {name: row[key] for name, row in by_way.items()})
    for part in ("ddp", "tensor", "fsdp"):
        trained = {name: parts[part] for name, parts in told.items() if parts.get(part)}
        if not trained:
            continue
        losses = {name: run["losses"] for name, run in trained.items()}
        equal = {name: losses[name] == losses.get(WAYS[name]) for name in losses}
        print(f"{part}: losses equal {equal}")
        yield legs("ms", f"{part}, step", {name: run["ms_per_step"] for name, run in trained.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--sizes", default="8,4096,65536,1048576,16777216,268435456,1073741824")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a part")
    options = parser.parse_args()
    options.nccl = nccl()
    told: dict[str, dict[str, Any]] = {}
    failed = False
    for name in options.ways.split(","):
        with way(options, name) as starts:
            told[name] = {}
            for part in options.parts.split(","):
                if part == "lost" and name in ("native", "sockets"):
                    continue
                begun = time.monotonic()
                told[name][part] = ranks(options, starts, part)
                outcome = "failed" if told[name][part] is None else "done"
                failed = failed or told[name][part] is None
                if part in ("graph", "calls", "lost"):
                    print(f"{name} {part}: {told[name][part]}")
                print(f"{name} {part}: {outcome} in {time.monotonic() - begun:.1f} s", flush=True)
    machine = suite.machine()
    machine["cpu"] = ", ".join(machine["cpu"])
    result = {"schema": 1, "kind": "collectives", "machine": machine, "figures": list(compare(told))}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("TOWLINE_KNOWN_SERVERS", os.devnull)
    sys.exit(main())
