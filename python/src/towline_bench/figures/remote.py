"""Remote GPUs: bandwidth, overhead over a local GPU, scaling over clients, links, power and energy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from towline_bench.style import COLOURS, HATCHES, LINES, MARKERS, Drawn, bytes_axis, figure, save
from towline_bench.table import Row

_LEGS = {"native": "local GPU", "remote": "Towline", "tcp": "plain TCP", "local": "Towline, own GPU"}


def draw(rows: Sequence[Row], folder: Path) -> list[Drawn]:
    """Draw whatever the rows have."""
    drawn: list[Drawn] = []
    sources = dict.fromkeys(row.source for row in rows)
    for source in sources:
        mine = [row for row in rows if row.source == source]
        drawn += _bandwidth(mine, source, folder)
        drawn += _overhead(mine, source, folder)
        drawn += _scaling(mine, source, folder)
    drawn += _links(rows, folder)
    drawn += _scenarios(rows, folder)
    return drawn


def _device(rows: Sequence[Row]) -> str:
    return next((row.server for row in rows if row.server), "")


def _bandwidth(rows: Sequence[Row], source: str, folder: Path) -> list[Drawn]:
    """By size, one panel a direction; of what does not block, whose data has arrived."""
    sizes = [row for row in rows if row.program.startswith("bandwidth.") and row.metric == "value" and row.size]
    sizes = [row for row in sizes if ".blocking." not in row.program]
    panels: dict[str, list[Row]] = {}
    for row in sizes:
        panels.setdefault(".".join(row.program.split(".")[1:-1]), []).append(row)
    if not panels:
        return []
    device = _device(sizes)
    with figure(len(panels), width=4.4) as (made, axes_of):
        for axes, (name, mine) in zip(axes_of, panels.items(), strict=True):
            for index, leg in enumerate(leg for leg in _LEGS if any(row.device == leg for row in mine)):
                line = sorted((row.size, row) for row in mine if row.device == leg)
                values = [row.value for _, row in line]
                axes.plot(
                    [size for size, _ in line],
                    values,
                    color=COLOURS[index],
                    marker=MARKERS[index],
                    linestyle=LINES[index],
                    label=_LEGS[leg],
                )
                least = [row.value if row.least is None else row.least for _, row in line]
                most = [row.value if row.most is None else row.most for _, row in line]
                axes.fill_between(
                    [size for size, _ in line], least, most, color=COLOURS[index], alpha=0.15, linewidth=0
                )
            bytes_axis(axes, sorted({row.size for row in mine}))
            axes.set_yscale("log")
            axes.set(ylabel=f"bandwidth ({mine[0].unit})", title=_direction(name))
        axes_of[0].legend()
        made.suptitle(f"Bandwidth, {device}, {sizes[0].network}")
        caption = (
            f"Medians, and from the least to the most of all repetitions; {device}, {sizes[0].network} ({source})."
        )
        return [save(made, folder, f"bandwidth-{source}", "Bandwidth", caption)]


def _direction(name: str) -> str:
    words = {"write.nonblocking": "to the device", "read.nonblocking": "from the device"}
    names = {"htod": "to the device", "dtoh": "from the device", "write": "to the device", "read": "from the device"}
    if name in words:
        return words[name]
    return ", ".join(names.get(part, part) for part in name.split("."))


def _overhead(rows: Sequence[Row], source: str, folder: Path) -> list[Drawn]:
    """Of whole programs: remote over local, with spread."""
    ratios = [
        row
        for row in rows
        if row.metric == "ratio" and row.device == "remote" and row.program.split(".")[0] in ("workload", "program")
    ]
    if not ratios:
        return []
    ratios.sort(key=lambda row: row.value)
    names = [
        " ".join(word for word in row.program.split(".")[1:] if word != "none").replace("_", " ") for row in ratios
    ]
    device = _device(ratios)
    with figure(width=6.4, height=1.3 + 0.23 * len(ratios)) as (made, (axes,)):
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
            elinewidth=1.2,
        )
        axes.axvline(1, color=COLOURS[1], linewidth=1.2, linestyle="--")
        axes.set_yticks(list(places), names)
        axes.grid(axis="y", visible=False)
        axes.set_xlim(left=0)
        axes.set(
            xlabel="time through Towline, in times of that with a local GPU",
            title=f"Overhead of whole programs, {device}",
        )
        slower = sum(row.value > 1.1 for row in ratios)
        caption = (
            f"Medians of ratios taken within a repetition, least to most; left of the line is faster. {slower} of "
            f"{len(ratios)} programs are more than 10 % slower. {device}, {ratios[0].network} ({source})."
        )
        return [save(made, folder, f"overhead-{source}", "Overhead over a local GPU", caption)]


def _scaling(rows: Sequence[Row], source: str, folder: Path) -> list[Drawn]:
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
    with figure(width=5.0) as (made, (axes,)):
        for index, (leg, line) in enumerate(lines.items()):
            clients = sorted(line)
            axes.plot(
                clients,
                [line[count].value for count in clients],
                color=COLOURS[index],
                marker=MARKERS[index],
                linestyle=LINES[index],
                label=_LEGS.get(leg, leg),
            )
        axes.set(
            xlabel="client processes at once",
            ylabel=f"launches of all ({launches[0].unit})",
            title="Clients of one GPU",
        )
        axes.set_ylim(bottom=0)
        axes.legend()
        caption = f"Launches of all clients together; {_device(launches)} ({source})."
        return [save(made, folder, f"clients-{source}", "Clients of one GPU", caption)]


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
    with figure(width=6.2) as (made, (axes,)):
        for index, (family, by_link) in enumerate(sorted(families.items())):
            present = [link for link in links if link in by_link]
            middle = [sorted(by_link[link])[len(by_link[link]) // 2] for link in present]
            axes.plot(
                [links.index(link) for link in present],
                middle,
                color=COLOURS[index % len(COLOURS)],
                marker=MARKERS[index % len(MARKERS)],
                linestyle=LINES[index % len(LINES)],
                label=family.replace("_", " "),
            )
        axes.axhline(1, color="0.5", linewidth=1)
        axes.set_xticks(range(len(links)), [link.replace(", ", ",\n") for link in links])
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set(
            xlabel="link: bandwidth, one-way delay", ylabel="time, in times of local", title="Workloads over links"
        )
        axes.legend()
        caption = f"The median of each workload's sizes; {_device(shaped)}, links shaped in one machine."
        return [save(made, folder, "links", "Workloads over links", caption)]


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
        with figure(len(panels), width=max(3.6, 0.9 * len(names) + 1.2), height=3.6) as (made, axes_of):
            for axes, (unit, metrics) in zip(axes_of, panels, strict=True):
                below = [0.0] * len(names)
                for index, metric in enumerate(metrics):
                    values = [scenarios[name].get(metric, 0.0) for name in names]
                    part = metric.split("_")[0] if len(metrics) > 1 else None
                    axes.bar(
                        range(len(names)),
                        values,
                        bottom=below,
                        color=COLOURS[index],
                        hatch=HATCHES[index],
                        edgecolor="white",
                        label=part,
                    )
                    below = [low + value for low, value in zip(below, values, strict=True)]
                axes.set_xticks(range(len(names)), names, fontsize=8)
                axes.grid(axis="x", visible=False)
                axes.set(ylabel=unit)
                if len(metrics) > 1:
                    axes.legend()
            made.suptitle(f"{program}: clients, servers and links")
            caption = (
                "By client, server and link: time, and power and energy of client and server, as in the rCUDA paper's "
                "Figures 1 and 2."
            )
            drawn.append(save(made, folder, f"scenarios-{program}", f"{program} on remote GPUs", caption))
    return drawn
