"""The command ``towline-bench``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from towline_bench import BenchError, __version__
from towline_bench.runner import run_suite
from towline_bench.suite import read as read_suite
from towline_bench.table import Row, merged, read, write_csv, write_parquet


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="towline-bench", description=__doc__)
    parser.add_argument("--version", action="version", version=f"towline-bench {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a suite, or go on with it, and report")
    run.add_argument("suite", type=Path, help="a TOML file; docs/benchmarks.md says what it holds")
    run.add_argument("--out", type=Path, required=True, help="folder for log, table, figures and report")
    run.add_argument("--again", action="store_true", help="run points that failed once more")
    run.add_argument("--list", action="store_true", help="only say what there is to run")
    table = commands.add_parser("table", help="put results together into one table")
    report = commands.add_parser("report", help="table, figures and report of results")
    for command in (table, report):
        command.add_argument(
            "results", type=Path, nargs="+", help="tables (.csv), logs (.jsonl), towline's files (.json, .tsv)"
        )
        command.add_argument("--out", type=Path, required=True, help="folder to write")
    report.add_argument("--title", default="Benchmarks")
    report.add_argument("--remark", action="append", default=[], help="a line for the report's beginning")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; answer the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "run":
            return _run(options)
        rows = merged(read(path) for path in options.results)
        if options.command == "table":
            _tables(rows, options.out)
        else:
            _report(rows, options.out, options.title, options.remark)
    except BenchError as error:
        print(f"towline-bench: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"towline-bench: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def _run(options: argparse.Namespace) -> int:
    suite = read_suite(options.suite)
    if options.list:
        for point in suite.points():
            print(point.key())
        return 0
    outcomes = run_suite(suite, options.out / "log.jsonl", again=options.again)
    rows = [row for outcome in outcomes for row in outcome.rows()]
    _report(rows, options.out, suite.name, [])
    failed = sum(bool(outcome.error) for outcome in outcomes)
    print(f"{len(outcomes)} points, {failed} failed: {options.out / 'report.html'}")
    return 1 if failed else 0


def _tables(rows: Sequence[Row], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_csv(rows, out / "results.csv")
    try:
        write_parquet(rows, out / "results.parquet")
    except BenchError as error:
        print(f"towline-bench: {error}", file=sys.stderr)


def _report(rows: Sequence[Row], out: Path, title: str, remarks: Sequence[str]) -> None:
    # Drawing takes a while to load, and other commands need none of it.
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    from towline_bench import report
    from towline_bench.figures import draw

    _tables(rows, out)
    figures = []
    # It takes a minute; a bar shows where someone looks.
    with Progress("{task.description}", TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("drawing")
        for drawn in draw(rows, out / "figures"):
            figures.append(drawn)
            progress.update(task, description=f"drawn {len(figures)}: {drawn.title}")
            for flaw in drawn.flaws:
                print(f"towline-bench: warning: {drawn.png.name}: {flaw}", file=sys.stderr)
    report.write(out / "report.html", title, rows, figures, remarks)
