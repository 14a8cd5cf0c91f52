"""All figures that a table has the rows for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from towline_bench.figures import placed, remote
from towline_bench.style import Drawn
from towline_bench.table import Row


def draw(rows: Sequence[Row], folder: Path) -> list[Drawn]:
    """Draw them into a folder, as PNG and SVG."""
    return [*placed.draw(rows, folder), *remote.draw(rows, folder)]
