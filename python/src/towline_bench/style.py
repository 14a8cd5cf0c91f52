"""One style for all figures: what is told apart by colour is told apart by shape, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")
# Ids in SVG files are the same at every run, and text stays text.
mpl.rcParams["svg.hashsalt"] = "towline"
mpl.rcParams["svg.fonttype"] = "none"

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which people with any colour vision tell apart; the darker ones first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "ooo")

_RC: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.dpi": 100,
    "figure.titlesize": 12,
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "savefig.dpi": 130,
}

#: What placements are called where people read.
PLACEMENTS = {"block": "block", "cyclic": "cyclic", "mapped": "by communication"}


def placement_label(placement: str) -> str:
    """``rr:2`` in words."""
    kind, _, count = placement.partition(":")
    if kind == "rr":
        return f"{count}-core round robin"
    return PLACEMENTS.get(placement, placement)


@dataclass(frozen=True)
class Drawn:
    """A figure that was saved."""

    name: str
    title: str
    #: What it shows and what it was made from, for below it.
    caption: str
    png: Path
    svg: Path


@contextmanager
def figure(columns: int = 1, *, width: float = 4.6, height: float = 3.4) -> Iterator[tuple[Figure, Sequence[Axes]]]:
    """Give a figure with so many panels side by side; it is closed in the end."""
    with mpl.rc_context(_RC):
        made, axes = plt.subplots(1, columns, figsize=(width * columns, height), layout="constrained", squeeze=False)
        try:
            yield made, list(axes[0])
        finally:
            plt.close(made)


def save(made: Figure, folder: Path, name: str, title: str, caption: str) -> Drawn:
    """Write a figure as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    made.savefig(png, metadata={"Software": "towline-bench"})
    made.savefig(svg, metadata={"Date": None, "Creator": "towline-bench"})
    return Drawn(name, title, caption, png, svg)


def tasks_axis(axes: Axes, tasks: Sequence[int], label: str = "tasks") -> None:
    """Make the x axis one of doublings with the numbers that were run."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(tasks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.set_xlabel(label)
    # 384 and 512 stand close on this axis.
    if any(big < 1.5 * small for small, big in pairwise(tasks)):
        axes.tick_params(axis="x", labelrotation=45)


def bytes_label(size: float) -> str:
    """A size in the unit that suits it."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:g} {unit}"
    return f"{size:g} B"


def bytes_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """Make the x axis one of sizes."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(sizes)[:: max(1, len(sizes) // 6)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: bytes_label(value)))
    axes.tick_params(axis="x", labelrotation=30)
    axes.set_xlabel("size of a transfer")
