"""How a point becomes a command: simulated, placed and started by mpirun or Slurm, or with a remote GPU."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from towline_bench import BenchError
from towline_bench.suite import End, Point, Program, Suite

#: Metric to value and unit.
Figures = dict[str, tuple[float, str]]

#: What is kept of a program's output in an error.
TAIL = 400


#: Seconds that a command gets to end by itself where something else ends what it waits for.
GRACE_S = 10


def execute(command: Sequence[str], limit_s: float, folder: Path, cancel: Sequence[str] = ()) -> str:
    """Run a command to its end and answer what it printed; end it with all that it started when time is up.

    ``cancel`` is then run as well, for what the command started elsewhere.
    """
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            raise BenchError(f"cannot start {command[0]}: {error.strerror}") from error
        try:
            status = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{command[0]} was ended: it ran longer than {limit_s:g} s") from None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                if cancel:
                    _cancel(cancel)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if status != 0:
        tail = " ".join(text[-TAIL:].split())
        raise BenchError(f"{command[0]} ended with status {status}: {tail}")
    return text


def _cancel(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise BenchError(f"what was started may still run: {shlex.join(command)}: {error}") from error


@dataclass(frozen=True)
class Started:
    """A command, and the one that ends what it has started elsewhere."""

    command: Sequence[str]
    cancel: Sequence[str] = field(default=())


def run(suite: Suite, point: Point, scratch: Path) -> Figures:
    """Run one point once; ``scratch`` is a folder that nodes can read and write too."""
    program = suite.programs[point.program]
    if point.client:
        return _remote(suite, point, program)
    if suite.launcher == "simulate":
        return _simulate(suite, point, program)
    if program.adapter is None:
        raise BenchError(f"program {program.name} has nothing to read it by")
    started = _started(suite, point, program, scratch)
    return program.adapter.read(execute(started.command, suite.limit_s, suite.folder, started.cancel))


def built(suite: Suite, point: Point, program: Program) -> list[str]:
    """Answer the program's command for this compiler and device; it is built first where that is said."""
    if point.compiler and shutil.which(point.compiler) is None:
        raise BenchError(f"the compiler {point.compiler} is not on this machine")
    words = [*program.command, *program.devices.get(point.device, ())]
    if program.build:
        build = [word.replace("${compiler}", point.compiler) for word in program.build]
        execute(build, suite.limit_s, suite.folder)
    return [word.replace("${compiler}", point.compiler) for word in words]


def _cluster(suite: Suite, network: str) -> list[str]:
    where = suite.clusters[network]
    preset = where.removeprefix("preset:")
    return ["--preset", preset] if preset != where else ["--cluster", str(suite.folder / where)]


def _simulate(suite: Suite, point: Point, program: Program) -> Figures:
    name = program.simulate + ("-gpu" if point.device == "gpu" else "")
    what = ["--trace", str(suite.folder / program.trace)] if program.trace else ["--program", name]
    command = [suite.towline, "simulate", "program", *_cluster(suite, point.network), *what]
    command += ["--tasks", str(point.tasks), "--policy", point.placement, "--threads", *suite.arguments]
    return simulated(execute(command, suite.limit_s, suite.folder), point.placement)


_QUANTITY = re.compile(r"(\d+(?:\.\d+)?) (s|ms|us|ns)\b")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def simulated(output: str, placement: str) -> Figures:
    """Read the line of a placement in the table of `towline simulate program`."""
    for line in output.splitlines():
        if line.split(" ")[0] == placement:
            found = [float(number) * _SECONDS[unit] for number, unit in _QUANTITY.findall(line)]
            if len(found) == 3:
                return {"seconds": (found[0], "s"), "estimate_s": (found[2], "s")}
    raise BenchError(f"`towline simulate` answered without a line of {placement}")


