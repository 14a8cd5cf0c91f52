"""Placements of MPI programs: the figures 5 to 14 of the study of a 32-node GPU cluster, of any program and network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from towline_bench.style import (
    COLOURS,
    MARKERS,
    Drawn,
    figure,
    legend,
    log_axis,
    look,
    placement_label,
    save,
    tasks_axis,
)
from towline_bench.table import Row

#: Which of the study's figures a program's is, by program, compiler and kind.
_STUDY = {
    ("himeno", "gcc", "rate"): 5,
    ("himeno", "icx", "rate"): 6,
    ("cg", "", "time"): 7,
    ("ft", "", "time"): 8,
    ("is", "", "time"): 9,
    ("lu", "", "time"): 10,
    ("atpase", "", "gain"): 11,
    ("stmv", "", "gain"): 12,
    ("atpase", "", "gpu"): 13,
    ("stmv", "", "gpu"): 14,
}

#: Networks by what people call them.
NETWORKS = {"study-qdr": "InfiniBand QDR", "study-gbe": "Gigabit Ethernet"}
#: Compilers likewise.
COMPILERS = {"gcc": "GCC", "clang": "Clang", "icx": "Intel's compiler"}
_NAMES = {"atpase": "ATPase (327,506 atoms)", "stmv": "STMV (1,066,628 atoms)", "himeno": "Himeno"}

#: Tasks to value.
Line = dict[int, float]


def label(program: str) -> str:
    """Name a program for people."""
    return _NAMES.get(program, program.upper() if len(program) <= 2 else program)


def network_label(network: str) -> str:
    """Name a network for people."""
    return NETWORKS.get(network, network)


def _lines(rows: Sequence[Row], by: Callable[[Row], str]) -> dict[str, Line]:
    lines: dict[str, Line] = {}
    for row in rows:
        if not math.isnan(row.value):
            lines.setdefault(by(row), {})[row.tasks] = row.value
    return {key: dict(sorted(line.items())) for key, line in lines.items()}


def _turn(placement: str) -> tuple[str, int]:
    kind, _, count = placement.partition(":")
    return kind, int(count) if count.isdigit() else 0


#: A placement looks the same in every figure.
_LOOKS = {"rr:1": 0, "rr:6": 1, "rr:12": 2, "rr:2": 3, "mapped": 4, "block": 5, "cyclic": 6}


def plot(axes: Axes, lines: dict[str, Line], name: Callable[[str], str] = placement_label) -> None:
    """Draw lines over tasks, each with a look of its own."""
    tasks = sorted({task for line in lines.values() for task in line})
    for index, key in enumerate(sorted(lines, key=_turn)):
        number = _LOOKS.get(key, index) % len(COLOURS)
        axes.plot(
            list(lines[key]),
            list(lines[key].values()),
            **look(number, min(len(lines), 4)),
            label=name(key),
        )
    tasks_axis(axes, tasks)


def speedup(line: Line) -> Line:
    """Against the line's fewest tasks, which count as ideal."""
    first = next(iter(line))
    return {tasks: first * line[first] / seconds for tasks, seconds in line.items()}


def behind(lines: dict[str, Line]) -> dict[str, Line]:
    """By how many percent each is behind the best, where all were run."""
    shared = set.intersection(*(set(line) for line in lines.values()))
    best = {tasks: min(line[tasks] for line in lines.values()) for tasks in shared}
    return {
        key: {tasks: 100 * (line[tasks] / best[tasks] - 1) for tasks in sorted(shared)} for key, line in lines.items()
    }


def _ideal(axes: Axes, lines: dict[str, Line]) -> None:
    tasks = sorted({task for line in lines.values() for task in line})
    axes.plot(tasks, tasks, color="0.6", linewidth=1, zorder=1)


def draw(rows: Sequence[Row], folder: Path) -> Iterator[Drawn]:
    """Draw whatever the rows have."""
    usable = [row for row in rows if row.placement and row.tasks and not row.error]
    keys = dict.fromkeys((row.network, row.program, row.compiler) for row in usable)
    for network, program, compiler in keys:
        mine = [row for row in usable if (row.network, row.program, row.compiler) == (network, program, compiler)]
        yield from _of_program(mine, network, program, compiler, folder)
    yield from _networks(usable, folder)


def _of_program(rows: Sequence[Row], network: str, program: str, compiler: str, folder: Path) -> list[Drawn]:
    drawn: list[Drawn] = []
    times = [row for row in rows if row.metric == "seconds"]
    rates = [row for row in rows if row.metric == "mflops" and row.device == "cpu"]
    cpu = _lines([row for row in times if row.device == "cpu"], lambda row: row.placement)
    gpu = _lines([row for row in times if row.device == "gpu"], lambda row: row.placement)
    how = " and ".join(sorted({row.source for row in rows}))
    where = f"{how}, {network_label(network)}" if network else how

    def save_as(kind: str, made: object, title: str, caption: str) -> None:
        number = _STUDY.get((program, compiler, kind)) if network == "study-qdr" else None
        words = [f"fig{number:02d}"] if number else [network or "cluster"]
        name = "-".join([*words, program, *([compiler] if compiler else []), *([] if number else [kind])])
        counterpart = f" Counterpart of the study's Figure {number}." if number else ""
        drawn.append(save(made, folder, name, title, f"{caption} {where.capitalize()}.{counterpart}"))  # type: ignore[arg-type]

    if rates and program == "himeno":
        lines = _lines(rates, lambda row: row.placement)
        title = f"{label(program)}{f', {COMPILERS.get(compiler, compiler)}' if compiler else ''}"
        with figure() as (made, (axes,)):
            plot(axes, {key: {at: value / 1e3 for at, value in line.items()} for key, line in lines.items()})
            axes.set(ylabel="GFLOPS")
            log_axis(axes.yaxis)
            legend(made, axes)
            save_as("rate", made, title, "Operations per second by placement.")
    elif cpu and not gpu:
        _time_and_speedup(cpu, "time", save_as, label(program))
    if cpu and gpu:
        _gain(cpu, gpu, program, save_as)
    if gpu:
        _time_and_speedup(gpu, "gpu", save_as, f"{label(program)} with GPUs")
    return drawn


