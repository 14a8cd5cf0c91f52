"""The sequence of a seed, as text that differ.c carries out. A seed always gives the same sequence."""

from __future__ import annotations

import random

from driver import Driver
from runtime import Runtime
from sequence import Sequence

APIS: dict[str, type[Sequence]] = {"driver": Driver, "runtime": Runtime}


def sequence(seed: int, api: str, devices: int, length: int = 24) -> tuple[str, list[str]]:
    """The name and the lines of a seed's sequence."""
    rng = random.Random(seed)
    if seed % 128 == 0:
        return f"{seed} fresh", APIS[api].early(rng)
    grown = APIS[api](rng, devices)
    grown.grow(length)
    return str(seed), grown.lines


def render(items: list[tuple[str, list[str]]], api: str, devices: int) -> str:
    """Sequences as the text of a file, behind the prologue."""
    second = APIS[api].SECOND if devices > 1 else ""
    parts = [APIS[api].PROLOGUE.removesuffix("end\n") + second + "end\n"]
    for name, lines in items:
        parts.append(f"sequence {name}\n" + "".join(f"  {line}\n" for line in lines) + "end\n")
    return "".join(parts)
