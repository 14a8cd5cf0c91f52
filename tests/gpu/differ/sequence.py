"""Random sequences of calls from tables of templates: the part that both APIs share.

A table has one template a line, behind how often it is to come: `4 cuMemAlloc_v2 &<new m> <size>`. Calls joined by ` ; ` come together.
`<...>` is replaced, from left to right:

  <0|1|1>       one of these texts
  <0|1/2>       the same, and now and then what is behind the slash
  <pick mv>     what the method of that name returns for these arguments
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass

SIZES = [4, 64, 256, 1024, 4096, 65536]
ODD_SIZES = [0, 1, 3, 1 << 60]
# Kinds of objects that have a size, which is written behind a new one.
SIZED = "mvna"


class MissingError(Exception):
    """There is no object for a template: another one is to be tried."""


@dataclass(frozen=True)
class Group:
    """A table of templates, how often it is used, the kind that must be alive for it, and what is done instead where none is."""

    table: str
    weight: int
    needs: str = ""
    otherwise: str | Group = ""

    @functools.cached_property
    def templates(self) -> list[str]:
        lines = [line.strip().partition(" ") for line in self.table.splitlines() if line.strip()]
        return [template for weight, _, template in lines for _ in range(int(weight))]


def split(text: str, separator: str) -> list[str]:
    """Parts of a text between separators that are in no brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == separator and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


@functools.cache
def tokens(text: str) -> tuple[tuple[str, list[str], list[str]], ...]:
    """Plain text, and behind it the choices and the rare ones of a placeholder, or the words of a call."""
    found, at = [], 0
    while (start := text.find("<", at)) >= 0:
        end, depth = start + 1, 1
        while depth:
            depth += (text[end] == "<") - (text[end] == ">")
            end += 1
        common, *rare = split(text[start + 1 : end - 1], "/")
        found.append((text[at:start], split(common, "|"), split(rare[0], "|") if rare else []))
        at = end
    return (*found, (text[at:], [], []))


