"""What to run: a suite is a TOML file, and its points are all combinations that make sense."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from towline_bench import BenchError
from towline_bench.programs import Adapter, Pattern, adapter, pattern

Named = TypeVar("Named", "Program", "End")

LAUNCHERS = ("simulate", "mpirun", "slurm", "local")


@dataclass(frozen=True)
class Program:
    """A command and how to read it."""

    name: str
    command: tuple[str, ...]
    adapter: Adapter | None
    #: What `towline simulate` plays in its place: the name of a declared program, or the folder of a trace.
    simulate: str = ""
    trace: str = ""
    #: Builds it with ${compiler}; run once for each compiler that is there.
    build: tuple[str, ...] = ()
    #: The compilers that it is built with; empty: it is what it is.
    compilers: tuple[str, ...] = ()
    #: By device: arguments that are put behind the command.
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"cpu": ()})
    #: Which numbers of tasks it takes; empty: all of the sweep.
    tasks: tuple[int, ...] = ()


@dataclass(frozen=True)
class End:
    """A kind of client or server for remote GPUs."""

    name: str
    #: Where it is: an argument for ssh, empty for this machine.
    host: str = ""
    #: Sources of power as `towline bench energy` names them.
    power: tuple[str, ...] = ()
    #: Of a server: its address over each link.
    address: Mapping[str, str] = field(default_factory=dict)
    #: Of a client: it has a GPU of its own.
    local: bool = False


@dataclass(frozen=True)
class Point:
    """One thing to run."""

    program: str
    tasks: int = 1
    placement: str = ""
    compiler: str = ""
    device: str = "cpu"
    network: str = ""
    client: str = ""
    server: str = ""

    def key(self) -> str:
        """Name the point in logs: the same in every session."""
        parts = (self.program, self.tasks, self.placement, self.compiler, self.device)
        return "|".join(str(part) for part in (*parts, self.network, self.client, self.server))


@dataclass(frozen=True)
class Suite:
    """A whole suite."""

    name: str
    folder: Path
    launcher: str
    #: By network: the description of a cluster, or `preset:NAME`.
    clusters: Mapping[str, str]
    programs: Mapping[str, Program]
    tasks: tuple[int, ...]
    placements: tuple[str, ...]
    clients: Mapping[str, End]
    servers: Mapping[str, End]
    repeat: int = 1
    limit_s: float = 3600.0
    towline: str = "towline"
    #: Arguments for mpirun, srun or towline simulate.
    arguments: tuple[str, ...] = ()

    def points(self) -> Iterator[Point]:
        """All points, small ones first: a run that is cut short has most of the table."""
        placed = itertools.product(sorted(self.tasks), self.clusters, self.programs.values(), self.placements)
        for tasks, network, program, placement in placed:
            if program.tasks and tasks not in program.tasks:
                continue
            for compiler, device in itertools.product(program.compilers or ("",), program.devices):
                yield Point(program.name, tasks, placement, compiler, device, network)
        for program, client in itertools.product(self.programs.values(), self.clients.values()):
            if client.local:
                yield Point(program.name, device="gpu", client=client.name, server="local")
            for server in self.servers.values():
                for link in server.address:
                    yield Point(program.name, device="gpu", network=link, client=client.name, server=server.name)


class _Reader:
    """Checked access to a table of the file; what is left over is an error."""

    def __init__(self, what: str, table: Any) -> None:
        if not isinstance(table, dict):
            raise BenchError(f"{what} must be a table")
        self.what = what
        self.table: dict[str, Any] = dict(table)

    def take(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        if key not in self.table:
            if default is None:
                raise BenchError(f"{self.what} has no `{key}`")
            return default
        value = self.table.pop(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = " or ".join(part.__name__ for part in (kind if isinstance(kind, tuple) else (kind,)))
            raise BenchError(f"`{key}` of {self.what} must be of type {names}")
        return value

    def words(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self.take(key, (list, str), default if default is None else list(default))
        words = value.split() if isinstance(value, str) else value
        if not all(isinstance(word, str) for word in words):
            raise BenchError(f"`{key}` of {self.what} must be words")
        return tuple(words)

    def numbers(self, key: str) -> tuple[int, ...]:
        value = self.take(key, list, [])
        if not all(isinstance(number, int) and not isinstance(number, bool) and number > 0 for number in value):
            raise BenchError(f"`{key}` of {self.what} must be whole numbers above 0")
        return tuple(value)

    def end(self) -> None:
        if self.table:
            raise BenchError(f"{self.what} has unknown keys: {', '.join(sorted(self.table))}")


def read(path: Path) -> Suite:
    """Read a suite and check it."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BenchError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BenchError(f"{path}: {error}") from error
    top = _Reader(str(path), document)
    programs = [_program(table) for table in top.take("programs", list)]
    sweep = _Reader("[sweep]", top.take("sweep", dict, {}))
    clients = [_end("client", table) for table in top.take("clients", list, [])]
    servers = [_end("server", table) for table in top.take("servers", list, [])]
    launcher = top.take("launcher", str)
    if launcher not in LAUNCHERS:
        raise BenchError(f"there is no launcher {launcher!r}; there are {', '.join(LAUNCHERS)}")
    suite = Suite(
        name=top.take("name", str),
        folder=path.resolve().parent,
        launcher=launcher,
        clusters=top.take("clusters", dict, {}),
        programs=_by_name("program", programs),
        tasks=sweep.numbers("tasks"),
        placements=sweep.words("placements", ()),
        clients=_by_name("client", clients),
        servers=_by_name("server", servers),
        repeat=top.take("repeat", int, 1),
        limit_s=float(top.take("limit_s", (int, float), 3600.0)),
        towline=top.take("towline", str, "towline"),
        arguments=top.words("arguments", ()),
    )
    sweep.end()
    top.end()
    _check(suite, path)
    return suite


