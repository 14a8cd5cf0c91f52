"""Runs the user's own CUDASW++ on a generated database as large as Swiss-Prot. A step is the whole search.

The variable CUDASW has the command, with {query} and {database} for files in FASTA, as in
`cudasw -query {query} -db {database}` (version 3); a version that wants its own format first takes a script of both commands.
"""

from __future__ import annotations

import math
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

import harness

LETTERS = "ARNDCQEGHILKMFPSTWYV"
# Residues of Swiss-Prot in 1/10,000.
SHARES = (826, 552, 406, 546, 138, 393, 672, 707, 228, 591, 965, 580, 241, 386, 474, 665, 536, 110, 292, 686)
MEDIAN, MEAN, SHORTEST, LONGEST = 294, 361, 2, 35213


def protein(length: int, source: random.Random) -> str:
    return "".join(source.choices(LETTERS, SHARES, k=length))


def write_database(file: pathlib.Path, sequences: int, source: random.Random) -> None:
    spread = math.sqrt(2 * math.log(MEAN / MEDIAN))
    with file.open("w", encoding="ascii") as out:
        for number in range(sequences):
            length = int(min(max(source.lognormvariate(math.log(MEDIAN), spread), SHORTEST), LONGEST))
            out.write(f">sequence{number}\n{protein(length, source)}\n")


def scores_of(text: str) -> list[str]:
    """What looks like a hit: everything that names a sequence."""
    return [line.strip() for line in text.splitlines() if "sequence" in line]


def main() -> None:
    parser = harness.arguments(__doc__ or "", steps=1, rounds=3)
    parser.add_argument("--sequences", type=int, default=573_000)
    parser.add_argument("--query", type=int, default=464)
    options = parser.parse_args()
    template = os.environ.get("CUDASW", "")
    if not template:
        print("skipped: the variable CUDASW has no command", file=sys.stderr)
        sys.exit(harness.SKIPPED)
    assert "{query}" in template and "{database}" in template, "CUDASW must have {query} and {database} in it"
    source = random.Random(1)
    # Kept beside other temporary files: making it takes longer than the search.
    database = pathlib.Path(tempfile.gettempdir()) / f"cudasw-{options.sequences}.fasta"
    if not database.exists():
        part = database.with_suffix(f".{os.getpid()}")
        write_database(part, options.sequences, source)
        part.rename(database)
    with tempfile.NamedTemporaryFile("w", suffix=".fasta") as query:
        query.write(f">query\n{protein(options.query, random.Random(2))}\n")
        query.flush()
        command = [word.format(query=query.name, database=database) for word in shlex.split(template)]
        times, results, rates = [], harness.Results(), []
        for _ in range(options.rounds):
            start = time.perf_counter()
            text = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
            times.append((time.perf_counter() - start) * 1e3)
            rates += [float(rate) for rate in re.findall(r"([\d.]+)\s*GCUPS", text)]
        print(text)
    hits = scores_of(text)
    assert hits, "CUDASW++ has named no sequence"
    results.add([ord(letter) for letter in "\n".join(hits)])
    clock = harness.Clock("cudasw", options)
    times.sort()
    steps = {"median": times[len(times) // 2], "min": times[0], "max": times[-1]}
    clock.report(results, ms_per_step=steps, gcups=max(rates, default=None))


if __name__ == "__main__":
    main()
