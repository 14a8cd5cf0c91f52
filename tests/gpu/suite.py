#!/usr/bin/env python3
"""Runs whole programs natively and through Towline, in turns, and compares: results to the bit, and times.

`cuda.sh run` starts the server and calls this. It needs nothing but Python's standard library.

A part is a program with its arguments. Every round runs it once each way; who begins changes from round to round. What is
compared is the time of a step as the program itself tells it, in its last line of output, which is JSON; for programs
without one, the time of the whole process. Ratios are taken within a round.

A virtual processor can be twice as slow for seconds while neighbours use its core. Programs that tell how slow it was around each of
their own rounds get a second ratio, of those rounds alone in which it was not.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
SIDES = ("native", "towline")
# A processor is disturbed when it takes so much longer for the reference than the quickest seen in the same part, on either side.
DISTURBED = 1.15
# Fewer rounds than this are not worth a median.
FEW = 3


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    group: str
    command: tuple[str, ...]
    limit_s: int = 60
    rounds: int = 3
    # Where the program's JSON has the time of a step, and what that is; empty: the whole process counts.
    metric: tuple[str, ...] = ()
    unit: str = "s"


def parts_of(workloads: pathlib.Path, python: str) -> list[Part]:
    """All parts, the quick and telling ones first."""

    def program(name: str, *arguments: str, **more: Any) -> Part:
        return Part(name, "python", (python, str(HERE / "programs" / arguments[0]), *arguments[1:]),
                    metric=("ms_per_step", "median"), unit="ms", **{"limit_s": 120, **more})  # fmt: skip

    def workload(name: str, *arguments: str, **more: Any) -> Part:
        return Part(name, "workloads", (str(workloads / arguments[0]), *arguments[1:], "--json"),
                    metric=("total_ms", "median"), unit="ms", **more)  # fmt: skip

    return [
        Part("vector_add", "workloads", (str(workloads / "vector_add"),)),
        Part("saxpy", "workloads", (str(workloads / "saxpy"),)),
        Part("textures", "workloads", (str(workloads / "textures"),)),
        program("torch_tiny", "torch_tiny.py"),
        workload("sgemm", "sgemm", "--size", "2K"),
        workload("dgemm", "sgemm", "--size", "2K", "--precision", "double"),
        workload("nbody", "nbody", "--size", "64K"),
        workload("transpose", "transpose", "--size", "8K"),
        workload("transpose_pageable", "transpose", "--size", "8K", "--host-memory", "pageable"),
        workload("sw_wavefront", "smith_waterman", "--size", "6K"),
        workload("sw_tiled", "smith_waterman", "--size", "6K", "--method", "tiled"),
        workload("lennard_jones_small", "lennard_jones", "--size", "20", "--steps", "500"),
        workload("lennard_jones_waits", "lennard_jones", "--size", "20", "--steps", "500", "--rebuild", "0"),
        program("resnet50_train", "resnet50_train.py"),
        program("resnet50_train_item", "resnet50_train.py", "--item"),
        program("resnet50_infer", "resnet50_infer.py"),
        program("gpt2_fp32", "gpt2_generate.py"),
        program("gpt2_fp16", "gpt2_generate.py", "--precision", "fp16"),
        program("torch_devices", "torch_devices.py"),
        program("torch_share", "torch_share.py"),
        program("torch_nccl", "torch_nccl.py"),
        program("torch_graph", "torch_graph.py"),
        program("torch_fft", "torch_fft.py"),
        program("torch_profiler", "torch_profiler.py"),
        program("torch_compile", "torch_compile.py", limit_s=240, rounds=2),
        program("cupy", "cupy_program.py", limit_s=240, rounds=2),
        program("numba", "numba_program.py"),
        program("jax", "jax_program.py", limit_s=240, rounds=2),
        program("lammps", "lammps.py", limit_s=240, rounds=2),
        program("hoomd", "hoomd_lj.py", limit_s=240, rounds=2),
        program("cudasw", "cudasw.py", limit_s=400, rounds=2),
        workload("lennard_jones", "lennard_jones", limit_s=180),
        workload("sw_search", "sw_search", limit_s=180),
    ]


@dataclasses.dataclass
class Outcome:
    """One run of one program."""

    status: str  # "ok", "skipped", or what went wrong
    value: float | None = None
    wall_s: float = 0.0
    client_s: float = 0.0
    server_s: float | None = None
    system_s: float = 0.0
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


def tree(root: int) -> dict[int, list[str]]:
    """A process and its descendants: what the kernel says of each, from its state on (the third field of `/proc/PID/stat`)."""
    children: dict[int, list[int]] = {}
    known: dict[int, list[str]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        pid = int(entry.name)
        children.setdefault(int(fields[1]), []).append(pid)
        known[pid] = fields
    found, pending = {}, [root]
    while pending:
        pid = pending.pop()
        if pid in known:
            found[pid] = known[pid]
        pending += children.get(pid, [])
    return found


def ticks_of_tree(root: int) -> int:
    """Ticks of a process and its descendants, with those that ended and were waited for."""
    return sum(int(field) for fields in tree(root).values() for field in fields[11:15])


def ticks_of_machine() -> int:
    user, nice, system, _idle, _disk, interrupts, soft = map(int, pathlib.Path("/proc/stat").read_text().split()[1:8])
    return user + nice + system + interrupts + soft


def last_json(text: str) -> dict[str, Any]:
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                return found
    return {}


class Suite:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out = pathlib.Path(options.out)
        self.deadline = time.monotonic() + options.seconds if options.seconds else None
        self.rows: list[dict[str, Any]] = []

    def seconds_left(self) -> float:
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def run_once(self, part: Part, side: str, number: int) -> Outcome:
        command = list(part.command) if side == "native" else [*self.options.remote.split("\t"), *part.command]
        cores = sorted(os.sched_getaffinity(0))[: self.options.cores or None]
        limit = min(part.limit_s, self.seconds_left())
        log = self.out / f"{part.name}-{side}-{number}.txt"
        hz = os.sysconf("SC_CLK_TCK")
        server = self.options.server_pid if side == "towline" else None
        server_before = ticks_of_tree(server) if server else 0
        machine_before = ticks_of_machine()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.monotonic()
        with log.open("wb") as file:
            # A group of its own, so that whatever it started ends with it.
            process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )  # fmt: skip
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        wall_s = time.monotonic() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        client_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        outcome = Outcome("ok", wall_s=wall_s, client_s=client_s, system_s=(ticks_of_machine() - machine_before) / hz)
        if server:
            outcome.server_s = (ticks_of_tree(server) - server_before) / hz
        text = log.read_text(errors="replace")
        outcome.facts = last_json(text)
        if status is None:
            outcome.status = f"no end within {limit:.0f} s"
        elif status == SKIPPED:
            outcome.status = "skipped"
        elif status != 0:
            outcome.status = f"status {status}"
        else:
            outcome.value = wall_s if not part.metric else metric_of(outcome.facts, part.metric)
            if outcome.value is None:
                outcome.status = "no result line"
        if outcome.status not in ("ok", "skipped"):
            tail = "\n".join("    " + line for line in text.splitlines()[-15:])
            print(f"{part.name}, {side}: {outcome.status}; {log} ends with\n{tail}", flush=True)
        return outcome

    def run_part(self, part: Part) -> None:
        runs: dict[str, list[Outcome]] = {side: [] for side in SIDES}
        wanted = [side for side in SIDES if side in self.options.sides.split(",")]
        for number in range(self.options.rounds or part.rounds):
            for side in wanted if number % 2 == 0 else wanted[::-1]:
                # What failed once is not tried again: the time is short.
                if runs[side] and runs[side][-1].status != "ok" or self.seconds_left() < 1:
                    continue
                runs[side].append(self.run_once(part, side, number))
        row = summary_of(part, runs)
        self.rows.append(row)
        print(text_of(row), flush=True)

    def write(self) -> None:
        report = {
            "schema": 1,
            "kind": "cuda-programs",
            "machine": machine(),
            "cores": self.options.cores,
            "over": self.options.over,
            "parts": self.rows,
        }
        (self.out / "programs.json").write_text(json.dumps(report, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """What the figures are of: the GPU and its driver, the processor, its cores."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        asked = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
        gpus = [line.strip() for line in asked.stdout.splitlines() if line.strip()]
    except (OSError, subprocess.TimeoutExpired):
        gpus = []
    models = {
        line.partition(":")[2].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        if line.startswith("model name")
    }
    return {"gpus": gpus, "cpu": sorted(models), "cores": os.cpu_count()}


