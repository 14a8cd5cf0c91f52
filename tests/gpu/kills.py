#!/usr/bin/env python3
"""Kills programs, and the workers that serve them, in the middle of copies, launches and a capture, and says how long the device's memory
takes to come back: natively and through Towline, beside another session that goes on and checks its results.

`cuda.sh run --only kills` starts the server and calls this. It needs nothing but Python's standard library.

Memory is what NVML has in use. Where there is no GPU, `--memory workers` takes what the server's workers have, where devices in software live,
and `--sides towline` leaves the native side out.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import suite

HERE = pathlib.Path(__file__).resolve().parent
DOING = ("copies", "launches", "capture")
FAILED = 3
# Memory may come back so much later than natively.
GRACE_S = 1.0
# A program is ready, memory is back, and a program whose worker is gone has ended, within so long, or never.
LIMIT_S = 30.0
# Memory counts as back when all but this share of what the program held is free.
SLACK = 0.1
LOOK_S = 0.002


class Wrong(Exception):
    """What should hold does not."""


def nvml(index: int) -> Callable[[], int]:
    """Bytes in use on a device, as NVML has them."""

    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64)]

    library = ctypes.CDLL("libnvidia-ml.so.1")
    device = ctypes.c_void_p()
    for status in (library.nvmlInit_v2(), library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))):
        if status != 0:
            sys.exit(f"NVML does not tell of device {index}: status {status}")

    def used() -> int:
        memory = Memory()
        status = library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
        if status != 0:
            raise Wrong(f"NVML does not tell the memory in use: status {status}")
        return int(memory.used)

    return used


def resident(root: int) -> Callable[[], int]:
    """Bytes of memory that the descendants of a process have."""

    def used() -> int:
        pages = sum(int(fields[21]) for pid, fields in suite.tree(root).items() if pid != root)
        return pages * os.sysconf("SC_PAGESIZE")

    return used


@dataclasses.dataclass
class Machine:
    """What programs run on."""

    used: Callable[[], int]
    program: tuple[str, ...]
    remote: tuple[str, ...]
    # Gives the worker of a program, by the program's process.
    worker: Callable[[int], int]
    bytes: int

    def start(self, side: str, doing: str, megabytes: int) -> subprocess.Popen[str]:
        command = (*(self.remote if side == "towline" else ()), *self.program, "--doing", doing, "--megabytes", str(megabytes))
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stdout is not None
        said = select.select([process.stdout], [], [], LIMIT_S)[0] and process.stdout.readline()
        if said != "ready\n":
            end(process)
            raise Wrong(f"{doing}, {side}: the program did not get ready")
        return process

    def at_rest(self) -> int:
        """Bytes in use once they do not change any more: a server may just be starting a worker for the next session."""
        deadline, since, last = time.monotonic() + LIMIT_S, time.monotonic(), self.used()
        while time.monotonic() - since < 0.5:
            time.sleep(0.02)
            now = self.used()
            if abs(now - last) > self.bytes * SLACK / 4:
                since, last = time.monotonic(), now
            if time.monotonic() > deadline:
                raise Wrong("the memory in use does not come to rest")
        return last

    def kill(self, side: str, doing: str, whom: str) -> float:
        """Seconds from the kill of a program, or of its worker, until its memory is back."""
        before = self.at_rest()
        process = self.start(side, doing, self.bytes >> 20)
        try:
            time.sleep(0.3)
            held = self.used() - before
            if held < self.bytes * (1 - SLACK):
                raise Wrong(f"{doing}, {side}: {held >> 20} MiB more are in use, where the program holds {self.bytes >> 20}")
            victim = process.pid if whom == "program" else self.worker(process.pid)
            started = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            while self.used() - before > self.bytes * SLACK:
                if time.monotonic() - started > LIMIT_S:
                    raise Wrong(f"{doing}, {side}, {whom} killed: the memory is not back after {LIMIT_S:.0f} s")
                time.sleep(LOOK_S)
            took = time.monotonic() - started
            try:
                status = process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                raise Wrong(f"{doing}, {side}, {whom} killed: the program hangs") from None
            if status != (-signal.SIGKILL if whom == "program" else FAILED):
                raise Wrong(f"{doing}, {side}, {whom} killed: the program ended with {status}, and not with an error of a call")
            return took
        finally:
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def worker_of(towline: str, server: str) -> Callable[[int], int]:
    def worker(program: int) -> int:
        said = subprocess.run((towline, "status", "--server", server, "--json"), capture_output=True, text=True, timeout=LIMIT_S, check=True)
        sessions = [session for one in json.loads(said.stdout) for session in one["sessions"]]
        found = [session["worker_pid"] for session in sessions if session["pid"] == program and session["api"] == "cuda"]
        if len(found) != 1:
            raise Wrong(f"the server has {len(found)} sessions of process {program}")
        return int(found[0])

    return worker


def measure(machine: Machine, rounds: int, sides: tuple[str, ...] = suite.SIDES) -> tuple[list[dict[str, object]], list[str]]:
    """A row for each thing that was killed while doing something, and what was wrong."""
    rows: list[dict[str, object]] = []
    wrong: list[str] = []
    cases = [case for case in (("native", "program"), ("towline", "program"), ("towline", "worker")) if case[0] in sides]
    for doing in DOING:
        native: list[float] = []
        for side, whom in cases:
            times: list[float] = []
            try:
                times = [machine.kill(side, doing, whom) for _ in range(rounds)]
            except Wrong as error:
                wrong.append(str(error))
            if side == "native":
                native = times
            rows.append({"doing": doing, "side": side, "killed": whom, "seconds": times})
            if side == "towline" and times and native and max(times) > max(native) + GRACE_S:
                wrong.append(f"{doing}, {whom} killed: {max(times):.2f} s, natively {max(native):.2f} s; {GRACE_S:.0f} s more are allowed")
    return rows, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towline", required=True, help="the program towline")
    parser.add_argument("--server", required=True, help="address of the server, which is on this machine")
    parser.add_argument("--over", default="tcp", help="how programs reach the server, for the record (default: %(default)s)")
    parser.add_argument("--remote", required=True, help="words that have a program run through Towline, separated by tabs")
    parser.add_argument("--memory", choices=("nvml", "workers"), default="nvml")
    parser.add_argument("--server-pid", type=int, help="the server's process, for --memory workers")
    parser.add_argument("--device", type=int, default=0, help="number of the device for NVML")
    parser.add_argument("--megabytes", type=int, default=4096, help="what each program holds (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sides", choices=suite.SIDES, action="append", help="only this side")
    parser.add_argument("--out", type=pathlib.Path, help="folder for kills.json")
    options = parser.parse_args()
    if options.memory == "workers" and options.server_pid is None:
        parser.error("--memory workers needs --server-pid")
    machine = Machine(
        used=nvml(options.device) if options.memory == "nvml" else resident(options.server_pid),
        program=(sys.executable, str(HERE / "programs" / "busy.py")),
        remote=tuple(options.remote.split("\t")),
        worker=worker_of(options.towline, options.server),
        bytes=options.megabytes << 20,
    )
    other = machine.start("towline", "check", 64)
    try:
        rows, wrong = measure(machine, options.rounds, tuple(options.sides or suite.SIDES))
        if other.poll() is not None:
            wrong.append(f"another session ended with {other.returncode}")
        else:
            other.communicate("\n", timeout=LIMIT_S)
            if other.returncode != 0:
                wrong.append(f"another session ended with {other.returncode}")
    finally:
        end(other)
    print(f"{'in the middle of':<18}{'killed':<22}{'memory back after':<20}")
    for row in rows:
        times = row["seconds"]
        assert isinstance(times, list)
        said = f"{statistics.median(times):.3f} s, at most {max(times):.3f}" if times else "-"
        print(f"{row['doing']:<18}{str(row['killed']) + ', ' + str(row['side']):<22}{said}")
    if options.out:
        record = {"schema": 1, "kind": "kills", "machine": suite.machine(), "over": options.over, "rows": rows, "wrong": wrong}
        (options.out / "kills.json").write_text(json.dumps(record, indent=1) + "\n")
    for line in wrong:
        print(f"wrong: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