class Sequence:
    """One sequence as it grows: what should be alive, and where captures are under way."""

    PROLOGUE: str
    # And what there is of a second device.
    SECOND: str
    GROUPS: list[Group]
    # Calls that are made before any other.
    EARLY: list[str]
    # Calls that every sequence has, and some have.
    BASIS: list[str]
    MORE: list[str]
    # For sequences of several threads, which begin with a call.
    THREADS: Group
    THREAD: str
    WAIT: str

    def __init__(self, rng: random.Random, devices: int) -> None:
        self.rng = rng
        self.devices = devices
        self.lines: list[str] = []
        self.live: dict[str, list[str]] = {}
        self.size_of: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.born: list[tuple[str, str]] = []
        self.behind_it: list[str] = []
        self.last_dead: str | None = None
        # The stream that was used last, and the thread.
        self.last_stream: tuple[str, str] | None = None
        self.line_size: int | None = None
        self.line_count: int | None = None
        # Memory that this call works on: copies between places that overlap leave nobody knows what.
        self.line_places: dict[str, str] = {}
        # The graph that a call is about, which graph an object belongs to, and the call that made it.
        self.line_graph: str | None = None
        self.line_handle = ""
        self.home: dict[str, str | None] = {}
        self.maker: dict[str, str] = {}
        # The thread that calls, and those that there are.
        self.prefix = ""
        self.threads = {""}
        self.wanted_threads = rng.choice([1, 1, 1, 2, 3])
        # The contexts of each thread, and the one that an object was made in.
        self.stacks: dict[str, list[str]] = {}
        self.context_of: dict[str, str] = {}
        # Streams that overlap leave what varies from run to run, so most of the time one waits for another.
        self.overlap = 0.02 if rng.random() < 0.8 else 0.3

    # Methods that make lines.

    def say(self, line: str) -> None:
        self.lines.append(f"{self.prefix}{line}" if line.startswith("cu") else line)
        name, *arguments = line.split(" ")
        self.follow(name, arguments, self.stacks.setdefault(self.prefix, ["c99"]))

    def follow(self, name: str, arguments: list[str], stack: list[str]) -> None:
        """Keeps the contexts of a thread."""

    def lose(self, context: str) -> None:
        """What was made in a context ended with it. The driver knows addresses that have ended."""
        for kind in "vnsedfC" + ("m" if self.chance(0.7) else ""):
            names = self.live.get(kind, [])
            self.live[kind] = [name for name in names if self.context_of.get(name) != context]

    def switch(self) -> None:
        """Goes on in another thread, now and then."""
        if self.wanted_threads > 1 and self.chance(0.3):
            self.prefix = self.rng.choice(["", "t1:", "t2:"][: self.wanted_threads])
            if self.prefix not in self.threads:
                self.threads.add(self.prefix)
                self.stacks[self.prefix] = [""]
                self.call(self.THREAD)

    def call(self, template: str) -> None:
        """Adds the calls of a template, or none where an object is missing."""
        for part in template.split(" ; "):
            self.line_size = self.line_count = self.line_graph = None
            self.line_places.clear()
            self.born.clear()
            self.behind_it.clear()
            try:
                line = self.expand(part)
            except MissingError:
                return
            self.say(line)
            # An object is there for the next call.
            for kind, name in self.born:
                self.live.setdefault(kind, []).append(name)
                self.context_of.setdefault(name, (self.stacks[self.prefix] or [""])[-1])
                self.home[name], self.maker[name] = self.line_graph, line.split(" ")[0]
            for line in list(self.behind_it):
                self.say(line)

    def step(self, group: str | Group) -> None:
        if isinstance(group, str):
            self.call(group)
        elif group.needs and not self.live.get(group.needs):
            self.step(group.otherwise)
        else:
            self.call(self.rng.choice(group.templates))

    def expand(self, text: str) -> str:
        return "".join(self.expanded(text))

    def expanded(self, text: str) -> Iterator[str]:
        for plain, common, rare in tokens(text):
            yield plain
            if rare and self.chance(0.05):
                yield self.expand(self.rng.choice(rare))
            elif len(common) > 1 or rare:
                yield self.expand(self.rng.choice(common))
            elif common:
                name, *arguments = common[0].split(" ")
                yield getattr(self, name)(*arguments)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    # Methods that templates name.

    def size(self, least: str = "0") -> str:
        """How large the memory is that this call is about."""
        if self.line_size is None:
            self.line_size = self.rng.choice(ODD_SIZES) if self.chance(0.06) else self.rng.choice(SIZES)
            if int(least):
                self.line_size = max(int(least), self.line_size % (1 << 20))
        return str(self.line_size)

    def new(self, kind: str) -> str:
        """A name for an object that the call makes."""
        # The new one may lie where another has ended.
        if self.last_dead is not None and self.last_dead[0] == kind:
            self.last_dead = None
        number = self.counts.get(kind, 0)
        self.counts[kind] = number + 1
        name = f"{kind}{number}"
        self.born.append((kind, name))
        if kind in SIZED or kind == "h":
            self.size_of[name] = int(self.size("64" if kind == "h" else "0"))
        return f"{name}:{self.size()}" if kind in SIZED else name

    def sized(self, kind: str, size: str = "4096") -> str:
        self.line_size = int(size)
        return self.new(kind)

    def some(self, kind: str, null: str = "2") -> str:
        """An object for a call that is made only if there is one."""
        if not self.live.get(kind):
            raise MissingError
        return self.pick(kind, null)

    def whole(self, kind: str) -> str:
        """Memory, and its size."""
        name = self.pick(kind, "5")
        return f"{name} {self.size_of.get(name, 64)}"

    def brief(self, kind: str) -> str:
        """The same, for an object that no other call is about."""
        name = self.new(kind)
        self.born.pop()
        return name

    def pick(self, kinds: str, null: str = "2") -> str:
        """An object of one of the kinds: most often alive, now and then NULL (so many times in a hundred), or one that has just ended."""
        if self.chance(int(null) / 100):
            return "NULL"
        # The driver knows addresses that have ended. A handle that has is a pointer to what was freed, or to what lies there now.
        if self.last_dead is not None and self.last_dead[0] in kinds and self.last_dead[0] in "mvnh" and self.chance(0.15):
            return self.last_dead
        return self.among([name for kind in kinds for name in self.live.get(kind, [])])

    def among(self, names: list[str]) -> str:
        """One of the names. A call for which there is none is seldom made."""
        if not names and self.chance(0.85):
            raise MissingError
        return self.rng.choice(names) if names else "NULL"

    def end(self, kind: str) -> str:
        """An object that ends."""
        if not self.live.get(kind):
            raise MissingError
        name = self.pick(kind)
        if name == "NULL":
            return name
        for alive in (self.live[kind], self.live.get("C", [])):
            if name in alive:
                alive.remove(name)
                self.last_dead = name
        if self.last_stream and self.last_stream[0] == name:
            self.last_stream = None
        if kind == "g":
            for inner in "ky":
                self.live[inner] = [one for one in self.live.get(inner, []) if self.home[one] != name]
        return f"~{name}"

    def stream(self) -> str:
        """A stream to work on: most often one of the sequence's own, behind what the last one was given."""
        if self.live.get("s") and self.chance(0.8):
            return self.after(self.pick("s", "1"))
        return self.after(self.rng.choice(["NULL", "NULL", "1", "2"]))

    def own(self) -> str:
        """The stream of the thread, most often."""
        return self.after("2") if self.chance(0.7) else self.stream()

    def sync(self) -> str:
        """For calls that are made on the default stream."""
        self.after("NULL")
        return ""

    def after(self, stream: str) -> str:
        last, self.last_stream = self.last_stream, (stream, self.prefix)
        # Each thread has a stream 2 of its own.
        same = last is None or last[0] == stream and (stream != "2" or last[1] == self.prefix)
        if last and not same and last[0] not in self.live.get("C", []) and not self.chance(self.overlap):
            here, self.prefix = self.prefix, last[1] if last[0] == "2" else self.prefix
            self.say(f"{self.WAIT} {last[0]}")
            self.prefix = here
        return stream

    def count(self, each: str = "1") -> str:
        """How many elements of so many bytes this call is about."""
        if self.line_count is None:
            self.line_count = self.rng.choice([value for value in SIZES if value <= 4096] + ([0] if self.chance(0.1) else []))
        return str(self.line_count // int(each))

    def place(self, kinds: str, room: str = "") -> str:
        """Memory with room for so many bytes, or NULL. What lies beyond an allocation is not the driver's to check."""
        bytes_ = int(room or self.count())
        names = [name for kind in kinds for name in self.live.get(kind, []) if bytes_ <= self.size_of[name] <= 65536]
        if not names or self.chance(0.02):
            return "NULL"
        name = self.rng.choice(names)
        return self.line_places.setdefault(name, self.within(name, bytes_))

    def within(self, name: str, bytes_: int) -> str:
        if self.chance(0.3):
            left = self.size_of[name] - bytes_
            step = self.rng.choice([4, 4, 16, 64])
            if left >= step:
                return f"{name}+{self.rng.randrange(left // step + 1) * step}"
        return name

    def below(self, limit: str) -> str:
        return str(self.rng.randrange(int(limit)))

    def device(self) -> str:
        return str(self.rng.randrange(self.devices)) if self.chance(0.95) else self.rng.choice(["-1", "77"])

    # Captures. Streams that capture are of the kind C, too.

    def begin(self) -> str:
        own = [name for name in self.live.get("s", []) if name not in self.live.get("C", [])]
        stream = self.rng.choice(own) if own and self.chance(0.95) else self.stream()
        if stream.startswith("s"):
            self.born.append(("C", stream))
        return stream

    def capturing(self) -> str:
        """A stream that captures, as far as there is one."""
        streams = self.live.get("C")
        return self.rng.choice(streams) if streams and self.chance(0.95) else self.stream()

    def finish(self) -> str:
        stream = self.capturing()
        if stream in self.live.get("C", []):
            self.live["C"].remove(stream)
        return stream

    # Graphs and launches.

    def graph(self, null: str = "2") -> str:
        self.line_graph = self.pick("gy", null)
        return self.line_graph

    def executable(self) -> str:
        name = self.pick("x")
        self.line_graph = self.home.get(name)
        return name

    def of_graph(self) -> list[str]:
        """Nodes of the graph that the call is about, or now and then of any."""
        names = self.live.get("k", [])
        return names if self.line_graph is None or self.chance(0.1) else [name for name in names if self.home[name] == self.line_graph]

    def node(self, of: str = "") -> str:
        """A node, most often one that such a call made."""
        return self.pick("k") if self.chance(0.1) else self.among([name for name in self.of_graph() if of in self.maker[name]])

    def nodes(self, between: str = "") -> str:
        """Dependencies of a new node: a list, and behind what stands between, how long it is."""
        rng, between = self.rng, f" {between}" if between else ""
        if self.chance(0.03):
            return f"NULL{between} {rng.choice([1, 2])}"
        names = self.of_graph()
        chosen = rng.sample(names, min(len(names), rng.choice([0, 0, 1, 1, 2])))
        if self.chance(0.03) and chosen:
            chosen.append(chosen[0])
        listed = "{" + ",".join(f"q:{name}" for name in chosen) + "}" if chosen else "NULL"
        return f"{listed}{between} {len(chosen)}"

    def room(self) -> str:
        """A list for answers, and how many it has room for."""
        room = self.rng.choice([0, 1, 2, 8])
        return f"{self.rng.choice(['NULL', f'@p{max(room, 1)}'])} {{q:{room}}}"

    def shape(self) -> list[int]:
        """Grid, block and bytes of shared memory."""
        grid, block = [1, 1, 1], [self.rng.choice([1, 32, 64]), 1, 1]
        if self.chance(0.08):
            place = self.rng.choice([grid, block])
            place[self.rng.randrange(3)] = self.rng.choice([0, 2, 65536, 2048])
        shared = self.rng.choice([0, 0, 0, 64]) if self.chance(0.95) else 1 << 28
        return [*grid, *block, shared]

    def function(self, own: str) -> str:
        """A kernel of the prologue's, or one of the sequence's."""
        prologue = [f"{own}{number}" for number in range(90, 94)]
        return "NULL" if self.chance(0.02) else self.rng.choice(prologue + self.live.get(own, []))

    def params(self, function: str) -> str:
        """The kernelParams of a launch."""
        rng = self.rng
        if self.chance(0.03):
            return "NULL"
        words = rng.choice([1, 16, 64])
        memory = self.place("mv", str(words * 4))
        if memory == "NULL":
            words = 0
        if function[1:] == "90":
            return f"^[q:{memory},d:{words}]"
        if function[1:] == "91":
            return f"^[q:{memory},d:{words},d:{rng.choice([2, 3])}]"
        if function[1:] == "93":
            return f"^[q:{self.place('mv', '64') if memory != 'NULL' else 'a90'}]"
        return "NULL" if self.chance(0.8) else "^[]"

    # Methods for both APIs.

    def inside(self, kinds: str) -> str:
        target = self.pick(kinds, "10")
        return target if target == "NULL" else target + self.rng.choice(["", "", "+1", "+3"])

    def ordered(self) -> str:
        """An allocation in the order of a stream, which is waited for where that ends no capture."""
        stream, capturing = self.stream(), self.live.get("C")
        name = self.new("a" if capturing else "m")
        self.behind_it.append("cuCtxGetCurrent @p" if capturing else f"{self.WAIT} {stream}")
        return f"{name} {self.expand('<<size>/0>')} {stream}"

    def filling(self) -> str:
        """What a memset node is given, which has one form in both APIs."""
        return self.expand("{q:<place mv 256>,q:<64/0|1>,d:<0|5|255|65537>,d:<1|2|4/0|3|8>,q:<1|4|16/0>,q:<1|1|2>}")

    def conditional(self) -> str:
        self.line_handle = self.brief("z")
        return self.line_handle

    # The whole.

    @classmethod
    def early(cls, rng: random.Random) -> list[str]:
        """A sequence for a process of its own."""
        raise NotImplementedError

    @classmethod
    def some_early(cls, rng: random.Random, most: int) -> list[str]:
        prefixes = rng.choice([[""], [""], ["", "", "t1:"]])
        return [rng.choice(prefixes) + line for line in rng.sample(cls.EARLY, rng.randrange(2, most))]

    def grow(self, length: int) -> None:
        """Something to work with, then as many calls of a few groups."""
        rng = self.rng
        for template in self.BASIS + (self.MORE if rng.random() < 0.5 else []):
            self.call(template)
        chosen = rng.sample(self.GROUPS, rng.randrange(2, 6))
        chosen += [self.THREADS] if self.wanted_threads > 1 else []
        groups = [group for group in chosen for _ in range(group.weight)]
        wanted = len(self.lines) + rng.randrange(4, length)
        while len(self.lines) < wanted:
            self.switch()
            self.step(rng.choice(groups))
