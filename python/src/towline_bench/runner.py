"""Runs the points of a suite, writes each to a log as it ends, and goes on where an earlier run stopped."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from towline_bench import BenchError
from towline_bench.launch import Figures, bandwidth, run
from towline_bench.suite import Point, Suite
from towline_bench.table import Row

#: The program that a link's own figures stand under.
LINK = "link"


@dataclass(frozen=True)
class Outcome:
    """A point that was run: its figures by metric, one a repetition, or why there are none."""

    point: Point
    source: str
    figures: dict[str, list[float]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    error: str = ""
    wall_s: float = 0.0

    def rows(self) -> Iterator[Row]:
        """Give the point's rows of the table; a point that failed has one without a value."""
        point = {key: value for key, value in asdict(self.point).items() if key != "program"}
        if self.error:
            yield Row(self.source, self.point.program, "seconds", "s", float("nan"), error=self.error, **point)
        for metric, values in self.figures.items():
            yield Row(
                source=self.source,
                program=self.point.program,
                metric=metric,
                unit=self.units[metric],
                value=statistics.median(values),
                least=min(values),
                most=max(values),
                runs=len(values),
                **point,
            )


def read_log(path: Path) -> list[Outcome]:
    """Read a log; a last line that was cut is left out, and of a point the last outcome counts."""
    outcomes: dict[str, Outcome] = {}
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            table: dict[str, Any] = json.loads(line)
            point = Point(**table.pop("point"))
            outcomes[point.key()] = Outcome(point=point, **table)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            if number < len(lines):
                raise BenchError(f"{path}, line {number}: {error}") from error
    return list(outcomes.values())


def run_suite(
    suite: Suite,
    log: Path,
    *,
    again: bool = False,
    progress: TextIO = sys.stderr,
    run_point: Callable[[Suite, Point, Path], Figures] = run,
) -> list[Outcome]:
    """Run what the log has not, write it there, and answer all outcomes.

    Points that failed are run again with ``again``.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    known = {outcome.point.key(): outcome for outcome in read_log(log)} if log.exists() else {}
    if log.exists() and not log.read_bytes().endswith(b"\n") and log.stat().st_size:
        with log.open("a", encoding="utf-8") as file:
            file.write("\n")
        _drop_cut_line(log)
    points = [*suite.points(), *_links(suite)]
    outcomes: list[Outcome] = []
    start, done = time.monotonic(), 0
    for index, point in enumerate(points, start=1):
        outcome = known.get(point.key())
        if outcome is None or (again and outcome.error):
            outcome = _outcome(suite, point, log.parent, run_point)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            done += 1
            left = (time.monotonic() - start) / done * (len(points) - index)
            what = outcome.error or ", ".join(
                f"{metric} {statistics.median(values):.4g} {outcome.units[metric]}"
                for metric, values in outcome.figures.items()
            )
            progress.write(f"[{index}/{len(points)}, about {left:.0f} s left] {point.key()}: {what}\n")
            progress.flush()
        outcomes.append(outcome)
    return outcomes


def _drop_cut_line(log: Path) -> None:
    """Take away a line that an interrupted run left half written."""
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    try:
        json.loads(lines[-1])
    except ValueError:
        log.write_text("".join(lines[:-1]), encoding="utf-8")


def _links(suite: Suite) -> Iterator[Point]:
    for client in suite.clients:
        for server in suite.servers.values():
            for link in server.address:
                yield Point(LINK, network=link, client=client, server=server.name, device="")


def _outcome(suite: Suite, point: Point, folder: Path, run_point: Callable[[Suite, Point, Path], Figures]) -> Outcome:
    source = "simulated" if suite.launcher == "simulate" and not point.client else "measured"
    # What is simulated is the same each time.
    repeat = 1 if source == "simulated" else suite.repeat
    figures: dict[str, list[float]] = {}
    units: dict[str, str] = {}
    start = time.monotonic()
    try:
        for _ in range(repeat):
            # Where the results go: nodes of a cluster seldom share a folder for temporary files.
            with tempfile.TemporaryDirectory(prefix="towline-bench-", dir=folder.resolve()) as scratch:
                if point.program == LINK and point.program not in suite.programs:
                    server = suite.servers[point.server]
                    found = bandwidth(suite, suite.clients[point.client], server.address[point.network])
                else:
                    found = run_point(suite, point, Path(scratch))
            for metric, (value, unit) in found.items():
                figures.setdefault(metric, []).append(value)
                units[metric] = unit
    except BenchError as error:
        # What was measured before counts; the point says why it has fewer runs.
        return Outcome(point, source, figures, units, str(error), time.monotonic() - start)
    return Outcome(point, source, figures, units, "", time.monotonic() - start)
