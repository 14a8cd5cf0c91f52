"""All figures that a table has the rows for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from towline_bench.figures import placed, remote
from towline_bench.style import Drawn
from towline_bench.table import Row


def draw(rows: Sequence[Row], folder: Path) -> Iterator[Drawn]:
    """Draw them into a folder, as PNG and SVG, one after the other; of remote GPUs first."""
    yield from remote.draw(rows, folder)
    yield from placed.draw(rows, folder)
