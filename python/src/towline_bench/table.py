"""Results as rows of one kind: one figure of one point a row, whoever measured it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from towline_bench import BenchError


@dataclass(frozen=True)
class Row:
    """One figure. What a point has not is empty or 0."""

    source: str  # measured, or simulated, or the file that it came from
    program: str
    metric: str
    unit: str
    value: float
    least: float | None = None
    most: float | None = None
    runs: int = 1
    tasks: int = 0
    placement: str = ""
    compiler: str = ""
    device: str = ""  # cpu, gpu; of towline's own benchmarks the leg
    network: str = ""  # or link
    client: str = ""
    server: str = ""  # local: no server
    size: int = 0  # bytes of a transfer
    error: str = ""


COLUMNS = tuple(field.name for field in fields(Row))


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write the table for everybody."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write the table with its types, where pyarrow is installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BenchError("Parquet needs pyarrow: pip install towline-bench[parquet], or take the CSV file") from None
    columns = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def read_csv(path: Path) -> list[Row]:
    """Read what :func:`write_csv` wrote."""
    rows = []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise BenchError(f"{path} is no table of this version: its columns are not {', '.join(COLUMNS)}")
        for line, cells in enumerate(reader, start=2):
            try:
                rows.append(_row(cells))
            except (KeyError, TypeError, ValueError) as error:
                raise BenchError(f"{path}, line {line}: {error}") from error
    return rows


def _row(cells: dict[str, str]) -> Row:
    def optional(name: str) -> float | None:
        return float(cells[name]) if cells[name] else None

    text = {name: cells[name] for name in ("source", "program", "metric", "unit", "placement", "compiler", "device")}
    more = {name: cells[name] for name in ("network", "client", "server", "error")}
    return Row(
        value=float(cells["value"]),
        least=optional("least"),
        most=optional("most"),
        runs=int(cells["runs"]),
        tasks=int(cells["tasks"]),
        size=int(cells["size"]),
        **text,
        **more,
    )


def read(path: Path) -> list[Row]:
    """Read any file of results: this package's CSV and JSON lines, ``towline``'s JSON, and the study's table."""
    if path.suffix == ".csv":
        return read_csv(path)
    if path.suffix == ".tsv":
        return list(_study(path))
    if path.suffix == ".json":
        return list(_bench(path))
    if path.suffix == ".jsonl":
        from towline_bench.runner import read_log

        return [row for outcome in read_log(path) for row in outcome.rows()]
    raise BenchError(f"{path}: results are .csv, .json, .jsonl or .tsv files")


def _study(path: Path) -> Iterator[Row]:
    """The table of ``cargo xtask study``."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        if not {"placement", "varied", "estimate_s"}.issubset(reader.fieldnames or ()):
            raise BenchError(f"{path} is no table of `cargo xtask study`")
        for line, cells in enumerate(reader, start=2):
            if None in cells.values():
                raise BenchError(f"{path}, line {line} is cut: run the study again, which goes on there")
            if cells["varied"]:
                continue
            try:
                yield from _study_rows(cells)
            except (KeyError, TypeError, ValueError) as error:
                raise BenchError(f"{path}, line {line}: {error}") from error


def _study_rows(cells: dict[str, str]) -> Iterator[Row]:
    program = cells["program"]
    device = "gpu" if program.endswith("-gpu") else "cpu"
    compiler = {"himeno": "gcc", "himeno-intel": "icx"}.get(program, "")

    def row(metric: str, unit: str, value: str, error: str = "") -> Row:
        return Row(
            source="simulated",
            program=program.removesuffix("-gpu").removesuffix("-intel"),
            metric=metric,
            unit=unit,
            value=float(value) if value else float("nan"),
            tasks=int(cells["tasks"]),
            placement=cells["placement"],
            compiler=compiler,
            device=device,
            network=cells["network"],
            error=error,
        )

    yield row("seconds", "s", cells["seconds"], cells["error"] or "")
    yield row("estimate_s", "s", cells["estimate_s"])
    if cells["mflops"]:
        yield row("mflops", "MFLOPS", cells["mflops"])


def _bench(path: Path) -> Iterator[Row]:
    """What ``towline bench --json`` wrote."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        kind = document["kind"]
        if document["schema"] != 1:
            raise BenchError(f"{path} has schema {document['schema']}; this version reads 1")
        if kind == "energy":
            yield from _energy(document, path.stem)
        elif kind == "cuda-programs":
            yield from _programs(document, path.stem)
        elif kind == "soft":
            yield from _soft(document, path.stem)
        elif kind == "kills":
            yield from _kills(document, path.stem)
        elif kind == "cuts":
            yield from _cuts(document, path.stem)
        elif kind == "swap":
            yield from _swap(document, path.stem)
        elif kind == "moves":
            yield from _moves(document, path.stem)
        elif kind == "cuda-moves":
            yield from _cuda_moves(document, path.stem)
        else:
            yield from _figures(document, path.stem)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BenchError(f"{path} is no file of `towline bench --json`: {error!r}") from error


