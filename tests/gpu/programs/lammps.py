"""Runs the user's own LAMMPS on `lammps.in`. A step is a time step, as LAMMPS itself tells it.

The command is in the variable LAMMPS, as in `lmp -sf gpu -pk gpu 1` or `lmp -k on g 1 -sf kk`.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys

import harness

# LAMMPS's own log of this system (bench/log.lj): energy per atom of the lattice, whatever its size.
LATTICE_ENERGY = -6.7733681


def thermo_of(log: str) -> list[list[str]]:
    """The rows of numbers below the heading `Step ...`."""
    rows: list[list[str]] = []
    inside = False
    for line in log.splitlines():
        words = line.split()
        if words[:1] == ["Step"]:
            inside = True
        elif words[:2] == ["Loop", "time"]:
            inside = False
        elif inside and words and words[0].isdigit():
            rows.append(words)
    return rows


def loop_of(log: str) -> tuple[float, int, int] | None:
    """Seconds, steps and atoms of the run."""
    found = re.search(r"Loop time of (\S+) on .* for (\d+) steps with (\d+) atoms", log)
    return (float(found[1]), int(found[2]), int(found[3])) if found else None


def main() -> None:
    parser = harness.arguments(__doc__ or "", steps=2000, rounds=1)
    parser.add_argument("--cells", type=int, default=76)
    options = parser.parse_args()
    command = shlex.split(os.environ.get("LAMMPS", ""))
    if not command:
        print("skipped: the variable LAMMPS names no command", file=sys.stderr)
        sys.exit(harness.SKIPPED)
    script = pathlib.Path(__file__).with_name("lammps.in")
    command += ["-in", str(script), "-log", "none", "-var", "cells", str(options.cells), "-var", "steps", str(options.steps)]
    log = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    print(log)
    loop, rows = loop_of(log), thermo_of(log)
    assert loop and rows, "LAMMPS has told neither its loop time nor its thermodynamic state"
    seconds, steps, atoms = loop
    assert atoms == 4 * options.cells**3, f"{atoms} atoms"
    energy = float(rows[0][2])
    assert abs(energy - LATTICE_ENERGY) < 1e-4, f"the lattice has {energy} per atom, not {LATTICE_ENERGY}"
    results = harness.Results()
    for row in rows:
        results.add([float(word) for word in row])
    ms = seconds * 1e3 / steps
    clock = harness.Clock("lammps", options)
    clock.report(results, ms_per_step={"median": ms, "min": ms, "max": ms}, atoms=atoms)


if __name__ == "__main__":
    main()
