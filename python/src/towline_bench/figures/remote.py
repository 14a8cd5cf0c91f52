"""Remote GPUs: overhead over a local GPU, bandwidth, calls, scaling over clients and GPUs, links, power and energy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from towline_bench.style import (
    COLOURS,
    HATCHES,
    Drawn,
    bytes_axis,
    figure,
    legend,
    log_axis,
    look,
    save,
    source_label,
)
from towline_bench.table import Row

_LEGS = {"native": "local GPU", "local": "Towline, own GPU", "remote": "Towline, remote GPU", "tcp": "plain TCP"}

#: The report's part that these are in.
REMOTE = "remote"

#: Lists of names longer than this do not fit beside a column.
_MANY = 40


def draw(rows: Sequence[Row], folder: Path) -> Iterator[Drawn]:
    """Draw whatever the rows have."""
    yield from _overview(rows, folder)
    for source in dict.fromkeys(row.source for row in rows):
        mine = [row for row in rows if row.source == source]
        yield from _bandwidth(mine, source, folder)
        yield from _calls(mine, source, folder)
        yield from _overhead(mine, source, folder)
        yield from _clients(mine, source, folder)
        yield from _devices(mine, source, folder)
    yield from _links(rows, folder)
    yield from _energy(rows, folder)
    yield from _scenarios(rows, folder)


def whole_programs(rows: Sequence[Row]) -> list[Row]:
    """Whole programs' times through Towline, in times of those with a local GPU, over links that nobody slowed down."""
    return [
        row
        for row in rows
        if row.metric == "ratio"
        and row.device == "remote"
        and row.program.split(".")[0] in ("workload", "program")
        and "bit/s" not in row.network
    ]


def program_label(row: Row) -> str:
    """Name a program of a benchmark for people."""
    words = [word for word in row.program.split(".")[1:] if word != "none"]
    return " ".join(words).replace("_", " ")


def _device(rows: Sequence[Row]) -> str:
    return next((row.server for row in rows if row.server), "")


def _overview(rows: Sequence[Row], folder: Path) -> list[Drawn]:
    """Every whole program, a line for each file of results."""
    ratios = whole_programs(rows)
    sources = sorted(dict.fromkeys(row.source for row in ratios), key=source_label, reverse=True)
    if not sources:
        return []
    with figure(width=7.16, height=0.7 + 0.13 * len(sources)) as (made, (axes,)):
        for place, source in enumerate(sources):
            values = sorted(row.value for row in ratios if row.source == source)
            axes.plot(values, [place] * len(values), "o", color=COLOURS[0], alpha=0.45, markeredgewidth=0, markersize=4)
            axes.plot([_median(values)], [place], "|", color=COLOURS[1], markersize=9, markeredgewidth=2)
        axes.axvline(1, color="0.4", linewidth=1, linestyle="--")
        axes.set_yticks(range(len(sources)), [source_label(source) for source in sources])
        axes.set_ylim(-0.7, len(sources) - 0.3)
        axes.grid(axis="y", visible=False)
        log_axis(axes.xaxis)
        axes.set_xlabel("time through Towline, in times of that with a local GPU")
        caption = (
            "Each dot is a program, the bar a file's median. Left of the dashed line, programs are faster than with a "
            "local GPU."
        )
        return [save(made, folder, "overview", "Whole programs on remote GPUs", caption, about=REMOTE)]


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _bandwidth(rows: Sequence[Row], source: str, folder: Path) -> list[Drawn]:
    """By size, one panel a direction; of what does not block, whose data has arrived."""
    sizes = [row for row in rows if row.program.startswith("bandwidth.") and row.metric == "value" and row.size]
    sizes = [row for row in sizes if ".blocking." not in row.program]
    panels: dict[str, list[Row]] = {}
    for row in sizes:
        panels.setdefault(".".join(row.program.split(".")[1:-1]), []).append(row)
    if not panels:
        return []
    columns = 2 if len(panels) > 1 else 1
    with figure(columns, math.ceil(len(panels) / columns), height=2.3) as (made, every):
        for axes, (name, mine) in zip(every, panels.items(), strict=False):
            legs = [leg for leg in _LEGS if any(row.device == leg for row in mine)]
            for index, leg in enumerate(legs):
                line = sorted((row.size, row) for row in mine if row.device == leg)
                at = [size for size, _ in line]
                axes.plot(at, [row.value for _, row in line], label=_LEGS[leg], **look(index, len(legs)))
                least = [row.value if row.least is None else row.least for _, row in line]
                most = [row.value if row.most is None else row.most for _, row in line]
                axes.fill_between(at, least, most, color=COLOURS[index], alpha=0.15, linewidth=0)
            bytes_axis(axes, sorted({row.size for row in mine}))
            log_axis(axes.yaxis)
            axes.set(ylabel=f"bandwidth ({mine[0].unit})", title=_direction(name))
        for axes in every[len(panels) :]:
            axes.remove()
        legend(made, every[0])
        caption = (
            f"Medians, and from the least to the most of all repetitions; {_device(sizes)}, {sizes[0].network} "
            f"({source}). Counterpart of Figure 8 of the VOCL paper."
        )
        return [save(made, folder, f"bandwidth-{source}", f"Bandwidth: {source_label(source)}", caption, about=REMOTE)]