def metric_of(facts: dict[str, Any], path: tuple[str, ...]) -> float | None:
    at: Any = facts
    for key in path:
        at = at.get(key) if isinstance(at, dict) else None
    return float(at) if isinstance(at, (int, float)) else None


def spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def same_results(runs: dict[str, list[Outcome]]) -> str:
    """What the digests say. A program that differs from run to run natively cannot be compared to the bit."""
    digests = {side: {run.facts.get("digest") for run in runs[side] if run.status == "ok"} - {None} for side in SIDES}
    if not digests["native"] or not digests["towline"]:
        return ""
    if len(digests["native"]) > 1:
        return "varies natively"
    return "equal" if digests["native"] == digests["towline"] else "DIFFER"


def undisturbed(runs: dict[str, list[Outcome]]) -> dict[str, Any] | None:
    """The sides compared by those rounds around which the processor was not disturbed; `None` where programs do not tell, or too few
    were. What decides is the reference alone, which is the interpreter's, never how long a round took."""
    rounds: dict[str, list[tuple[float, float]]] = {}
    for side in SIDES:
        told = [run.facts.get("of_rounds", {}) for run in runs[side] if run.status == "ok"]
        rounds[side] = [pair for of in told for pair in zip(of.get("ms", []), of.get("reference_ms", []))]
    if not all(rounds.values()):
        return None
    quickest = min(reference for side in SIDES for _, reference in rounds[side])
    kept = {side: [ms for ms, reference in rounds[side] if reference <= quickest * DISTURBED] for side in SIDES}
    if any(len(values) < FEW for values in kept.values()):
        return None
    row: dict[str, Any] = {side: {**(spread(kept[side]) or {}), "of": len(rounds[side])} for side in SIDES}
    return {"ratio": row["towline"]["median"] / row["native"]["median"], "reference_ms": quickest, **row}


