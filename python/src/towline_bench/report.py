"""One page that needs nothing else: what was run, where, what to choose, how sure."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from towline_bench.figures.placed import COMPILERS, label, network_label
from towline_bench.figures.remote import program_label, whole_programs
from towline_bench.style import Drawn, placement_label, source_label
from towline_bench.table import Row

#: Two placements whose times differ by less are the same, whatever was measured.
SAME = 0.01
#: A program whose time is this many times a local GPU's is as good as local.
NEAR = 1.1

_STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; max-width: 68rem; margin: 1rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; margin: .4rem 0; } h2 { margin-top: 2.2rem; border-bottom: 1px solid #ccc; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: .6rem 0; }
dt { font-weight: 600; color: #555; } dd { margin: 0; } dd.main { font-size: 1.15rem; font-weight: 600; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
th { background: #f3f3f3; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: .8rem 0 2rem; } figure img { max-width: 100%; height: auto; }
figcaption { color: #555; font-size: .9rem; max-width: 46rem; }
summary { cursor: pointer; font-weight: 600; }
.sure { color: #00674b; } .unsure { color: #a34700; }
@media print { figure { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Choice:
    """The best placement of one program at one size."""

    network: str
    program: str
    device: str
    tasks: int
    best: Row
    #: The best of the others, and the worst.
    second: Row | None
    worst: Row
    #: The placements that are as good as the best.
    good: tuple[str, ...]

    @property
    def lead(self) -> float:
        """How much slower the second is, as a share."""
        return math.inf if self.second is None else self.second.value / self.best.value - 1

    @property
    def loss(self) -> float:
        """How much slower the worst is, as a share."""
        return self.worst.value / self.best.value - 1

    def verdict(self) -> tuple[bool, str]:
        """Say whether the choice is sure, and why."""
        if self.second is None:
            return False, "nothing to compare with"
        if self.lead < SAME:
            return False, f"as good: {placement_label(self.second.placement)}"
        spread = [
            row for row in (self.best, self.second) if row.least is not None and row.most is not None and row.runs > 1
        ]
        if len(spread) == 2 and (spread[0].most or 0) >= (spread[1].least or 0):
            return False, f"runs of the two overlap ({self.best.runs} each)"
        if self.best.source == "simulated":
            return True, "by the model: simulated, not measured"
        if self.best.runs == 1:
            return False, "one run each"
        return True, f"no run of another was as fast ({self.best.runs} each)"


def choices(rows: Iterable[Row]) -> list[Choice]:
    """What to choose, for each program, device, network and number of tasks."""
    groups: dict[tuple[str, str, str, str, int], list[Row]] = {}
    for row in rows:
        if row.metric == "seconds" and row.placement and not row.error and not math.isnan(row.value):
            groups.setdefault((row.network, row.program, row.compiler, row.device, row.tasks), []).append(row)
    found = []
    for (network, program, compiler, device, tasks), group in groups.items():
        ranked = sorted(group, key=lambda row: row.value)
        name = f"{label(program)}{f' ({COMPILERS.get(compiler, compiler)})' if compiler else ''}"
        second = ranked[1] if len(ranked) > 1 else None
        good = tuple(row.placement for row in ranked if row.value <= ranked[0].value * (1 + SAME))
        found.append(Choice(network, name, device, tasks, ranked[0], second, ranked[-1], good))
    return found


def agreement(rows: Iterable[Row]) -> tuple[float, int]:
    """Kendall's rank correlation of estimates with times, the mean over programs, sizes and networks, and how many.

    Placements within a percent of each other count as equal, as in ``cargo xtask study``.
    """
    groups: dict[tuple[str, str, str, str, int], dict[str, dict[str, float]]] = {}
    for row in rows:
        if row.metric in ("seconds", "estimate_s") and row.placement and not math.isnan(row.value):
            group = groups.setdefault((row.network, row.program, row.compiler, row.device, row.tasks), {})
            group.setdefault(row.placement, {})[row.metric] = row.value
    taus = []
    for group in groups.values():
        pairs = [(figures["estimate_s"], figures["seconds"]) for figures in group.values() if len(figures) == 2]
        compared = [
            _order(one[0], other[0]) * _order(one[1], other[1])
            for index, one in enumerate(pairs)
            for other in pairs[index + 1 :]
        ]
        decided = [sign for sign in compared if sign]
        if decided:
            taus.append(sum(decided) / len(decided))
    return (sum(taus) / len(taus) if taus else 0.0), len(taus)


def _order(one: float, other: float) -> int:
    return 0 if abs(one / other - 1) < SAME else (1 if one > other else -1)


def write(path: Path, title: str, rows: Sequence[Row], figures: Sequence[Drawn], remarks: Sequence[str] = ()) -> None:
    """Write the page: the answers and the first figure, then the other figures, then all tables, folded."""
    found = choices(rows)
    failed = [row for row in rows if row.error]
    others = figures[1:]
    parts = [
        f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(title)}</h1>",
        _answers(rows, found),
        *(f"<p>{html.escape(remark)}</p>" for remark in remarks),
        *map(_figure, figures[:1]),
    ]
    for heading, mine in (
        ("Remote GPUs", [one for one in others if one.about == "remote"]),
        (
            "Placement of MPI programs",
            sorted((one for one in others if one.about != "remote"), key=lambda one: one.name),
        ),
    ):
        if mine:
            parts += [f"<h2>{heading}</h2>", *map(_figure, mine)]
    parts += ["<h2>Tables</h2>", _folded("What was measured", _inventory(rows))]
    if found:
        parts += [_folded("What to choose, by program", _by_program(found))]
        parts += [_folded(f"What to choose, in all {len(found)} cases", _choice_table(found))]
    programs = whole_programs(rows)
    if programs:
        parts.append(_folded(f"All {len(programs)} whole programs on remote GPUs", _program_table(programs)))
    if failed:
        parts.append(_folded(f"What failed: {len(failed)}", _failures(failed)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def _folded(heading: str, inside: str) -> str:
    return f"<details><summary>{html.escape(heading)}</summary>{inside}</details>"


def _answers(rows: Sequence[Row], found: Sequence[Choice]) -> str:
    """Say what was measured, the figure that matters, what to choose, how sure: one line each."""
    programs = whole_programs(rows)
    measured, main, choose, sure = [], [], [], []
    if programs:
        ratios = sorted(row.value for row in programs)
        near = sum(value <= NEAR for value in ratios)
        worst = max(programs, key=lambda row: row.value)
        devices = ", ".join(dict.fromkeys(row.server for row in programs if row.server))
        measured.append(f"{len(programs)} runs of whole programs on remote GPUs and on local ones ({devices})")
        main.append(
            f"A program on a remote GPU takes {ratios[len(ratios) // 2]:.2f} times as long as on a local one (median)"
        )
        choose.append(
            f"A remote GPU costs at most {100 * (NEAR - 1):.0f} % in {near} of {len(ratios)} runs, and most in "
            f"{program_label(worst)} ({source_label(worst.source)}): {worst.value:.1f} times"
        )
        repeated = sum(row.runs > 1 for row in programs)
        sure.append(f"Ratios are medians of turns within one run; {repeated} of {len(ratios)} were repeated")
    if found:
        placed = {row.program for row in rows if row.metric == "seconds" and row.placement}
        networks = " and ".join(dict.fromkeys(network_label(choice.network) for choice in found if choice.network))
        measured.append(
            f"{len(placed)} MPI programs, {len(found)} cases of size and network{f' ({networks})' if networks else ''}"
        )
        good: dict[str, int] = {}
        for choice in found:
            for placement in choice.good:
                good[placement] = good.get(placement, 0) + 1
        most = max(good, key=lambda placement: good[placement])
        loss = max(found, key=lambda choice: choice.loss)
        if not programs:
            main.append(
                f"A wrong placement costs up to {100 * loss.loss:.0f} % ({loss.program}, {loss.tasks} tasks"
                f"{f', {network_label(loss.network)}' if loss.network else ''})"
            )
        choose.append(
            f"For MPI programs, {placement_label(most)} is the best placement or as good in {good[most]} of "
            f"{len(found)} cases; a wrong one costs up to {100 * loss.loss:.0f} %"
        )
        simulated = sum(choice.best.source == "simulated" for choice in found)
        certain = sum(choice.verdict()[0] for choice in found)
        by_model = f", by a model in {simulated} cases (simulated, not measured)" if simulated else ""
        sure.append(f"The best placement is told from the next in {certain} of {len(found)} cases{by_model}")
        tau, groups = agreement(rows)
        if groups:
            sure.append(
                f"The quick estimate orders placements as the runs do: Kendall's tau {tau:.2f} over {groups} cases"
            )
    failed = sum(bool(row.error) for row in rows)
    if failed:
        sure.append(f"{failed} points failed and are in no figure")
    if not main:
        measured.append(f"{len(rows)} figures of {len({row.program for row in rows})} programs")
        main.append("No whole programs and no placements were compared")
    lines = (
        ("Measured", "", measured),
        ("In short", " class=main", main),
        ("Choose", "", choose),
        ("How sure", "", sure),
    )
    shown = (f"<dt>{term}</dt><dd{kind}>{html.escape('. '.join(texts))}.</dd>" for term, kind, texts in lines if texts)
    return f"<dl>{''.join(shown)}</dl>"


def _by_program(found: Sequence[Choice]) -> str:
    programs: dict[tuple[str, str, str], list[Choice]] = {}
    for choice in found:
        programs.setdefault((choice.network, choice.program, choice.device), []).append(choice)
    lines = []
    for (network, program, device), mine in programs.items():
        won: dict[str, int] = {}
        for choice in mine:
            for placement in choice.good:
                won[placement] = won.get(placement, 0) + 1
        best = max(won, key=lambda placement: won[placement])
        certain = sum(choice.verdict()[0] for choice in mine)
        lines.append(
            [
                _cell(network_label(network)),
                _cell(program + (" with GPUs" if device == "gpu" else "")),
                _cell(placement_label(best)),
                _number(f"{won[best]} of {len(mine)}"),
                _number(f"{certain} of {len(mine)}"),
                _number(f"+{100 * max(choice.loss for choice in mine):.0f} %"),
            ]
        )
    heading = ["network", "program", "placement", "best or as good, sizes", "told apart, sizes", "worst costs"]
    return _table(heading, lines)


def _program_table(programs: Sequence[Row]) -> str:
    lines = []
    for row in sorted(programs, key=lambda row: -row.value):
        spread = "" if row.least is None or row.most is None else f"{row.least:.2f} to {row.most:.2f}"
        cells = [_cell(source_label(row.source)), _cell(program_label(row)), _number(f"{row.value:.2f}")]
        lines.append([*cells, _number(spread), _number(str(row.runs))])
    return _table(["results", "program", "in times of a local GPU", "least to most", "turns"], lines)


def _table(heading: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{cell}</th>" for cell in heading)
    body = "".join("<tr>" + "".join(cells) + "</tr>" for cells in lines)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(text: str) -> str:
    return f"<td>{html.escape(text)}</td>"


def _number(text: str) -> str:
    return f"<td class=number>{html.escape(text)}</td>"


def _inventory(rows: Sequence[Row]) -> str:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.source, row.network, row.server if row.server != "local" else ""), []).append(row)
    lines = []
    for (source, network, server), mine in groups.items():
        programs = sorted({row.program.split(".")[0] for row in mine})
        tasks = sorted({row.tasks for row in mine if row.tasks})
        sizes = f"{tasks[0]} to {tasks[-1]}" if tasks else ""
        points = len({(row.program, row.tasks, row.placement, row.compiler, row.device, row.client) for row in mine})
        failed = sum(bool(row.error) for row in mine)
        cells = [
            _cell(source),
            _cell(network_label(network)),
            _cell(server),
            _cell(", ".join(programs)),
            _number(sizes),
        ]
        lines.append([*cells, _number(str(points)), _number(str(failed))])
    return _table(["source", "network", "GPU", "programs", "tasks", "points", "failed"], lines)


def _choice_table(found: Sequence[Choice]) -> str:
    lines = []
    for choice in found:
        sure, why = choice.verdict()
        second = f"+{100 * choice.lead:.1f} %" if choice.second else ""
        lines.append(
            [
                _cell(network_label(choice.network)),
                _cell(choice.program + (" with GPUs" if choice.device == "gpu" else "")),
                _number(str(choice.tasks)),
                _cell(placement_label(choice.best.placement)),
                _number(f"{choice.best.value:.4g} s"),
                _number(second),
                _number(f"+{100 * choice.loss:.0f} %"),
                f"<td class={'sure' if sure else 'unsure'}>{'sure: ' if sure else 'open: '}{html.escape(why)}</td>",
            ]
        )
    heading = ["network", "program", "tasks", "best placement", "time", "next best", "worst", "how sure"]
    return _table(heading, lines)


def _failures(failed: Sequence[Row]) -> str:
    lines = [
        [_cell(row.program), _number(str(row.tasks or "")), _cell(row.placement), _cell(row.client), _cell(row.error)]
        for row in failed
    ]
    return _table(["program", "tasks", "placement", "client", "why"], lines)


def _figure(drawn: Drawn) -> str:
    image = base64.b64encode(drawn.svg.read_bytes()).decode()
    title = html.escape(drawn.title)
    source = f"data:image/svg+xml;base64,{image}"
    caption = f"<figcaption><b>{title}.</b> {html.escape(drawn.caption)}</figcaption>"
    return f'<figure><img alt="{title}" src="{source}">{caption}</figure>'
