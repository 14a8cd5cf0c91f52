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
# Ids in SVG files are the same at every run. Letters are drawn, as a reader's fonts may be wider.
mpl.rcParams["svg.hashsalt"] = "towline"
mpl.rcParams["svg.fonttype"] = "path"

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which people with any colour vision tell apart; the darker ones first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "ooo")

#: Widths of a column and of a page of a two-column paper, in inches: figures are drawn as large as they are printed.
COLUMN, PAGE = 3.5, 7.16

_RC: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.dpi": 200,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "savefig.dpi": 200,
    "xtick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.labelsize": 7.5,
    "ytick.major.width": 0.6,
}

#: What placements are called where people read.
PLACEMENTS = {"block": "block", "cyclic": "cyclic", "mapped": "by communication"}


def placement_label(placement: str) -> str:
    """``rr:2`` in words."""
    kind, _, count = placement.partition(":")
    if kind == "rr":
        return f"{count}-core round robin"
    return PLACEMENTS.get(placement, placement)


#: What is in the names of files of results, in words.
_WORDS = {
    "h100": "H100",
    "h200": "H200",
    "pocl": "PoCL",
    "cuda": "CUDA",
    "tcp": "TCP",
    "shm": "shared memory",
    "2core": "two cores",
    "2cores": "two cores",
    "x2": "two GPUs",
    "gpt2": "GPT-2",
    "python": "Python",
    "infer": "inference",
    "soft": "device in software",
    "epyc": "EPYC",
    "item": "waits for one value",
}


def source_label(source: str) -> str:
    """Name a file of results for people."""
    return " ".join(_WORDS.get(word, word) for word in source.split("-"))


@dataclass(frozen=True)
class Drawn:
    """A figure that was saved."""

    name: str
    title: str
    #: What it shows and what it was made from, for below it.
    caption: str
    png: Path
    svg: Path
    #: Whose part of a report it is in.
    about: str = "placed"
    #: Parts that cover each other.
    flaws: tuple[str, ...] = ()


@contextmanager
def figure(
    columns: int = 1, rows: int = 1, *, width: float = 0, height: float = 2.4
) -> Iterator[tuple[Figure, Sequence[Axes]]]:
    """Give a figure with panels, row by row; it is closed in the end.

    It is a column wide, with panels side by side a page, unless told otherwise. The height is a row's, in inches.
    """
    with mpl.rc_context(_RC):
        size = (width or (COLUMN if columns == 1 else PAGE), height * rows)
        made, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        try:
            yield made, list(axes.flat)
        finally:
            plt.close(made)


def look(index: int, count: int) -> Any:
    """Give the look of a line that is one of several: a later one is thinner, so that an equal one below it shows."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINES[index % len(LINES)],
        "linewidth": 1 + 0.25 * max(0, count - 1 - index),
        "markersize": 3.5 + 0.5 * max(0, count - 1 - index),
        "markerfacecolor": "white",
        "zorder": 2 + index / 100,
    }


def legend(made: Figure, axes: Axes) -> None:
    """Put the legend of a panel, which holds for all, below them."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=1)
    fit = int(made.get_figwidth() / (0.062 * longest + 0.42))
    made.legend(handles, labels, loc="outside lower center", ncols=max(1, min(len(labels), fit)))


def save(made: Figure, folder: Path, name: str, title: str, caption: str, *, about: str = "placed") -> Drawn:
    """Write a figure as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    made.canvas.draw()
    # The layout is found; looking for it again takes most of the time.
    made.set_layout_engine("none")
    made.savefig(png, metadata={"Software": "towline-bench"})
    made.savefig(svg, metadata={"Date": None, "Creator": "towline-bench"})
    return Drawn(name, title, caption, png, svg, about, tuple(_flaws(made)))


def _flaws(made: Figure) -> Iterator[str]:
    """Say which panels and legends cover each other, and what leaves the page."""
    renderer = made.canvas.get_renderer()  # type: ignore[attr-defined]
    parts = [(f"panel {index + 1}", axes.get_tightbbox(renderer)) for index, axes in enumerate(made.axes)]
    parts += [("legend", legend.get_window_extent(renderer)) for legend in made.legends]
    boxes = [(name, box) for name, box in parts if box is not None]
    for index, (name, box) in enumerate(boxes):
        for other, against in boxes[index + 1 :]:
            # A pixel is a 200th of an inch.
            shared = (
                min(box.x1, against.x1) - max(box.x0, against.x0),
                min(box.y1, against.y1) - max(box.y0, against.y0),
            )
            if min(shared) > 2:
                yield f"{name} and {other} touch"
        if min(box.x0, box.y0, made.bbox.x1 - box.x1, made.bbox.y1 - box.y1) < -2:
            yield f"{name} leaves the figure"


def log_axis(axis: Axis) -> None:
    """Make an axis of figures that differ in scale, with plain numbers."""
    axes = axis.axes
    axes.set_yscale("log") if axis is axes.yaxis else axes.set_xscale("log")
    least, most = sorted(axis.get_view_interval())
    subs = (1, 2, 5) if most > 4 * max(least, 1e-300) else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    axis.set_major_locator(LogLocator(subs=subs if most < 200 * max(least, 1e-300) else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


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