def summary_of(part: Part, runs: dict[str, list[Outcome]]) -> dict[str, Any]:
    pairs = [(a.value, b.value) for a, b in zip(runs["native"], runs["towline"])]
    ratios = [remote / native for native, remote in pairs if native and remote]
    row: dict[str, Any] = {"part": part.name, "group": part.group, "unit": part.unit, "results": same_results(runs)}
    row["ratio"] = spread(ratios)
    row["undisturbed"] = undisturbed(runs)
    for side in SIDES:
        good = [run for run in runs[side] if run.status == "ok"]
        row[side] = {
            "status": runs[side][-1].status if runs[side] else "not run",
            "value": spread([run.value for run in good if run.value is not None]),
            "wall_s": spread([run.wall_s for run in good]),
            "first_result_s": spread([v for run in good if isinstance(v := run.facts.get("first_result_s"), float)]),
            "client_cpu_s": spread([run.client_s for run in good]),
            "server_cpu_s": spread([run.server_s for run in good if run.server_s is not None]),
            "system_cpu_s": spread([run.system_s for run in good]),
            "facts": good[-1].facts if good else {},
        }
    return row


HEADING = ("part", "unit", "native", "towline", "ratio", "[min-max]", "undisturbed", "results", "start", "CPU s native", "CPU s towline", "state")  # fmt: skip
WIDTHS = (21, 4, 9, 9, 7, 13, 17, 15, 11, 12, 17, 0)


