"""One page that needs nothing else: what was run, where, what to choose, how sure."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from towline_bench.figures.placed import COMPILERS, label, network_label
from towline_bench.style import Drawn, placement_label
from towline_bench.table import Row

#: Two placements whose times differ by less are the same, whatever was measured.
SAME = 0.01

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.8rem; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
th { background: #f3f3f3; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 2rem 0; } figure img { max-width: 100%; height: auto; } figcaption { color: #555; font-size: .9rem; }
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
        found.append(Choice(network, name, device, tasks, ranked[0], second, ranked[-1]))
    return found


def agreement(rows: Iterable[Row]) -> tuple[float, int]:
    """Kendall's rank correlation of estimates with times, the mean over programs, sizes and networks, and how many.

    Placements within a percent of each other count as equal, as in ``towline simulate study``.
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
    """Write the page."""
    found = choices(rows)
    parts = [
        f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(title)}</h1>",
        "<h2>In short</h2>",
        _summary(rows, found),
        *(f"<p>{html.escape(remark)}</p>" for remark in remarks),
        "<h2>What was run</h2>",
        _inventory(rows),
    ]
    if found:
        parts += ["<h2>What to choose</h2>", _choice_table(found)]
    failed = [row for row in rows if row.error]
    if failed:
        parts += ["<h2>What failed</h2>", _failures(failed)]
    if figures:
        parts += ["<h2>Figures</h2>", *map(_figure, figures)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def _summary(rows: Sequence[Row], found: Sequence[Choice]) -> str:
    lines: list[str] = []
    programs: dict[tuple[str, str, str], list[Choice]] = {}
    for choice in found:
        programs.setdefault((choice.network, choice.program, choice.device), []).append(choice)
    for (network, program, device), mine in programs.items():
        won: dict[str, int] = {}
        for choice in mine:
            won[choice.best.placement] = won.get(choice.best.placement, 0) + 1
        best = max(won, key=lambda placement: won[placement])
        most = max(choice.loss for choice in mine)
        sure = sum(choice.verdict()[0] for choice in mine)
        lines.append(
            f"<li><b>{html.escape(program)}</b>{' with GPUs' if device == 'gpu' else ''}"
            f"{f', {html.escape(network_label(network))}' if network else ''}: "
            f"{placement_label(best)} is best at {won[best]} of {len(mine)} sizes ({sure} of them for sure); "
            f"the worst placement costs up to {100 * most:.0f} %.</li>"
        )
    tau, groups = agreement(rows)
    text = f"<ul>{''.join(lines)}</ul>" if lines else "<p>No placements were compared.</p>"
    if groups:
        order = f"Kendall's tau {tau:.2f}, the mean over {groups} cases"
        text += f"<p>The quick estimate orders placements as the runs do: {order}.</p>"
    ratios = [
        row for row in rows if row.metric == "ratio" and row.device == "remote" and row.program.startswith("workload.")
    ]
    if ratios:
        middle = sorted(row.value for row in ratios)[len(ratios) // 2]
        count = f"the median of {len(ratios)}"
        text += f"<p>Programs on a remote GPU take {middle:.2f} times as long as on a local one, {count}.</p>"
    return text


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
