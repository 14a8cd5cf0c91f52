#!/usr/bin/env python3
"""Moves OpenCL sessions between servers while their programs run, and measures: how long programs pause, by what they hold and by the way that
it takes, and what two programs on one GPU gain when one of them leaves for another GPU.

`moves.sh run` calls this. It needs nothing but Python's standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import IO, Any

import suite

PAUSE = re.compile(r"moved to \S+: ([0-9.]+) s until calls paused, and ([0-9.]+) s more")
LIMIT_S = 120


class Server:
    """A server of its own, with these GPUs."""

    def __init__(self, towline: pathlib.Path, gpu: str, scratch: pathlib.Path, options: list[str]) -> None:
        ready = pathlib.Path(tempfile.mkdtemp(dir=scratch)) / "ready"
        self.log = ready.with_name("log")
        listen = [] if "--listen" in options else ["--listen", "127.0.0.1:0"]
        command = [str(towline), "serve", "--cuda", "off", "--ready-file", str(ready), *listen, *options]
        # NVIDIA's devices alone: programs take the first.
        vendors = scratch / "vendors"
        vendors.mkdir(exist_ok=True)
        (vendors / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
        environment = {**os.environ, "OCL_ICD_VENDORS": str(vendors), "CUDA_VISIBLE_DEVICES": gpu}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not (ready.exists() and ready.read_text().strip()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"a server did not start: {self.log.read_text()}")
            time.sleep(0.05)
        self.address = ready.read_text().split()[0]
        told = [str(towline), "devices", "--json", "--server", self.address]
        devices = json.loads(subprocess.run(told, check=True, capture_output=True, text=True).stdout)
        if len(devices) != 1:
            sys.exit(f"CUDA_VISIBLE_DEVICES={gpu} leaves {devices}, and not one device")

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


class Moves:
    def __init__(self, folder: pathlib.Path, gpus: tuple[str, str], scratch: pathlib.Path) -> None:
        self.folder, self.gpus, self.scratch = folder, gpus, scratch

    @contextlib.contextmanager
    def servers(self, first: str, options: tuple[list[str], list[str]] = ([], [])) -> Iterator[tuple[Server, Server]]:
        """The servers of the GPU `first` and of the second one."""
        pair = [
            Server(self.folder / "towline", gpu, self.scratch, more)
            for gpu, more in zip((first, self.gpus[1]), options, strict=True)
        ]
        try:
            yield pair[0], pair[1]
        finally:
            for server in pair:
                server.end()

    def start(self, server: Server, program: str, *arguments: str) -> subprocess.Popen[str]:
        command = [
            str(self.folder / "towline"),
            "run",
            "--server",
            server.address,
            "--",
            str(self.folder / program),
            *arguments,
        ]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env={**os.environ, "TOWLINE_LOG": "info"}, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def sessions(self, server: Server) -> list[int]:
        command = [str(self.folder / "towline"), "status", "--json", "--server", server.address]
        status = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return [session["id"] for session in status[0]["sessions"]]

    def move(self, here: Server, there: Server, session: int) -> float:
        """Moves a session; gives how long the command took."""
        began = time.monotonic()
        command = [
            str(self.folder / "towline"),
            "migrate",
            str(session),
            "--to",
            there.address,
            "--server",
            here.address,
        ]
        subprocess.run(command, check=True, timeout=LIMIT_S)
        return time.monotonic() - began

    def pauses(self, megabytes: int, options: tuple[list[str], list[str]], turns: int) -> list[float]:
        """Moves a program that holds so many MiB to and fro; gives how long its calls paused each time."""
        with self.servers(self.gpus[0], options) as pair:
            program = self.start(pair[0], "holds", str(megabytes))
            wait_for(program.stdout, "holds")
            for turn in range(turns):
                here, there = pair[turn % 2], pair[(turn + 1) % 2]
                self.move(here, there, self.sessions(here)[0])
            output, errors = program.communicate("go on\n" * 8, timeout=LIMIT_S)
            if program.returncode != 0 or "right" not in output:
                sys.exit(f"holds {megabytes}: {output} {errors}")
            found = [float(match[2]) for match in PAUSE.finditer(errors)]
            assert len(found) == turns, errors
            return found

    def alone_and_together(self, iterations: int) -> dict[str, Any]:
        """A multiplication alone, two of them on one GPU, and two of them of which one leaves soon after its start: ms of a step of each, as
        median, least and most, and when it moved.
        """

        def two(moves: bool) -> list[Any]:
            with self.servers(self.gpus[0]) as (busy, free):
                programs = [self.multiply(busy, iterations) for _ in range(2)]
                if moves:
                    while len(sessions := self.sessions(busy)) < 2:
                        time.sleep(0.01)
                    time.sleep(2)
                    print(f"moved in {self.move(busy, free, sessions[0]):.3f} s", flush=True)
                return [finish(program) for program in programs]

        with self.servers(self.gpus[0]) as (busy, _):
            alone = [finish(self.multiply(busy, iterations))]
        return {"alone_ms": alone, "together_ms": two(False), "one_moves_ms": two(True)}

    def multiply(self, server: Server, iterations: int) -> subprocess.Popen[str]:
        size = ("--size", "4096", "--iterations", str(iterations), "--no-check", "--json")
        return self.start(server, "sgemm", "--platform", "Towline", *size)


def finish(program: subprocess.Popen[str]) -> dict[str, float]:
    output, errors = program.communicate(timeout=LIMIT_S)
    if program.returncode != 0:
        sys.exit(f"sgemm: {errors}")
    return json.loads(output.splitlines()[-1])["total_ms"]


def wait_for(output: IO[str] | None, line: str) -> None:
    assert output is not None
    for said in output:
        if said.strip() == line:
            return
    sys.exit(f"the program ended before it said {line}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--gpus", default="0,1", help="the GPU of either server; twice the same for one GPU")
    parser.add_argument("--megabytes", default="1,64,1024")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    first, second = options.gpus.split(",")
    result: dict[str, Any] = {
        "schema": 1,
        "kind": "moves",
        "machine": suite.machine(),
        "gpus": options.gpus,
        "pauses": [],
    }
    with tempfile.TemporaryDirectory() as scratch:
        moves = Moves(options.folder, (first, second), pathlib.Path(scratch))
        for way in ("client", "peers"):
            ends = ([], []) if way == "client" else peers()
            for megabytes in map(int, filter(None, options.megabytes.split(","))):
                seconds = moves.pauses(megabytes, ends, options.turns)
                row = {"way": way, "megabytes": megabytes, "pause_s": seconds}
                result["pauses"].append(row)
                print(f"{megabytes:6} MiB by {way:7} median {statistics.median(seconds):.3f} s  {seconds}", flush=True)
        if first != second:
            result |= moves.alone_and_together(options.iterations)
            print({key: result[key] for key in ("alone_ms", "together_ms", "one_moves_ms")}, flush=True)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def peers() -> tuple[list[str], list[str]]:
    """Options of two servers that list each other."""
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    here, there = (f"127.0.0.1:{port}" for port in ports)
    return ["--listen", here, "--peer", there], ["--listen", there, "--peer", here]


if __name__ == "__main__":
    sys.exit(main())