def _check(suite: Suite, path: Path) -> None:
    if not 1 <= suite.repeat <= 1000 or suite.limit_s <= 0:
        raise BenchError(f"{path}: repeat is 1 to 1000, and limit_s above 0")
    if not all(isinstance(value, str) for value in suite.clusters.values()):
        raise BenchError(f"{path}: clusters name files or presets")
    if next(suite.points(), None) is None:
        raise BenchError(f"{path} has no points: give clusters, tasks and placements, or clients and servers")
    for program in suite.programs.values():
        if suite.launcher == "simulate":
            if not program.simulate and not program.trace:
                raise BenchError(f"program {program.name} has no `simulate` and no `trace` to be simulated by")
        elif not program.command or program.adapter is None:
            raise BenchError(f"program {program.name} needs a `command`, and an `adapter` or `result` to read it by")


def _by_name(kind: str, items: list[Named]) -> dict[str, Named]:
    named = {item.name: item for item in items}
    if len(named) < len(items):
        raise BenchError(f"two of kind {kind} have the same name")
    return named


def _program(table: Any) -> Program:
    name = table.get("name", "without name") if isinstance(table, dict) else "without name"
    reader = _Reader(f"program {name}", table)
    read_by = None
    if "adapter" in reader.table:
        read_by = adapter(reader.take("adapter", str))
    if "result" in reader.table:
        results = [_pattern(name, result) for result in reader.take("result", list)]
        read_by = Adapter((*(read_by.patterns if read_by else ()), *results), read_by.passed if read_by else None)
    devices = _Reader(f"devices of {name}", reader.take("devices", dict, {"cpu": []}))
    program = Program(
        name=reader.take("name", str),
        command=reader.words("command", ()),
        adapter=read_by,
        simulate=reader.take("simulate", str, ""),
        trace=reader.take("trace", str, ""),
        build=reader.words("build", ()),
        compilers=reader.words("compilers", ()),
        devices={device: devices.words(device) for device in list(devices.table)},
        tasks=reader.numbers("tasks"),
    )
    reader.end()
    return program


def _pattern(program: str, table: Any) -> Pattern:
    reader = _Reader(f"result of {program}", table)
    found = pattern(
        reader.take("metric", str),
        reader.take("unit", str, ""),
        reader.take("pattern", str),
        mean=reader.take("mean", bool, False),
        factor=float(reader.take("factor", (int, float), 1.0)),
    )
    reader.end()
    return found


def _end(kind: str, table: Any) -> End:
    reader = _Reader(kind, table)
    found = End(
        name=reader.take("name", str),
        host=reader.take("host", str, ""),
        power=reader.words("power", ()),
        address=reader.take("address", dict, {}),
        local=reader.take("local", bool, False),
    )
    reader.end()
    return found
