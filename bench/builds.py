#!/usr/bin/env python3
"""Measures how long OpenCL programs take to build that an earlier process has built: natively, and through Towline.

    bench/builds.py [--rounds N] [--json FILE] [--note TEXT]

Legs take turns, one process each: the vendor's library with its own cache (`native`), and sessions of one tenant over shared
memory (`shm`) and TCP (`remote`). The first process of each leg compiles and counts as `first`; the median of the others is held against
the native one plus 10 ms. `uncached` is a server that keeps nothing (`--kernel-cache 0`).

TOWLINE_BIN_DIR names the folder of the binaries (default: target/release). Leaves no process behind.
"""

import argparse
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Functions of each, and whether it is built from what the first process got as its binary.
PROGRAMS = {"small": (1, False), "2000-lines": (100, False), "binary": (2, True)}
# Figures that are held against the native leg, and others that are only told.
PARTS = {"setup": False, "build": True, "launch": True}
NATIVE = "Portable Computing Language"
ALLOWED_MS = 10
LIMIT_S = 300


def machine() -> dict:
    """The machine, as in the other results."""

    def field(path: str, name: str) -> str:
        for line in Path(path).read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
        return "unknown"

    return {
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(field("/proc/meminfo", "MemTotal").split()[0]) * 1024,
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "gpus": [],
    }


class Server:
    """A `towline serve` with a token, until `stop`."""

    def __init__(self, towline: Path, work: Path, listen: str, *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=work))
        self.folder.chmod(0o755)
        token = self.folder / "token"
        token.write_text("%032x\n" % random.getrandbits(128))
        token.chmod(0o600)
        ready = self.folder / "ready"
        listen = listen.replace("FOLDER", str(self.folder))
        command = [towline, "serve", "--listen", listen, "--token-file", token, "--ready-file", ready, "--cuda", "off"]
        command += ["--kernel-cache-folder", self.folder / "kernels", *options]
        self.log = (self.folder / "log").open("w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        while not ready.exists():
            if self.process.poll() is not None:
                sys.exit((self.folder / "log").read_text())
            time.sleep(0.05)
        self.run = [towline, "run", "--server", ready.read_text().strip(), "--token-file", token, "--"]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def measure(command: list, environment: dict) -> dict:
    """Milliseconds of a process, by part."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    words = done.stdout.split()
    if done.returncode != 0 or words[-1:] != ["right"]:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")
    times = dict(zip(words[:-1:2], map(float, words[1::2])))
    # A worker gets ready for the next session.
    time.sleep(0.5)
    return times


def summary(values: list) -> dict:
    rounded = [round(value, 3) for value in values]
    return {"median": round(statistics.median(rounded), 3), "min": min(rounded), "max": max(rounded), "n": len(rounded)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="processes of each leg and program that count")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--note", action="append", default=[], help="what else is to be known of the run")
    options = parser.parse_args()
    default = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    towline = Path(os.environ.get("TOWLINE_BIN_DIR", default)).resolve() / "towline"
    if not towline.exists():
        sys.exit(f"{towline} is not built: cargo build --release -p towline-cli -p towline-opencl")
    started = time.time()
    # One run's programs are nobody's yet.
    salt = random.randrange(1_000_000)
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        work.chmod(0o755)
        program = work / "builds"
        compiler = [os.environ.get("CC", "cc"), "-O1", "-DCL_TARGET_OPENCL_VERSION=120", "-o", program]
        subprocess.run([*compiler, ROOT / "bench/builds.c", "-lOpenCL"], check=True)
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("TOWLINE_", "OCL_", "POCL_"))}
        servers = {
            "shm": Server(towline, work, "shm://FOLDER/socket"),
            "remote": Server(towline, work, "127.0.0.1:0"),
            "uncached": Server(towline, work, "127.0.0.1:0", "--kernel-cache", "0"),
        }
        legs = {"native": ([program, NATIVE], {**plain, "POCL_CACHE_DIR": str(work / "native")})}
        legs |= {name: ([*server.run, program, "Towline"], plain) for name, server in servers.items()}
        (work / "native").mkdir()
        try:
            for name, (functions, from_binary) in PROGRAMS.items():
                firsts: dict = {}
                times: dict = {leg: [] for leg in legs}
                for round_number in range(options.rounds + 1):
                    for leg, (prefix, environment) in legs.items():
                        # It compiles each time: a few are enough.
                        if leg == "uncached" and round_number > 3:
                            continue
                        binary = [work / f"{leg}.binary"] if from_binary else []
                        one = measure([*prefix, str(functions), str(salt), *binary], environment)
                        if round_number == 0:
                            firsts[leg] = one
                        else:
                            times[leg].append(one)
                for part, has_bar in PARTS.items():
                    by_leg = {leg: [one[part] for one in several] for leg, several in times.items()}
                    native = statistics.median(by_leg["native"])
                    limit = native + ALLOWED_MS
                    bars = [
                        {"promise": f"native + {ALLOWED_MS} ms", "leg": leg, "value": median, "limit": round(limit, 3), "pass": median <= limit}
                        for leg in ("shm", "remote")
                        if has_bar
                        for median in [round(statistics.median(by_leg[leg]), 3)]
                    ]
                    legs_told = {leg: summary(values) for leg, values in by_leg.items()}
                    for leg, first in firsts.items():
                        legs_told[leg]["first"] = first[part]
                    paired = {leg: [a / b for a, b in zip(values, by_leg["native"])] for leg, values in by_leg.items()}
                    figures.append(
                        {
                            "id": f"rebuild.{name}.{part}",
                            "section": "Programs that an earlier process has built",
                            "title": f"{name}: {part}",
                            "unit": "ms",
                            "legs": legs_told,
                            "ratios": {leg: summary(values) for leg, values in paired.items() if leg != "native"},
                            "bars": bars,
                        }
                    )
                    for leg, told in legs_told.items():
                        print(f"{name:<11} {part:<7} {leg:<9} {told['median']:9.2f} ms  ({told['min']:.2f} to {told['max']:.2f}, first {told['first']:.1f})")
        finally:
            for server in servers.values():
                server.stop()
    missed = [bar for figure in figures for bar in figure["bars"] if not bar["pass"]]
    version = subprocess.run([towline, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    report = {
        "schema": 1,
        "kind": "builds",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started, 1),
        "quick": False,
        "version": version,
        "machine": machine(),
        "servers": [],
        "link": None,
        "devices": {},
        "figures": figures,
        "notes": [*options.note, f"load of the machine at the end: {os.getloadavg()[0]:.1f}"],
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    for bar in missed:
        print(f"missed: {bar}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
