#!/usr/bin/env python3
"""Compares CUDA with itself through Towline: random sequences of calls must be answered alike on all sides.

  differ.py compare --side NAME=COMMAND --side NAME=COMMAND... [--api runtime] [--seeds FIRST:COUNT] [--seconds N] [--out DIR]
  differ.py replay --side NAME=COMMAND FILE...
  differ.py record --side NAME=COMMAND --source TEXT FILE...

COMMAND is what stands before the program: nothing for the vendor's driver, `towline run --server ADDRESS --` for Towline; `VARIABLE=VALUE`
in front of it is set for that side. The first side of `compare` is the reference: it runs twice, and sequences that it answers
differently by itself are left out, and so are calls that its library lacks; each other side is compared with it. A sequence that differs
is shortened by leaving out calls, and written to DIR/cases.
README.md beside this file has the form of sequences and cases.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from generate import APIS, render, sequence

HERE = Path(__file__).resolve().parent
Items = list[tuple[str, list[str]]]
Answers = dict[str, list[str]]
# How often a difference must show again.
CONFIRMATIONS = 4
# Statuses that a context keeps.
FAULTS = {"700", "715", "716", "717", "718", "719"}
# Calls after one that killed the reference's process have no answer.
DEADLY = ("died of", "did not end", "exited with")


class Side:
    """A way to run the program."""

    def __init__(self, text: str, arguments: argparse.Namespace) -> None:
        self.api, self.devices = arguments.api, arguments.devices
        self.name, _, command = text.partition("=")
        words = shlex.split(command)
        self.environment = dict(os.environ)
        while words and "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            self.environment[name] = value
        if self.api != "runtime":
            self.environment.pop("DIFFER_RUNTIME", None)
        self.command = [*words, arguments.program]

    def run(self, items: Items, until: float | None = None) -> Answers:
        """What each sequence's calls answer, without the prologue's. Where there is an end to the time, of the sequences up to then."""
        begun = time.monotonic()
        limit = 60 + len(items) if until is None else max(1, until - begun)
        # In a group of their own, so that an end finds the program behind its wrapper too.
        with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complaints:
            given.write(render(items, self.api, self.devices))
            given.seek(0)
            done = subprocess.Popen(
                self.command, stdin=given, stdout=said, stderr=complaints, text=True, env=self.environment, start_new_session=True
            )
            late = False
            try:
                done.wait(limit)
            except subprocess.TimeoutExpired:
                late = until is not None
            finally:
                if done.poll() is None:
                    os.killpg(done.pid, signal.SIGKILL)
                    done.wait()
            said.seek(0)
            answers = parse(said.read())
            ends = collections.Counter(lines[-1] for lines in answers.values() if lines and lines[-1].startswith(DEADLY))
            took = time.monotonic() - begun
            deaths = "".join(f", {count} {end}" for end, count in sorted(ends.items()))
            print(f"{self.name}: {len(answers)} of {len(items)} sequences in {took:.1f} s{deaths}", file=sys.stderr, flush=True)
            if not late and (done.returncode != 0 or not answers):
                complaints.seek(0)
                raise SystemExit(f"{self.name} ended with {done.returncode}: {complaints.read()[-2000:]}")
            return answers


def parse(text: str) -> Answers:
    """The answers of each sequence that has ended."""
    answers: Answers = {}
    name, lines = "", []
    for line in text.splitlines():
        if line.startswith("sequence "):
            name, lines = line[9:], []
        elif line.startswith("  "):
            lines.append(line[2:])
        elif line == "end":
            answers[name] = lines
    return answers


def name_of(line: str) -> str:
    """The call of a line, without its thread."""
    return re.sub(r"^t\d:", "", line.split(" ")[0])


def call_of(line: str) -> str:
    return line.split(" = ")[0].removesuffix(" =")


def answer_of(line: str) -> str:
    return line.split(" = ", 1)[1] if " = " in line else line


def end_of(transcript: list[str]) -> str:
    ends = [answer_of(line).split(" ")[0] for line in transcript if line.startswith("at the end")]
    return ends[0] if ends else ""


def is_late_news(reference: list[str], other: list[str], at: int) -> bool:
    """Whether one side has heard of a kernel's fault before the other: any call may tell, and both know in the end."""
    statuses = {answer_of(lines[at]).split(" ")[0] for lines in (reference, other)}
    return bool(statuses & FAULTS) and end_of(reference) == end_of(other) in FAULTS