def _direction(name: str) -> str:
    words = {"write.nonblocking": "to the device", "read.nonblocking": "from the device"}
    names = {"htod": "to the device", "dtoh": "from the device", "write": "to the device", "read": "from the device"}
    if name in words:
        return words[name]
    return ", ".join(names.get(part, part) for part in name.split("."))


def _calls(rows: Sequence[Row], source: str, folder: Path) -> list[Drawn]:
    """Calls that make and release objects."""
    calls = [row for row in rows if row.program.startswith("call.cl") and row.metric == "value" and row.value > 0]
    names = list(dict.fromkeys(row.program.removeprefix("call.") for row in calls))
    if not names:
        return []
    legs = [leg for leg in _LEGS if any(row.device == leg for row in calls)]
    with figure(height=0.9 + 0.17 * len(names)) as (made, (axes,)):
        for index, leg in enumerate(legs):
            mine = [row for row in calls if row.device == leg]
            places = [names.index(row.program.removeprefix("call.")) for row in mine]
            shape = {**look(index, len(legs)), "linestyle": "none"}
            axes.plot([row.value for row in mine], places, label=_LEGS[leg], **shape)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlabel(f"time of the call ({calls[0].unit})")
        legend(made, axes)
        caption = (
            f"Medians; {_device(calls)}, {calls[0].network} ({source}). Counterpart of Table 3 of the VOCL paper. A "
            "call that waits for no answer is short; its work is done later."
        )
        return [save(made, folder, f"calls-{source}", f"Calls: {source_label(source)}", caption, about=REMOTE)]


def _overhead(rows: Sequence[Row], source: str, folder: Path) -> list[Drawn]:
    """Of whole programs: remote over local, with spread."""
    ratios = whole_programs(rows)
    if not ratios:
        return []
    ratios.sort(key=lambda row: row.value)
    device = _device(ratios)
    with figure(width=7.16 if len(ratios) > _MANY else 0, height=0.7 + 0.15 * len(ratios)) as (made, (axes,)):
        places = range(len(ratios))
        low = [row.value - (row.value if row.least is None else row.least) for row in ratios]
        high = [(row.value if row.most is None else row.most) - row.value for row in ratios]
        axes.errorbar(
            [row.value for row in ratios],
            places,
            xerr=[[max(0.0, value) for value in low], [max(0.0, value) for value in high]],
            fmt="o",
            color=COLOURS[0],
            ecolor="0.55",
            elinewidth=1,
        )
        axes.axvline(1, color=COLOURS[1], linewidth=1, linestyle="--")
        axes.set_yticks(list(places), [program_label(row) for row in ratios])
        axes.set_ylim(-0.7, len(ratios) - 0.3)
        axes.grid(axis="y", visible=False)
        log_axis(axes.xaxis)
        axes.set_xlabel("in times of a local GPU")
        slower = sum(row.value > 1.1 for row in ratios)
        caption = (
            f"Time through Towline: medians of ratios taken within a repetition, least to most; left of the line is "
            f"faster. {slower} of {len(ratios)} programs are more than 10 % slower. {device}, {ratios[0].network} "
            f"({source}). Counterpart of Figures 10 and 11 of the VOCL paper."
        )
        return [save(made, folder, f"overhead-{source}", f"Overhead: {source_label(source)}", caption, about=REMOTE)]


