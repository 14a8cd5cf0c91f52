"""What programs print: any command with a pattern for its result is a program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from towline_bench import BenchError

NUMBER = r"(?P<value>[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"


@dataclass(frozen=True)
class Pattern:
    """One figure in a program's output: the last match counts, or their mean."""

    metric: str
    unit: str
    expression: re.Pattern[str]
    mean: bool = False
    #: What the printed number is multiplied by.
    factor: float = 1.0

    def read(self, output: str) -> float | None:
        """The figure, if the output has it."""
        values = [float(match.group("value")) for match in self.expression.finditer(output)]
        if not values:
            return None
        return self.factor * (sum(values) / len(values) if self.mean else values[-1])


@dataclass(frozen=True)
class Adapter:
    """How to read one family of programs."""

    patterns: tuple[Pattern, ...]
    #: Must be in the output of a run that counts; None where the exit status says it.
    passed: re.Pattern[str] | None = None

    def read(self, output: str) -> dict[str, tuple[float, str]]:
        """All figures: metric to value and unit."""
        if self.passed is not None and self.passed.search(output) is None:
            raise BenchError(f"the output has nothing that matches {self.passed.pattern!r}: the run did not pass")
        found: dict[str, tuple[float, str]] = {}
        for pattern in self.patterns:
            value = pattern.read(output)
            if value is not None:
                found[pattern.metric] = (value, pattern.unit)
        if not found:
            expressions = ", ".join(repr(pattern.expression.pattern) for pattern in self.patterns)
            raise BenchError(f"the output has no result: nothing matches {expressions}")
        return found


def pattern(metric: str, unit: str, text: str, *, mean: bool = False, factor: float = 1.0) -> Pattern:
    """Compile a pattern; ``#`` in it stands for the number."""
    try:
        expression = re.compile(text.replace("#", NUMBER), re.MULTILINE)
    except re.error as error:
        raise BenchError(f"the pattern {text!r} of {metric} is wrong: {error}") from error
    if "value" not in expression.groupindex:
        raise BenchError(f"the pattern {text!r} of {metric} has no #, which stands for the number")
    return Pattern(metric, unit, expression, mean, factor)


def _adapter(*patterns: Pattern, passed: str | None = None) -> Adapter:
    return Adapter(patterns, re.compile(passed, re.MULTILINE) if passed else None)


ADAPTERS: Mapping[str, Adapter] = {
    # NPB of NASA prints a table at its end.
    "npb": _adapter(
        pattern("seconds", "s", r"^ *Time in seconds *= *#"),
        pattern("mflops", "MFLOPS", r"^ *Mop/s total *= *#"),
        passed=r"^ *Verification *= *SUCCESSFUL",
    ),
    # Himeno as RIKEN distributes it.
    "himeno": _adapter(
        pattern("seconds", "s", r"cpu *: *# *sec"),
        pattern("mflops", "MFLOPS", r"MFLOPS(?: measured)? *: *#"),
    ),
    # Our own workloads/mpi and workloads/opencl with --json.
    "towline": _adapter(
        pattern("seconds", "s", r'"seconds": ?#'),
        pattern("mflops", "MFLOPS", r'"mflops": ?#'),
        pattern("mkeys", "Mkeys/s", r'"mkeys_per_s": ?#'),
        passed=r'"check": ?"pass"',
    ),
    # "Info: Benchmark time: 16 CPUs 0.0631 s/step ...", a few times; the clock of the whole run beside.
    "namd": _adapter(
        pattern("seconds_per_step", "s", r"^Info: Benchmark time: .*? # s/step", mean=True),
        pattern("seconds", "s", r"^WallClock: *#"),
    ),
    # "Loop time of 1.23 on 4 procs for 100 steps with 32000 atoms"
    "lammps": _adapter(
        pattern("seconds", "s", r"^Loop time of # on \d+ procs"),
        pattern("steps_per_second", "1/s", r"^Performance: .*?# timesteps/s"),
        passed=r"^Total wall time",
    ),
    # The last lines of md.log and of the error stream.
    "gromacs": _adapter(
        pattern("ns_per_day", "ns/day", r"^Performance: +#"),
        pattern("seconds", "s", r"^ +Time: +[\d.]+ +#"),
    ),
    # `time -p`, for programs that print nothing.
    "time": _adapter(pattern("seconds", "s", r"^real #")),
}


def adapter(name: str) -> Adapter:
    """The adapter of this name."""
    try:
        return ADAPTERS[name]
    except KeyError:
        raise BenchError(f"there is no adapter {name!r}; there are {', '.join(ADAPTERS)}") from None