def first_difference(reference: list[str], other: list[str]) -> int | None:
    """Where two transcripts part, unless the reference's process died there."""
    for at, line in enumerate(reference):
        if at + 1 < len(reference) and reference[at + 1].startswith(DEADLY):
            return None
        if at >= len(other):
            return at
        if other[at] != line:
            return None if is_late_news(reference, other, at) else at
    return None


def kind_of(reference: list[str], other: list[str], at: int) -> str:
    """What differs, in a few words: the call, and the statuses, or that output does."""
    line = reference[at]
    name = name_of(line)
    if at + 1 < len(other) and other[at + 1].startswith(DEADLY):
        return f"{name}: {other[at + 1]}"
    said, heard = answer_of(line), answer_of(other[at]) if at < len(other) else "nothing"
    if name[:2] != "cu":
        what = (
            name.rstrip("0123456789")
            if said[:1] == heard[:1]
            else f"{name.rstrip('0123456789')} {said.split(' ')[0]}, {heard.split(' ')[0]}"
        )
        return f"{what} at the end" if not line.startswith("at the end") else f"the end: {said.split(' ')[0]}, {heard.split(' ')[0]}"
    one, two = said.split(" ")[0], heard.split(" ")[0]
    return f"{name}: {one}, not {two}" if one != two else f"{name}: other output"


def lacking(answers: Answers) -> set[str]:
    """The calls that a side's library does not have."""
    lines = (line for transcript in answers.values() for line in transcript)
    return {name_of(line) for line in lines if answer_of(line).split(" ")[0] == "-1"}