def _clients(rows: Sequence[Row], source: str, folder: Path) -> list[Drawn]:
    """Over client processes at once."""
    launches = [
        row
        for row in rows
        if row.program.startswith("clients.") and ".launches" in row.program and row.metric == "value"
    ]
    lines: dict[str, dict[int, Row]] = {}
    for row in launches:
        count = row.program.split(".")[1]
        if count.isdigit():
            lines.setdefault(row.device, {})[int(count)] = row
    if not lines:
        return []
    with figure() as (made, (axes,)):
        for index, (leg, line) in enumerate(lines.items()):
            clients = sorted(line)
            values = [line[count].value for count in clients]
            axes.plot(clients, values, label=_LEGS.get(leg, leg), **look(index, len(lines)))
        axes.set(xlabel="client processes at once", ylabel=f"launches of all ({launches[0].unit})")
        axes.set_xticks(sorted({count for line in lines.values() for count in line}))
        axes.set_ylim(bottom=0)
        legend(made, axes)
        caption = f"Launches of all clients together; {_device(launches)} ({source})."
        return [
            save(
                made, folder, f"clients-{source}", f"Clients of one GPU: {source_label(source)}", caption, about=REMOTE
            )
        ]


def _devices(rows: Sequence[Row], source: str, folder: Path) -> list[Drawn]:
    """Over several GPUs of one program."""
    gains = [row for row in rows if row.program.startswith("speedup.") and row.metric == "value"]
    counts = sorted({int(row.program.split(".")[-1]) for row in gains if row.program.split(".")[-1].isdigit()})
    programs = list(dict.fromkeys(row.program.rpartition(".")[0] for row in gains))
    if not counts:
        return []
    legs = [leg for leg in _LEGS if any(row.device == leg for row in gains)]
    with figure(min(2, len(legs)), math.ceil(len(legs) / 2)) as (made, every):
        for axes, leg in zip(every, legs, strict=False):
            for index, program in enumerate(programs):
                line = {1: 1.0} | {
                    int(row.program.split(".")[-1]): row.value
                    for row in gains
                    if row.device == leg and row.program.rpartition(".")[0] == program
                }
                name = " ".join(word for word in program.split(".")[1:] if word != "none").replace("_", " ")
                axes.plot(sorted(line), [line[at] for at in sorted(line)], label=name, **look(index, len(programs)))
            axes.plot([1, *counts], [1, *counts], color="0.6", linewidth=1, zorder=1)
            axes.set(xlabel="GPUs", ylabel="times as fast as with one", title=_LEGS[leg], ylim=(0, None))
            axes.set_xticks([1, *counts])
        for axes in every[len(legs) :]:
            axes.remove()
        legend(made, every[0])
        caption = (
            f"The grey line is ideal. {_device(gains)} ({source}). Counterpart of Figures 12 and 13 of the VOCL paper."
        )
        return [save(made, folder, f"devices-{source}", f"Several GPUs: {source_label(source)}", caption, about=REMOTE)]


def _links(rows: Sequence[Row], folder: Path) -> list[Drawn]:
    """Workloads over shaped links, remote over local."""
    shaped = [
        row
        for row in rows
        if row.metric == "ratio"
        and row.device == "remote"
        and "bit/s" in row.network
        and row.program.startswith("workload.")
    ]
    links = sorted(dict.fromkeys(row.network for row in shaped), key=lambda link: float(link.split()[0]))
    if len(links) < 2:
        return []
    families: dict[str, dict[str, list[float]]] = {}
    for row in shaped:
        families.setdefault(row.program.split(".")[1], {}).setdefault(row.network, []).append(row.value)
    with figure(height=2.6) as (made, (axes,)):
        for index, (family, by_link) in enumerate(sorted(families.items())):
            present = [link for link in links if link in by_link]
            middle = [_median(by_link[link]) for link in present]
            at = [links.index(link) for link in present]
            axes.plot(at, middle, label=family.replace("_", " "), **look(index, len(families)))
        axes.axhline(1, color="0.5", linewidth=1)
        axes.set_xticks(range(len(links)), [link.replace(", ", ",\n") for link in links])
        log_axis(axes.yaxis)
        axes.set(xlabel="link: bandwidth, one-way delay", ylabel="in times of a local GPU")
        legend(made, axes)
        caption = f"The median of each workload's sizes; {_device(shaped)}, links shaped in one machine."
        return [save(made, folder, "links", "Workloads over links", caption, about=REMOTE)]