def _figures(document: dict[str, Any], name: str) -> Iterator[Row]:
    link = document.get("link")
    network = f"{link['bits_per_s'] / 1e9:g} Gbit/s, {link['delay_us']:g} us" if link else "loopback"
    gpus = document["machine"].get("gpus") or []
    for figure in document["figures"]:
        for kind in ("legs", "ratios"):
            for leg, value in figure[kind].items():
                yield Row(
                    source=name,
                    program=figure["id"],
                    metric="value" if kind == "legs" else "ratio",
                    unit=figure["unit"] if kind == "legs" else "",
                    value=float(value["median"]),
                    least=value.get("min"),
                    most=value.get("max"),
                    runs=int(value.get("n", 1)),
                    device=leg,
                    network=network,
                    client=document["machine"]["cpu"],
                    server=gpus[0] if gpus else document["machine"]["cpu"],
                    size=_bytes(figure["id"].rpartition(".")[2]),
                )


def _soft(document: dict[str, Any], name: str) -> Iterator[Row]:
    """Kernels on a device in software, by tier."""
    for kernel in document["kernels"]:
        for tier in ("interpreter", "compiled"):
            yield Row(
                source=name,
                program=kernel["name"],
                metric="instructions",
                unit="M/s",
                value=float(kernel[tier]),
                device=tier,
                server=document["machine"]["cpu"],
            )