def _started(suite: Suite, point: Point, program: Program, scratch: Path) -> Started:
    command = built(suite, point, program)
    if suite.launcher == "local":
        return Started(command)
    placed = scratch / "placed"
    place = [suite.towline, "place", *_cluster(suite, point.network), "--tasks", str(point.tasks)]
    execute([*place, "--policy", point.placement, "--out", str(placed)], suite.limit_s, suite.folder)
    if suite.launcher == "slurm":
        # The batch script finds the order of ranks beside itself.
        environment = f"ALL,TOWLINE_PLACE_DIR={placed}"
        # Ending sbatch ends no job: it is ended by its name, which no other has.
        name = f"towline-bench-{secrets.token_hex(8)}"
        batch = ["sbatch", "--wait", f"--job-name={name}", f"--export={environment}", f"--output={scratch / 'output'}"]
        wait = shlex.join([*batch, *suite.arguments, str(placed / "slurm.sbatch"), *command])
        script = f"{wait} >&2; status=$?; cat {shlex.quote(str(scratch / 'output'))}; exit $status"
        return Started(["sh", "-c", script], ["scancel", f"--name={name}"])
    files = ["--hostfile", str(placed / "openmpi.hosts")]
    ranks = placed / "openmpi.ranks"
    if not ranks.exists():
        raise BenchError("this placement has no rankfile: there are more tasks than cores")
    version = execute(["mpirun", "--version"], 60, suite.folder)
    if re.search(r"\) ([5-9]|\d\d+)\.", version):
        files += ["--map-by", f"rankfile:file={ranks}"]
    else:
        files += ["--rankfile", str(ranks)]
    return Started(["mpirun", "-np", str(point.tasks), *files, *suite.arguments, *command])


def _execute_at(suite: Suite, end: End, command: list[str]) -> str:
    if not end.host:
        return execute(command, suite.limit_s, suite.folder)
    # Ending ssh ends nothing on the other machine: what runs there has the limit itself.
    there = shlex.join(["timeout", "--kill-after=5", f"{suite.limit_s:g}", *command])
    return execute(["ssh", "-o", "BatchMode=yes", end.host, there], suite.limit_s + GRACE_S, suite.folder)


#: Stands before the JSON in an output that has lines for people, too.
_MARK = "towline-bench: what follows is JSON"


def _json_of(suite: Suite, end: End, before: list[str], after: list[str]) -> str:
    """Run a command that takes ``--json FILE``, here or elsewhere, and answer what it wrote there."""
    script = (
        f'file=$(mktemp) && {shlex.join(before)} --json "$file" {shlex.join(after)}; status=$?; '
        f'printf "\\n%s\\n" {shlex.quote(_MARK)}; cat "$file"; rm -f "$file"; exit $status'
    )
    output = _execute_at(suite, end, ["sh", "-c", script])
    return output.rpartition(_MARK)[2]


def _remote(suite: Suite, point: Point, program: Program) -> Figures:
    """Time, power and energy of a program, as the rCUDA paper's Tables II and III have them."""
    client = suite.clients[point.client]
    command = built(suite, point, program)
    sources = [word for source in client.power for word in ("--client", source)]
    if point.server != "local":
        server = suite.servers[point.server]
        address = server.address[point.network]
        sources += [word for source in server.power for word in ("--server", source)]
        command = [suite.towline, "run", "--server", address, "--", *command]
    if sources:
        measure = [suite.towline, "bench", "energy", *sources, *suite.arguments]
        return energy(_json_of(suite, client, measure, ["--", *command]))
    if program.adapter is None:
        raise BenchError(f"program {program.name} has nothing to read it by")
    return program.adapter.read(_execute_at(suite, client, command))


def energy(text: str) -> Figures:
    """Read the JSON of `towline bench energy`."""
    try:
        document = json.loads(text)
        outcome = document["outcome"]
        figures: Figures = {"seconds": (float(outcome["time_s"]), "s")}
        for side in ("client", "server", "total"):
            for key, name, unit in (("power_w", "power", "W"), ("energy_j", "energy", "J")):
                value = outcome[key][side]["value"]
                if value is not None:
                    figures[f"{side}_{name}"] = (float(value), unit)
        for side, idle in (document.get("idle_w") or {}).items():
            if idle["value"] is not None:
                figures[f"{side}_idle"] = (float(idle["value"]), "W")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BenchError(f"`towline bench energy` gave no outcome: {error!r}") from error
    return figures


def bandwidth(suite: Suite, client: End, address: str) -> Figures:
    """Between a client and a server, as the paper's Table IV has it."""
    command = [suite.towline, "bench", "net", "--server", address]
    try:
        document = json.loads(_json_of(suite, client, command, []))
        found: Figures = {}
        for figure in document["figures"]:
            leg = next(iter(figure["legs"].values()))
            # "net.0.round_trip" is of the first server, and there is no other.
            found[figure["id"].replace("net.0.", "net.")] = (float(leg["median"]), figure["unit"])
    except (KeyError, StopIteration, TypeError, ValueError) as error:
        raise BenchError(f"`towline bench net` gave no figures: {error!r}") from error
    return found