def line_of(cells: tuple[str, ...]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS)).rstrip()


def text_of(row: dict[str, Any]) -> str:
    def median(value: dict[str, float] | None, form: str = "{:.4g}") -> str:
        return form.format(value["median"]) if value else "-"

    ratio, native, towline = row["ratio"], row["native"], row["towline"]
    quiet = row["undisturbed"]
    start = f"{median(native['first_result_s'])}/{median(towline['first_result_s'])}"
    cpu = median(towline["client_cpu_s"], "{:.2f}") + "+" + median(towline["server_cpu_s"], "{:.2f}")
    state = "; ".join(f"{side} {row[side]['status']}" for side in SIDES if row[side]["status"] != "ok")
    return line_of((
        row["part"], row["unit"], median(native["value"]), median(towline["value"]), median(ratio, "{:.3f}"),
        f"[{ratio['min']:.3f}-{ratio['max']:.3f}]" if ratio else "",
        f"{quiet['ratio']:.3f} of {quiet['native']['n']}+{quiet['towline']['n']}" if quiet else "", row["results"], start,
        f"{median(native['client_cpu_s'], '{:.2f}')}/{median(native['system_cpu_s'], '{:.2f}')}",
        f"{cpu}/{median(towline['system_cpu_s'], '{:.2f}')}", state or "ok",
    ))  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remote", default="", help="what goes before a command to run it through Towline; words divided by tabs")
    parser.add_argument("--server-pid", type=int, help="whose CPU time, with that of its workers, counts as the server's")
    parser.add_argument("--workloads", default="build/workloads/cuda", help="folder of the compiled workloads")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the Python programs")
    parser.add_argument("--only", default="", help="parts or groups (workloads, python), divided by commas")
    parser.add_argument("--sides", default=",".join(SIDES), help="native, towline, or both (default)")
    parser.add_argument("--rounds", type=int, default=0, help="instead of what each part has")
    parser.add_argument("--seconds", type=float, default=0, help="start nothing after so long, and end what runs then")
    parser.add_argument("--over", default="tcp", help="how programs reach the server, for the report")
    parser.add_argument("--cores", type=int, default=0, help="hold the programs to so many cores")
    parser.add_argument("--out", default="build/gpu/out", help="folder for programs.json and what the programs print")
    parser.add_argument("--list", action="store_true", help="name the parts, then exit")
    options = parser.parse_args()
    parts = parts_of(pathlib.Path(options.workloads), options.python)
    if options.list:
        for part in parts:
            print(f"{part.group:10} {part.name}")
        return 0
    only = {name for name in options.only.split(",") if name}
    known = {part.name for part in parts} | {part.group for part in parts}
    if only - known:
        parser.error(f"there is no part {', '.join(sorted(only - known))}; see --list")
    if set(options.sides.split(",")) - set(SIDES):
        parser.error(f"--sides takes {' and '.join(SIDES)}")
    if "towline" in options.sides and not options.remote:
        parser.error("--remote says how a program is run through Towline; or give --sides native")
    suite = Suite(options)
    suite.out.mkdir(parents=True, exist_ok=True)
    print(line_of(HEADING), flush=True)
    for part in parts:
        if only and part.name not in only and part.group not in only:
            continue
        if suite.seconds_left() < 1:
            print(f"{part.name} and what follows: the time is over")
            break
        suite.run_part(part)
        suite.write()
    bad = [
        row["part"] for row in suite.rows
        if row["results"] == "DIFFER" or any(row[side]["status"] not in ("ok", "skipped", "not run") for side in SIDES)
    ]  # fmt: skip
    if bad:
        print(f"wrong: {', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