def _kills(document: dict[str, Any], name: str) -> Iterator[Row]:
    """Read how soon a GPU's memory is free again after a process was killed."""
    gpus = document["machine"].get("gpus") or ["no GPU"]
    for kill in document["rows"]:
        seconds = sorted(map(float, kill["seconds"]))
        if seconds:
            yield Row(
                source=name,
                program=f"kill.{kill['killed']}.{kill['doing']}",
                metric="value",
                unit="s",
                value=seconds[len(seconds) // 2],
                least=seconds[0],
                most=seconds[-1],
                runs=len(seconds),
                device="native" if kill["side"] == "native" else "remote",
                network=document["over"],
                server=_model(gpus[0]),
            )


def _cuts(document: dict[str, Any], name: str) -> Iterator[Row]:
    """Read what cuts of all its connections cost a program."""
    gpus = document["machine"].get("gpus") or ["no GPU"]
    native = sorted(map(float, document["native_s"]))
    legs = (("native", "", native), ("remote", "", [document["remote_s"]]), ("remote", ".cut", [document["cut_s"]]))
    for device, ending, seconds in legs:
        yield Row(
            source=name,
            program=f"training{ending}",
            metric="seconds",
            unit="s",
            value=seconds[len(seconds) // 2],
            least=seconds[0],
            most=seconds[-1],
            runs=len(seconds),
            device=device,
            network=document["over"],
            server=_model(gpus[0]),
        )


def _swap(document: dict[str, Any], name: str) -> Iterator[Row]:
    """Read what programs take whose device memory is not enough for all of them."""
    gpus = document["machine"].get("gpus") or ["no GPU"]
    together = sorted(float(one["seconds"]) for one in document["together"])
    out = sorted(float(swap["seconds"]) for swap in document["swaps"])
    legs = (
        ("native", "training", [float(document["native"]["seconds"])]),
        ("remote", "training", [float(document["alone"]["seconds"])]),
        ("remote", "training.beside-another", together),
        ("remote", "swap-out", out),
    )
    for device, program, seconds in legs:
        if not seconds:
            continue
        yield Row(
            source=name,
            program=program,
            metric="seconds",
            unit="s",
            value=seconds[len(seconds) // 2],
            least=seconds[0],
            most=seconds[-1],
            runs=len(seconds),
            device=device,
            network=document["over"],
            server=_model(gpus[0]),
        )


def _moves(document: dict[str, Any], name: str) -> Iterator[Row]:
    """Read how long programs paused while their sessions moved."""
    gpus = document["machine"].get("gpus") or ["no GPU"]
    for pause in document["pauses"]:
        seconds = sorted(map(float, pause["pause_s"]))
        yield Row(
            source=name,
            program=f"move.{pause['way']}",
            metric="seconds",
            unit="s",
            value=seconds[len(seconds) // 2],
            least=seconds[0],
            most=seconds[-1],
            runs=len(seconds),
            device="remote",
            network="tcp",
            server=_model(gpus[0]),
            size=pause["megabytes"] << 20,
        )


def _cuda_moves(document: dict[str, Any], name: str) -> Iterator[Row]:
    """Read how long CUDA programs paused while their sessions moved; those that did not move are left out."""
    gpus = document["machine"].get("gpus") or ["no GPU"]
    for move in document["moves"]:
        seconds = sorted(map(float, move["pause_s"]))
        if not seconds:
            continue
        yield Row(
            source=name,
            program=f"move.{move['name'].removesuffix('-' + move['over'])}",
            metric="seconds",
            unit="s",
            value=seconds[len(seconds) // 2],
            least=seconds[0],
            most=seconds[-1],
            runs=len(seconds),
            device="remote",
            network=move["over"],
            server=_model(gpus[0]),
            size=move.get("megabytes", 0) << 20,
        )


def _bytes(text: str) -> int:
    """The size in ``64KiB``; 0 for other words."""
    for unit, factor in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)):
        digits = text.removesuffix(unit)
        if digits != text and digits.isdigit():
            return int(digits) * factor
    return 0


def _programs(document: dict[str, Any], name: str) -> Iterator[Row]:
    gpus = document["machine"].get("gpus") or ["no GPU"]
    over = document.get("over") or "tcp"
    bits, _, delay = over.partition(",")
    network = f"{bits.removesuffix('G')} Gbit/s, {delay.removesuffix('us')} us" if delay else "loopback"
    for part in document["parts"]:
        ratio = part.get("ratio")
        if ratio is None:
            continue
        yield Row(
            source=name,
            program=f"program.{part['part']}",
            metric="ratio",
            unit="",
            value=float(ratio["median"]),
            least=ratio.get("min"),
            most=ratio.get("max"),
            runs=int(ratio.get("n", 1)),
            device="remote",
            network=network,
            server=_model(gpus[0]),
        )


def _model(gpu: str) -> str:
    """A GPU without the version of its driver."""
    return gpu.partition(", ")[0]


def _energy(document: dict[str, Any], name: str) -> Iterator[Row]:
    outcome = document.get("outcome")
    figures: list[tuple[str, str, float | None]] = []
    if outcome:
        figures.append(("seconds", "s", outcome["time_s"]))
        for side in ("client", "server", "total"):
            figures.append((f"{side}_power", "W", outcome["power_w"][side]["value"]))
            figures.append((f"{side}_energy", "J", outcome["energy_j"][side]["value"]))
    for side, idle in (document.get("idle_w") or {}).items():
        figures.append((f"{side}_idle", "W", idle["value"]))
    command = document["command"]
    remote = "run" in command[1:2]
    # Behind `towline run`, its options and `--`.
    program = command[command.index("--") + 1] if remote and "--" in command else command[0]
    for metric, unit, value in figures:
        if value is not None:
            yield Row(
                source=name,
                program=Path(program).name,
                metric=metric,
                unit=unit,
                value=float(value),
                device="remote" if remote else "native",
                client=document["machine"]["cpu"],
            )


def merged(tables: Iterable[Iterable[Row]]) -> list[Row]:
    """All rows once, in the order in which they came."""
    return list(dict.fromkeys(row for table in tables for row in table))