def shorten(sides: list[Side], cases: dict[str, tuple[str, list[str]]], until: float) -> dict[str, tuple[str, list[str]]]:
    """Leaves out calls of each kind's sequence as long as its difference stays the same: all kinds in one run of both sides."""
    cases = dict(cases)
    steps = {kind: max(1, len(lines) // 2) for kind, (_, lines) in cases.items()}
    while steps and time.monotonic() < until:
        cuts: dict[str, tuple[str, list[str]]] = {}
        for number, (kind, step) in enumerate(steps.items()):
            name, lines = cases[kind]
            fresh = " fresh" if name.endswith(" fresh") else ""
            for at in range(0, len(lines), step):
                if cut := lines[:at] + lines[at + step :]:
                    cuts[f"{number}.{at}{fresh}"] = (kind, cut)
        if not cuts:
            break
        items = [(label, cut) for label, (_, cut) in cuts.items()]
        with ThreadPoolExecutor() as pool:
            reference, other = pool.map(Side.run, sides, [items, items], [until, until])
        shorter: dict[str, list[str]] = {}
        for label, (kind, cut) in cuts.items():
            if label not in reference or label not in other:
                continue
            one, two = reference[label], other[label]
            at = first_difference(one, two)
            if at is not None and kind_of(one, two, at) == kind:
                shorter.setdefault(kind, cut)
        for kind, step in list(steps.items()):
            name, lines = cases[kind]
            if kind in shorter:
                cases[kind] = (name, shorter[kind])
                steps[kind] = max(1, min(step, len(shorter[kind]) // 2))
            elif step == 1:
                del steps[kind]
            else:
                steps[kind] = step // 2
    return cases


def write_case(path: Path, name: str, lines: list[str], answers: list[str], remarks: list[str]) -> None:
    body = "".join(f"  {line}\n" for line in (answers or lines))
    path.write_text("".join(f"# {remark}\n" for remark in remarks) + f"sequence {name}\n{body}end\n")


def suspects_of(items: Items, reference: Answers, other: Answers) -> Items:
    return [(name, lines) for name, lines in items if first_difference(reference[name], other.get(name, [])) is not None]


def confirm(sides: tuple[Side, Side], suspects: Items, reference: Answers, other: Answers) -> dict[str, Items]:
    """Kinds of difference that show each time, with the sequences up to where they differ."""
    found: dict[str, Items] = collections.defaultdict(list)
    rounds = [(sides[0].run(suspects), sides[1].run(suspects)) for _ in range(CONFIRMATIONS)] if suspects else []
    for name, lines in suspects:
        said, heard = reference[name], other.get(name, [])
        at = first_difference(said, heard)
        steady = all(one.get(name) == said and first_difference(said, two.get(name, [])) == at for one, two in rounds)
        if at is not None and steady:
            found[kind_of(said, heard, at)].append((name, lines[: at + 1] if at < len(lines) else lines))
    return found


def report(sides: tuple[Side, Side], found: dict[str, Items], out: Path, shorten_until: float) -> None:
    """Prints the kinds of difference, and shortens a sequence of each."""
    name = sides[1].name
    summary = [f"{len(hits):5d}  {kind}  (first: {hits[0][0]})" for kind, hits in sorted(found.items(), key=lambda it: -len(it[1]))]
    print(f"{sum(map(len, found.values()))} differ between {sides[0].name} and {name}")
    print("\n".join(summary), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / "differ.txt").write_text("\n".join(summary) + "\n")
    # The shortest of its kind is the quickest to shorten.
    shortest = {kind: min(hits, key=lambda hit: len(hit[1])) for kind, hits in found.items()}
    shortest = shorten(list(sides), shortest, shorten_until)
    renamed = [(f"{number}{' fresh' if name.endswith(' fresh') else ''}", lines) for number, (name, lines) in enumerate(shortest.values())]
    reference, other = (side.run(renamed) if renamed else {} for side in sides)
    for (label, lines), (kind, (seed, _)) in zip(renamed, shortest.items()):
        said, heard = reference.get(label, []), other.get(label, [])
        at = first_difference(said, heard)
        there = heard[at] if at is not None and at < len(heard) else "the same when asked alone" if at is None else "nothing"
        path = out / "cases" / f"{label.split(' ')[0].zfill(3)}.txt"
        path.parent.mkdir(exist_ok=True)
        write_case(path, label, lines, said, [f"class: {kind}", f"seed: {seed}", f"{name}: {there}", f"source: {sides[0].name}"])
        print(f"\n-- {path}: {kind}, {len(found[kind])} times; {name}: {there}")
        print("\n".join(f"   {line}" for line in said[: (at or 0) + 1]), flush=True)


def compare(arguments: argparse.Namespace) -> int:
    """The first side twice, and each of the others against it."""
    first_side, *others = [Side(text, arguments) for text in arguments.side]
    if not others:
        raise SystemExit("compare needs two sides")
    first, count = (int(part) for part in arguments.seeds.split(":"))
    begun = time.monotonic()
    found: list[dict[str, Items]] = [collections.defaultdict(list) for _ in others]
    absent: set[str] = set()
    done = varied = unanswered = 0
    for start in range(first, first + count, arguments.batch):
        if time.monotonic() > begun + arguments.seconds:
            break
        items = [sequence(seed, arguments.api, arguments.devices) for seed in range(start, min(start + arguments.batch, first + count))]
        # Those that want a process of their own come last, so that the others share few.
        items.sort(key=lambda item: item[0].endswith(" fresh"))
        while True:
            items = [(name, [line for line in lines if name_of(line) not in absent]) for name, lines in items]
            with ThreadPoolExecutor() as pool:
                reference, again, *heard = pool.map(lambda side: side.run(items), [first_side, first_side, *others])
            if not (more := lacking(reference)):
                break
            absent |= more
        steady = [(name, lines) for name, lines in items if name in reference and reference[name] == again.get(name)]
        done += len(items)
        varied += len(items) - len(steady)
        unanswered += sum(any(line.startswith(DEADLY) for line in reference[name]) for name, _ in steady)
        for side, answers, kinds in zip(others, heard, found):
            # Again on both sides: what does not repeat itself is no finding.
            suspects = suspects_of(steady, reference, answers)
            confirmed = confirm((first_side, side), suspects, reference, answers)
            varied += len(suspects) - sum(map(len, confirmed.values()))
            for kind, hits in confirmed.items():
                kinds[kind] += hits
    rate = done / max(0.001, time.monotonic() - begun) * 60
    print(f"{done} sequences ({rate:.0f} a minute), {varied} vary by themselves, {unanswered} kill {first_side.name}")
    until = time.monotonic()
    for side, kinds in zip(others, found):
        until += arguments.shorten_seconds / len(others)
        report((first_side, side), kinds, arguments.out / side.name if len(others) > 1 else arguments.out, until)
    return 1 if any(found) else 0


def calls_of(path: Path) -> Items:
    """The sequences of a file of cases, without the answers."""
    items: Items = []
    for line in path.read_text().splitlines():
        at = line.strip()
        if at.startswith("sequence "):
            items.append((at[9:], []))
        elif at and not at.startswith("#") and at != "end":
            name = name_of(at)
            if name in ("host", "fill", "body", "take") or re.match("cu(da)?[A-Z]", name):
                items[-1][1].append(call_of(at))
    return items


def replay(arguments: argparse.Namespace) -> int:
    side = Side(arguments.side[0], arguments)
    failed = count = 0
    items: Items = []
    wanted: Answers = {}
    for path in arguments.files:
        for name, lines in calls_of(path):
            label = f"{path.stem}/{name}"
            items.append((label, lines))
            wanted[label] = next(answers for known, answers in parse(path.read_text()).items() if known == name)
    answers = side.run(items)
    for label, _lines in items:
        count += 1
        at = first_difference(wanted[label], answers.get(label, []))
        if at is not None:
            failed += 1
            heard = answers.get(label, [])
            print(f"FAILED {label}:\n  {wanted[label][at]}\n  {side.name}: {heard[at] if at < len(heard) else 'nothing'}")
    print(f"{side.name}: {count} cases, {failed} failed")
    return 1 if failed else 0


def record(arguments: argparse.Namespace) -> int:
    side = Side(arguments.side[0], arguments)
    for path in arguments.files:
        items = calls_of(path)
        answers = side.run(items)
        kept = [line for line in path.read_text().splitlines() if line.startswith("#") and not line.startswith("# source:")]
        body = "".join(f"sequence {name}\n" + "".join(f"  {line}\n" for line in answers.get(name, [])) + "end\n" for name, _lines in items)
        path.write_text("".join(f"{line}\n" for line in kept) + f"# source: {arguments.source}\n" + body)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["compare", "replay", "record", "print"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--side", action="append", default=[], help="NAME=COMMAND")
    parser.add_argument("--program", default=str(HERE / "differ"))
    parser.add_argument("--api", choices=sorted(APIS), default="driver", help="whose calls they are")
    parser.add_argument("--devices", type=int, default=1, help="of two, the second is used as well")
    parser.add_argument("--seeds", default="1:100000", help="FIRST:COUNT")
    parser.add_argument("--seconds", type=float, default=60, help="compare starts no batch after so many")
    parser.add_argument("--shorten-seconds", type=float, default=120, help="and shortens for so many")
    parser.add_argument("--batch", type=int, default=250, help="sequences between two looks at the clock")
    parser.add_argument("--out", type=Path, default=Path("differ-out"))
    parser.add_argument("--source", default="", help="what the answers are from")
    arguments = parser.parse_intermixed_args()
    if arguments.do == "print":
        first, count = (int(part) for part in arguments.seeds.split(":"))
        items = [sequence(seed, arguments.api, arguments.devices) for seed in range(first, first + count)]
        sys.stdout.write(render(items, arguments.api, arguments.devices))
        return 0
    return {"compare": compare, "replay": replay, "record": record}[arguments.do](arguments)


if __name__ == "__main__":
    sys.exit(main())