def _time_and_speedup(
    lines: dict[str, Line], kind: str, save_as: Callable[[str, object, str, str], None], title: str
) -> None:
    with figure(3 if len(lines) > 2 else 2) as (made, (left, *middle, right)):
        plot(left, lines)
        left.set(ylabel="time (s)", title="Time")
        log_axis(left.yaxis)
        legend(made, left)
        for axes in middle:
            plot(axes, behind(lines))
            axes.set(ylabel="slower than the best (%)", title="Cost of a placement")
            axes.set_ylim(bottom=0)
        faster = {key: speedup(line) for key, line in lines.items()}
        _ideal(right, faster)
        plot(right, faster)
        right.set(ylabel="speed-up", title="Speed-up")
        right.set_yscale("log", base=2)
        right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        costs = ", what each costs over the best" if middle else ""
        caption = f"Time by placement{costs}, and speed-up over the fewest tasks, which count as ideal (grey)."
        save_as(kind, made, title, caption)


def _gain(
    cpu: dict[str, Line],
    gpu: dict[str, Line],
    program: str,
    save_as: Callable[[str, object, str, str], None],
) -> None:
    common = sorted(set(cpu) & set(gpu), key=_turn)
    if not common:
        return
    placement = common[0]
    with figure(2) as (made, (left, right)):
        both = {"CPU": cpu[placement], "CPU and GPU": gpu[placement]}
        plot(left, both, name=str)
        left.set(ylabel="time (s)", title="Time")
        log_axis(left.yaxis)
        legend(made, left)
        shared = [tasks for tasks in cpu[placement] if tasks in gpu[placement]]
        gain = {tasks: cpu[placement][tasks] / gpu[placement][tasks] for tasks in shared}
        right.plot(list(gain), list(gain.values()), color=COLOURS[2], marker=MARKERS[2])
        tasks_axis(right, shared)
        right.axhline(1, color="0.6", linewidth=1)
        right.set(ylabel="times as fast with GPUs", title="Gain of the GPUs")
        right.set_ylim(bottom=0)
        caption = f"Time without and with GPUs, and their ratio; {placement_label(placement)}."
        save_as("gain", made, f"{label(program)}: CPU against CPU and GPU", caption)


def _networks(rows: Sequence[Row], folder: Path) -> list[Drawn]:
    """The best and the worst placement of each network, a panel a program: ours, not the study's."""
    times = [row for row in rows if row.metric == "seconds" and row.device == "cpu" and row.network]
    networks = list(dict.fromkeys(row.network for row in times))
    compilers = {row.program: row.compiler for row in reversed(times)}
    programs = [
        program
        for program in dict.fromkeys(row.program for row in times)
        if {row.network for row in times if row.program == program} == set(networks)
    ]
    if len(networks) < 2 or not programs:
        return []
    columns = min(3, len(programs))
    with figure(columns, math.ceil(len(programs) / columns), height=2.2) as (made, panels):
        for axes, program in zip(panels, programs, strict=False):
            _bands(
                axes, [row for row in times if (row.program, row.compiler) == (program, compilers[program])], networks
            )
            axes.set(title=label(program))
        for axes in panels[len(programs) :]:
            axes.remove()
        for axes in panels[: len(programs) : columns]:
            axes.set_ylabel("time (s)")
        legend(made, panels[0])
        names = " and ".join(network_label(network) for network in networks)
        caption = (
            f"{names}: from the best placement (line) to the worst (edge of the band), so a band is as wide as a wrong "
            "placement costs. Simulated by us: the study compares no networks."
        )
        return [save(made, folder, "networks", "Networks", caption)]


def _bands(axes: Axes, rows: Sequence[Row], networks: Sequence[str]) -> None:
    every: list[int] = []
    for index, network in enumerate(networks):
        lines = _lines([row for row in rows if row.network == network], lambda row: row.placement)
        tasks = sorted({task for line in lines.values() for task in line})
        values = [[line[task] for line in lines.values() if task in line] for task in tasks]
        best, worst = [min(times) for times in values], [max(times) for times in values]
        axes.plot(tasks, best, label=network_label(network), **look(index, len(networks)))
        axes.fill_between(tasks, best, worst, color=COLOURS[index], alpha=0.2, linewidth=0)
        every += tasks
    tasks_axis(axes, sorted(set(every)))
    log_axis(axes.yaxis)
