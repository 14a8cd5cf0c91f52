"""Compares two runs of a program by what they asked the driver, and what it answered, after each mark that the program made."""

import argparse
import difflib
import re
from collections import Counter
from pathlib import Path

API = Path(__file__).resolve().parents[3] / "api" / "cuda"
WORD = r' ("[^"]*"|\[[^\]]*\]|[0-9a-fP]+)'
LINE = re.compile(rf"(\d+) (\w+)((?:{WORD})*) = (-?\d+)$")


def declared() -> dict[str, int]:
    """How many parameters each function has."""
    found = {}
    for file in API.glob("*.rs"):
        for name, list_ in re.findall(r"^    fn (cu\w+)\(([^;]*?)\)\s*->", file.read_text(), re.MULTILINE):
            found[name] = len(re.findall(r"\w+: ", list_))
    return found


COUNTS = declared()


def parameters(name: str) -> int:
    """An address that was asked for has the name without its version."""
    known = [of for of in (name, f"{name}_v2", f"{name}_v3", name.removesuffix("_ptsz"), name.removesuffix("_ptds")) if of in COUNTS]
    return COUNTS[known[0]] if known else 6


def sections(path: Path, threads: bool) -> dict[str, list[str]]:
    """Each call as text, without arguments that it does not have, by the mark before it."""
    found: dict[str, list[str]] = {"": []}
    mark, first = "", None
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("== "):
            mark = line[3:]
            found.setdefault(mark, [])
            continue
        match = LINE.match(line)
        if match is None:
            continue
        first = first or match[1]
        if threads or match[1] == first:
            words = re.findall(WORD, match[3])[: parameters(match[2])]
            found[mark].append(f"{match[2]}({', '.join(words)}) = {match[5]}")
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("logs", nargs=2, type=Path)
    arguments.add_argument("--mark", help="only what follows this mark")
    arguments.add_argument("--all-threads", action="store_true")
    arguments.add_argument("--lines", type=int, default=400)
    options = arguments.parse_args()
    sides = [sections(log, options.all_threads) for log in options.logs]
    for mark in sides[0]:
        if options.mark not in (None, mark):
            continue
        left, right = sides[0][mark], sides[1].get(mark, [])
        print(f"== {mark}: {len(left)} and {len(right)} calls")
        counts = [Counter(call.split("(")[0] for call in side) for side in (left, right)]
        for name in sorted(counts[0].keys() | counts[1].keys()):
            if counts[0][name] != counts[1][name]:
                print(f"   {name}: {counts[0][name]} and {counts[1][name]}")
        for line in list(difflib.unified_diff(left, right, "first", "second", n=2, lineterm=""))[: options.lines]:
            print(line[:400])


if __name__ == "__main__":
    main()
