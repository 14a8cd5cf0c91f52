#!/usr/bin/env python3
"""Moves CUDA sessions between servers while their programs run: whether results stay equal, and how long programs pause.

`moves.sh cuda` calls this. PyTorch and CuPy parts run with the interpreter that PYTHON names.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import suite

PAUSE = re.compile(r"moved to \S+: ([0-9.]+) s until calls paused, and ([0-9.]+) s more")
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
LIMIT_S = 240


class Server:
    def __init__(self, towline: pathlib.Path, gpu: str, over: str, scratch: pathlib.Path) -> None:
        folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        listen = f"shm://{folder}/socket" if over == "shm" else "127.0.0.1:0"
        ready, self.log = folder / "ready", folder / "log"
        command = [str(towline), "serve", "--backend", "off", "--ready-file", str(ready), "--listen", listen]
        with self.log.open("w") as log:
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not (ready.exists() and ready.read_text().strip()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"a server did not start: {self.log.read_text()}")
            time.sleep(0.05)
        self.address = ready.read_text().split()[0]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


class Moves:
    def __init__(self, folder: pathlib.Path, gpus: tuple[str, str], scratch: pathlib.Path) -> None:
        self.towline, self.folder, self.gpus, self.scratch = folder / "towline", folder, gpus, scratch
        self.python = os.environ.get("PYTHON", "python3")
        # Output of training natively.
        self.natively: dict[str, list[str]] = {}

    @contextlib.contextmanager
    def servers(self, over: str) -> Iterator[list[Server]]:
        pair = [Server(self.towline, gpu, over, self.scratch) for gpu in self.gpus]
        try:
            yield pair
        finally:
            for server in pair:
                server.end()

    def start(self, server: Server | None, command: list[str], name: str) -> subprocess.Popen[str]:
        """Starts a program through a server, or natively; its output goes to a file, its errors to another."""
        before = [str(self.towline), "run", "--server", server.address, "--"] if server else []
        output = (self.scratch / name).open("w+")
        errors = (self.scratch / f"{name}.errors").open("w+")
        environment = {
            **os.environ,
            "TOWLINE_LOG": "warn,towline_client=info",
            "CUDA_VISIBLE_DEVICES": "0" if server else self.gpus[0],
        }
        return subprocess.Popen(
            [*before, *command], env=environment, stdin=subprocess.PIPE, stdout=output, stderr=errors, text=True
        )

    def output(self, name: str) -> tuple[str, str]:
        return (self.scratch / name).read_text(), (self.scratch / f"{name}.errors").read_text()

    def sessions(self, server: Server) -> list[int]:
        command = [str(self.towline), "status", "--json", "--server", server.address]
        status = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return [session["id"] for session in status[0]["sessions"]]

    def move(self, here: Server, there: Server) -> str:
        """Moves the only session; the reason, if it stays."""
        found = self.sessions(here)
        if len(found) != 1:
            return f"{len(found)} sessions"
        command = [str(self.towline), "migrate", str(found[0]), "--to", there.address, "--server", here.address]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S)
        return "" if done.returncode == 0 else done.stderr.strip()

    def moved(self, name: str, command: list[str], over: str, turns: int, between: float, says: str) -> dict[str, Any]:
        """Runs a program and moves it to and fro while it runs."""
        with self.servers(over) as pair:
            program = self.start(pair[0], command, name)
            deadline = time.monotonic() + LIMIT_S
            while says not in self.output(name)[0] and program.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            at, refusals, done = 0, [], 0
            for _ in range(turns):
                time.sleep(between)
                if program.poll() is not None:
                    break
                refused = self.move(pair[at], pair[1 - at])
                if refused:
                    refusals.append(refused)
                else:
                    at, done = 1 - at, done + 1
            with contextlib.suppress(BrokenPipeError):
                program.communicate("go on\n", timeout=LIMIT_S)
            output, errors = self.output(name)
            pauses = [float(match[2]) for match in PAUSE.finditer(errors)]
            row = {"name": name, "over": over, "moves": done, "status": program.returncode, "pause_s": pauses}
            if refusals:
                row["refusals"] = refusals
            if program.returncode != 0:
                print(errors[-3000:], [server.log.read_text()[-1500:] for server in pair], flush=True)
            median = statistics.median(pauses) if pauses else float("nan")
            print(
                f"{name:24} {over:4} {done} of {turns} moves, status {program.returncode}, pause {median:.3f} s {pauses} {refusals[:2]}",
                flush=True,
            )
            return row | {"output": output}

    def train(self, over: str, turns: int, options: list[str]) -> dict[str, Any]:
        """Trains until it has been moved, and compares the losses with a native run of as many steps."""
        command = [self.python, str(PROGRAMS / "train_moved.py")]
        name = "train" + "".join(options)
        row = self.moved(f"{name}-{over}", [*command, "0", *options], over, turns, 0.3, "5 ")
        losses = row.pop("output").splitlines()
        known = self.natively.get(name, [])
        if len(known) < len(losses):
            native = self.start(None, [*command, str(len(losses)), *options], f"{name}-native")
            native.communicate(timeout=LIMIT_S)
            known = self.natively[name] = self.output(f"{name}-native")[0].splitlines()
        same = losses == known[: len(losses)]
        print(f"{name} {over}: losses of {len(losses)} steps {'equal' if same else 'DIFFER'}", flush=True)
        return row | {"steps": len(losses), "equal": same}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--gpus", default="0,1", help="the GPU of either server; twice the same for one GPU")
    parser.add_argument("--megabytes", default="0,64,1024")
    parser.add_argument("--parts", default="steady,kinds,train,graph,resnet")
    parser.add_argument("--over", default="tcp,shm")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    first, second = options.gpus.split(",")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        moves = Moves(options.folder, (first, second), pathlib.Path(scratch))
        parts = options.parts.split(",")
        for over in options.over.split(","):
            for megabytes in filter(None, options.megabytes.split(",") if "steady" in parts else ()):
                command = [str(options.folder / "cuda_steady"), megabytes]
                row = moves.moved(f"steady-{megabytes}MiB", command, over, options.turns, 0.2, "computing")
                rows.append(row | {"megabytes": int(megabytes)})
            if "kinds" in parts:
                command = [moves.python, str(PROGRAMS / "kinds_moved.py"), str(2 + options.turns)]
                rows.append(moves.moved("kinds", command, over, options.turns, 0.3, "computing"))
            for part, more in (("train", []), ("graph", ["--graph"]), ("resnet", ["--resnet"])):
                if part in parts:
                    rows.append(moves.train(over, options.turns, more))
    for row in rows:
        row.pop("output", None)
    result = {"schema": 1, "kind": "cuda-moves", "machine": suite.machine(), "gpus": options.gpus, "moves": rows}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(row["status"] == 0 and row.get("equal", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