def _energy(rows: Sequence[Row], folder: Path) -> list[Drawn]:
    """Power and energy of a program with a local GPU and through Towline."""
    mine = [row for row in rows if row.metric.endswith(("_power", "_energy")) and row.device in _LEGS]
    programs = list(dict.fromkeys(row.program for row in mine))
    legs = [leg for leg in _LEGS if any(row.device == leg for row in mine)]
    if not programs:
        return []
    panels = [("time (s)", "seconds"), ("power (W)", "power"), ("energy (J)", "energy")]
    found = {(row.program, row.device, row.metric): row.value for row in rows}
    with figure(3, height=2.1) as (made, every):
        for axes, (unit, metric) in zip(every, panels, strict=True):
            for index, leg in enumerate(legs):
                values = [
                    next(
                        (
                            found[program, leg, name]
                            for name in (metric, f"total_{metric}", f"server_{metric}")
                            if (program, leg, name) in found
                        ),
                        0.0,
                    )
                    for program in programs
                ]
                axes.bar(
                    [place + (index - (len(legs) - 1) / 2) * 0.36 for place in range(len(programs))],
                    values,
                    0.34,
                    color=COLOURS[index],
                    hatch=HATCHES[index],
                    edgecolor="white",
                    label=_LEGS[leg],
                )
            names = [program.replace("_", " ") for program in programs]
            axes.set_xticks(range(len(programs)), names)
            axes.grid(axis="x", visible=False)
            axes.set(ylabel=unit)
        legend(made, every[0])
        caption = (
            "Whole programs. Where only the GPU tells its power, as on the machines of these runs, the processors' is "
            "not in it. Counterpart of Figures 1 and 2 of the rCUDA paper."
        )
        return [save(made, folder, "energy", "Time, power and energy", caption, about=REMOTE)]


def _scenarios(rows: Sequence[Row], folder: Path) -> list[Drawn]:
    """Client kind by server kind by link: Figures 1 and 2 of the rCUDA paper, for each program."""
    mine = [row for row in rows if row.client and row.server and row.device == "gpu" and not row.error]
    drawn: list[Drawn] = []
    for program in dict.fromkeys(row.program for row in mine):
        scenarios: dict[str, dict[str, float]] = {}
        for row in mine:
            if row.program == program and not math.isnan(row.value):
                where = "own GPU" if row.server == "local" else f"{row.server}\n{row.network}"
                scenarios.setdefault(f"{row.client} to\n{where}", {})[row.metric] = row.value
        panels = [
            ("time (s)", ("seconds",)),
            ("average power (W)", ("client_power", "server_power")),
            ("energy (J)", ("client_energy", "server_energy")),
        ]
        panels = [panel for panel in panels if any(panel[1][0] in figures for figures in scenarios.values())]
        if not panels:
            continue
        names = list(scenarios)
        with figure(len(panels), height=2.6) as (made, axes_of):
            for axes, (unit, metrics) in zip(axes_of, panels, strict=True):
                below = [0.0] * len(names)
                for index, metric in enumerate(metrics):
                    values = [scenarios[name].get(metric, 0.0) for name in names]
                    axes.bar(
                        range(len(names)),
                        values,
                        bottom=below,
                        color=COLOURS[index],
                        hatch=HATCHES[index],
                        edgecolor="white",
                        label=metric.split("_")[0],
                    )
                    below = [low + value for low, value in zip(below, values, strict=True)]
                axes.set_xticks(range(len(names)), names, rotation=60 if len(names) > 3 else 0)
                axes.grid(axis="x", visible=False)
                axes.set(ylabel=unit)
            if len(panels) > 1:
                legend(made, axes_of[-1])
            caption = (
                "By client, server and link: time, and power and energy of client and server. Counterpart of Figures 1 "
                "and 2 of the rCUDA paper."
            )
            drawn.append(save(made, folder, f"scenarios-{program}", f"{program} on remote GPUs", caption, about=REMOTE))
    return drawn
