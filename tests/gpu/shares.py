#!/usr/bin/env python3
"""Shares of a GPU's time: what tenants get of it, the waits of a latency-critical one, and what turns cost.

`shares.sh run` calls this. It needs nothing but Python's standard library.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import suite

TIMES = re.compile(r"times (\d+) p50 ([0-9.]+) p99 ([0-9.]+) most ([0-9.]+)")
DONE = re.compile(r"done (\d+) in (\d+)")
TENANTS = ("one", "other")


class Program:
    """`cuda_counts` of a tenant, which works from now on."""

    def __init__(self, here: Server, tenant: str, *arguments: str) -> None:
        command = [str(here.folder / "towline"), "run", "--server", here.address, "--tenant", tenant]
        command += ["--token-file", str(here.scratch / tenant), "--", str(here.folder / "cuda_counts"), *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout
        if self.process.stdout.readline() != "busy\n":
            sys.exit(f"{arguments} does not begin")

    def say(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def hear(self, pattern: re.Pattern[str]) -> tuple[float, ...]:
        assert self.process.stdout
        said = self.process.stdout.readline()
        self.process.wait()
        found = pattern.fullmatch(said.strip()) or sys.exit(f"a program said {said!r}")
        return tuple(map(float, found.groups()))


class Server:
    def __init__(self, folder: pathlib.Path, driver: str, scratch: pathlib.Path, limits: dict[str, list[str]]) -> None:
        self.folder, self.scratch = folder, scratch
        self.tenants = str(scratch / "tenants.toml")
        for name in (*TENANTS, "operators"):
            rights = ["--admin"] if name == "operators" else limits.get(name, [])
            self.tenant("add", name, "--token-out", str(scratch / name), *rights)
        ready = scratch / "ready"
        command = [
            str(folder / "towline"),
            "serve",
            "--backend",
            "off",
            "--cuda",
            driver,
            "--tenants-file",
            self.tenants,
        ]
        command += ["--listen", "127.0.0.1:0", "--ready-file", str(ready), "--no-encryption"]
        with (scratch / "log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not (ready.exists() and ready.read_text().strip()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the server did not start: {(scratch / 'log').read_text()}")
            time.sleep(0.05)
        self.address = ready.read_text().split()[0]

    def tenant(self, *arguments: str) -> None:
        subprocess.run([str(self.folder / "towline"), "tenant", "--tenants-file", self.tenants, *arguments], check=True)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


@contextlib.contextmanager
def server(options: argparse.Namespace, **limits: list[str]) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as scratch:
        here = Server(options.folder, options.cuda, pathlib.Path(scratch), limits)
        try:
            yield here
        finally:
            here.end()


def window(programs: list[Program], seconds: float) -> list[float]:
    """Kernels a second of each, in the same time."""
    for program in programs:
        program.say()
    time.sleep(seconds)
    for program in programs:
        program.say()
    rates = []
    for program in programs:
        done, us = program.hear(DONE)
        rates.append(done / us * 1e6)
    return rates


def busy(here: Server, tenant: str, kernel: str, options: argparse.Namespace) -> Program:
    rounds, batch = {"short": (options.rounds, 500), "long": (options.rounds * 1000, 2)}[kernel]
    return Program(here, tenant, "busy", str(rounds), str(batch))


def figure(name: str, unit: str, legs: dict[str, float], ratios: dict[str, float] | None = None) -> dict[str, Any]:
    shown = {key: round(value, 3) for key, value in legs.items()}
    print(f"{name}: {shown} {unit} {ratios or ''}", flush=True)
    single = {key: {"median": value} for key, value in shown.items()}
    of = {key: {"median": round(value, 4)} for key, value in (ratios or {}).items()}
    return {"id": name, "unit": unit, "legs": single, "ratios": of}


def shares(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """By time: what each does in a second, over what it does in one alone."""
    alone = {}
    with server(options, one=["--share", "70"], other=["--share", "30"]) as here:
        for kernel in ("short", "long"):
            alone[kernel] = window([busy(here, "one", kernel, options)], options.seconds / 2)[0]
            yield figure(f"alone, {kernel} kernels", "1/s", {"rate": alone[kernel]})
        for kernels in (("short", "short"), ("long", "long"), ("short", "long")):
            for _ in range(options.windows):
                pair = [busy(here, tenant, kernel, options) for tenant, kernel in zip(TENANTS, kernels, strict=True)]
                rates = window(pair, options.seconds)
                parts = [rate / alone[kernel] for rate, kernel in zip(rates, kernels, strict=True)]
                legs = {
                    "70": parts[0] / sum(parts) * 100,
                    "30": parts[1] / sum(parts) * 100,
                    "of both alone": sum(parts) * 100,
                }
                yield figure(f"shares, {' and '.join(kernels)} kernels", "%", legs)
        idle = Program(here, "other", "latency", "10", "900000")
        rate = window([busy(here, "one", "short", options)], options.seconds / 2)[0]
        idle.say()
        idle.hear(TIMES)
        yield figure("beside an idle one, short kernels", "1/s", {"rate": rate}, {"of alone": rate / alone["short"]})
    with server(options) as here:
        for kernel in ("short", "long"):
            rates = window([busy(here, tenant, kernel, options) for tenant in TENANTS], options.seconds / 2)
            parts = [rate / alone[kernel] * 100 for rate in rates]
            legs = {"one": parts[0], "other": parts[1], "of both alone": sum(parts)}
            yield figure(f"without shares, {kernel} kernels", "%", legs)


def latency(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    def times(here: Server, seconds: float) -> dict[str, float]:
        program = Program(here, "one", "latency", str(options.rounds), "2000")
        time.sleep(seconds)
        program.say()
        count, *parts = program.hear(TIMES)
        return {"count": count, **dict(zip(("p50", "p99", "most"), parts, strict=True))}

    first = ["--share", "50", "--priority", "latency-critical"]
    for name, limits in (
        ("without shares", {}),
        ("latency-critical and best-effort", {"one": first, "other": ["--share", "50", "--priority", "best-effort"]}),
        ("shares of 50", {"one": ["--share", "50"], "other": ["--share", "50"]}),
    ):
        with server(options, **limits) as here:
            yield figure(f"launch and wait alone, {name}", "us", times(here, options.seconds / 4))
            for kernel in ("short", "long"):
                other = busy(here, "other", kernel, options)
                with concurrent.futures.ThreadPoolExecutor() as threads:
                    counting = threads.submit(window, [other], options.seconds / 2)
                    legs = times(here, options.seconds / 2 - 0.5)
                    rates = counting.result()
                yield figure(f"launch and wait beside {kernel} kernels, {name}", "us", legs)
                yield figure(f"{kernel} kernels beside launches and waits, {name}", "1/s", {"rate": rates[0]})


def issue(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What a launch costs a lone session, in turns."""
    legs: dict[str, list[float]] = {"without shares": [], "with a share": []}
    for _ in range(5):
        for name, limits in zip(legs, ({}, {"one": ["--share", "50"]}), strict=True):
            with server(options, **limits) as here:
                program = Program(here, "one", "issue", "1", "500")
                time.sleep(options.seconds / 12)
                program.say()
                legs[name].append(program.hear(TIMES)[1])
    medians = {name: sorted(times)[2] for name, times in legs.items()}
    yield figure(
        "issue of a launch, alone", "us", medians, {"with a share": medians["with a share"] / medians["without shares"]}
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--cuda", default="auto", help="as of `towline serve`")
    parser.add_argument("--rounds", type=int, default=1000, help="of a short kernel's loop")
    parser.add_argument("--seconds", type=float, default=10, help="of a window")
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--only", default="shares,latency,issue")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    parts = {"shares": shares, "latency": latency, "issue": issue}
    machine = suite.machine()
    machine["cpu"] = ", ".join(machine["cpu"])
    result: dict[str, Any] = {"schema": 1, "kind": "shares", "machine": machine, "figures": []}
    for name in options.only.split(","):
        for one in parts[name](options):
            result["figures"].append(one)
            if options.json:
                options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TOWLINE_KNOWN_SERVERS", os.devnull)
    sys.exit(main())
