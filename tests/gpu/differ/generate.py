"""Random sequences of calls of the CUDA driver, as text that differ.c carries out. A seed always gives the same sequence."""

from __future__ import annotations

import random
from collections.abc import Callable

PROLOGUE = """sequence prologue
cuInit 0
cuDevicePrimaryCtxRetain &c99 0
cuCtxSetCurrent c99
cuStreamCreate &s99 1
cuModuleLoadData &d99 $ptx
cuModuleGetFunction &f90 d99 "add_one"
cuModuleGetFunction &f91 d99 "scale"
cuModuleGetFunction &f92 d99 "nothing"
cuModuleGetFunction &f93 d99 "shares"
cuModuleGetGlobal_v2 &a90:64 @q d99 "table"
cuCtxCreate_v2 &c98 0 0
cuCtxPopCurrent_v2 @p
end
"""

SIZES = [4, 64, 256, 1024, 4096, 65536]
ODD_SIZES = [0, 1, 3, 1 << 60]
FUNCTIONS = ["f90", "f91", "f92", "f93"]


class Sequence:
    """One sequence as it grows: what should be alive, and where captures are under way."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.live: dict[str, list[str]] = {}
        self.size: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.capturing: list[str] = []
        self.last_dead: str | None = None
        self.last_stream: str | None = None
        # Streams that overlap leave what varies from run to run, so most of the time one waits for another.
        self.overlap = 0.02 if rng.random() < 0.8 else 0.3

    def say(self, line: str) -> None:
        self.lines.append(line)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def new(self, kind: str, size: int = 0) -> str:
        number = self.counts.get(kind, 0)
        self.counts[kind] = number + 1
        name = f"{kind}{number}"
        self.live.setdefault(kind, []).append(name)
        self.size[name] = size
        return name

    def has(self, kind: str) -> bool:
        return bool(self.live.get(kind))

    def pick(self, kinds: str, null: float = 0.02) -> str:
        """An object of one of the kinds: most often alive, now and then NULL, or one that has just ended."""
        if self.chance(null):
            return "NULL"
        # The driver knows addresses that have ended. A handle that has is a pointer to what was freed, and may bring down anything.
        if self.last_dead is not None and self.last_dead[0] in kinds and self.chance(0.15 if self.last_dead[0] in "mvnh" else 0.01):
            return self.last_dead
        names = [name for kind in kinds for name in self.live.get(kind, [])]
        return self.rng.choice(names) if names else "NULL"

    def end(self, kind: str, call: str) -> None:
        if not self.has(kind):
            return
        name = self.pick(kind)
        self.say(f"{call} ~{name}" if name != "NULL" else f"{call} NULL")
        if name in self.live.get(kind, []):
            self.live[kind].remove(name)
            self.last_dead = name
        if name in self.capturing:
            self.capturing.remove(name)

    def stream(self) -> str:
        """A stream to work on: most often one of the sequence's own, behind what the last one was given."""
        if self.has("s") and self.chance(0.8):
            return self.behind(self.pick("s", 0.01))
        return self.behind(self.rng.choice(["NULL", "NULL", "1", "2"]))

    def behind(self, stream: str) -> str:
        last, self.last_stream = self.last_stream, stream
        if last not in (None, stream) and last not in self.capturing and not self.chance(self.overlap):
            self.say(f"cuStreamSynchronize {last}")
        return stream

    def count(self, most: int = 4096) -> int:
        return self.rng.choice([value for value in SIZES if value <= most] + ([0] if self.chance(0.1) else []))

    def place(self, kinds: str, bytes_: int) -> str:
        """Memory with room for so many bytes, or NULL. What lies beyond an allocation is not the driver's to check."""
        names = [name for kind in kinds for name in self.live.get(kind, []) if bytes_ <= self.size[name] <= 65536]
        if not names or self.chance(0.02):
            return "NULL"
        name = self.rng.choice(names)
        if self.chance(0.3):
            room = self.size[name] - bytes_
            step = self.rng.choice([4, 4, 16, 64])
            if room >= step:
                return f"{name}+{self.rng.randrange(room // step + 1) * step}"
        return name


def nodes(sequence: Sequence) -> tuple[str, int]:
    """Dependencies of a new node: a list, and how long it is."""
    rng = sequence.rng
    if sequence.chance(0.03):
        return "NULL", rng.choice([1, 2])
    names = sequence.live.get("k", [])
    chosen = rng.sample(names, min(len(names), rng.choice([0, 0, 1, 1, 2])))
    if sequence.chance(0.03) and chosen:
        chosen.append(chosen[0])
    if not chosen:
        return "NULL", 0
    return "{" + ",".join(f"q:{name}" for name in chosen) + "}", len(chosen)


def params(sequence: Sequence, function: str) -> str:
    """The kernelParams of a launch."""
    roll = sequence.rng.random()
    if roll < 0.03:
        return "NULL"
    words = sequence.rng.choice([1, 16, 64])
    memory = sequence.place("mv", words * 4)
    if memory == "NULL":
        words = 0
    if function == "f90":
        return f"^[q:{memory},d:{words}]"
    if function == "f91":
        return f"^[q:{memory},d:{words},d:{sequence.rng.choice([2, 3])}]"
    if function == "f93":
        return f"^[q:{sequence.place('mv', 64) if memory != 'NULL' else 'a90'}]"
    return "NULL" if sequence.chance(0.8) else "^[]"


def shape(sequence: Sequence) -> list[int]:
    grid, block = [1, 1, 1], [sequence.rng.choice([1, 32, 64]), 1, 1]
    if sequence.chance(0.08):
        place = sequence.rng.choice([grid, block])
        place[sequence.rng.randrange(3)] = sequence.rng.choice([0, 2, 65536, 2048])
    shared = sequence.rng.choice([0, 0, 0, 64]) if sequence.chance(0.95) else 1 << 28
    return [*grid, *block, shared]


def function_of(sequence: Sequence) -> str:
    names = FUNCTIONS + sequence.live.get("f", [])
    return "NULL" if sequence.chance(0.02) else sequence.rng.choice(names)


def kernel_params(sequence: Sequence, version: int) -> str:
    if sequence.chance(0.04):
        return "NULL"
    function = function_of(sequence)
    shown = ",".join(f"d:{value}" for value in shape(sequence))
    text = f"q:{function},{shown},q:{params(sequence, function)},q:NULL"
    return "{" + text + (",q:NULL,q:NULL" if version > 1 else "") + "}"


def box(sequence: Sequence, deep: bool) -> str:
    """CUDA_MEMCPY2D or CUDA_MEMCPY3D."""
    rng = sequence.rng
    width, height, depth = rng.choice([4, 16, 64]), rng.choice([1, 2, 4]), rng.choice([1, 2]) if deep else 1
    pitch = rng.choice([64, 128])
    if sequence.chance(0.06):
        width, height, pitch = rng.choice([(0, 1, 64), (64, 0, 64), (128, 2, 64), (16, 2, 0)])
    need = pitch * height * depth + 64
    fields = []
    for _side in range(2):
        kind = rng.choice([1, 2, 2, 2, 4])
        host = sequence.place("hn", need) if kind == 1 else "NULL"
        device = sequence.place("mv" if kind == 2 else "mvhn", need) if kind in (2, 4) else "NULL"
        if sequence.chance(0.03):
            kind = rng.choice([0, 3, 5])
        x = rng.choice([0, 0, 4])
        if deep:
            fields.append(f"q:{x},q:0,q:0,q:0,d:{kind},q:{host},q:{device},q:NULL,q:0,q:{pitch},q:{height}")
        else:
            fields.append(f"q:{x},q:0,d:{kind},q:{host},q:{device},q:NULL,q:{pitch}")
    end = f"q:{width},q:{height}" + (f",q:{depth}" if deep else "")
    return "{" + ",".join(fields) + "," + end + "}"


def fill(sequence: Sequence) -> str:
    rng = sequence.rng
    size = rng.choice([1, 2, 4]) if sequence.chance(0.95) else rng.choice([0, 3, 8])
    width, height = rng.choice([1, 4, 16]), rng.choice([1, 1, 2])
    pitch = 64 if sequence.chance(0.95) else rng.choice([0, 1])
    if sequence.chance(0.04):
        width = 0
    return f"{{q:{sequence.place('mv', 256)},q:{pitch},d:{rng.choice([0, 5, 255, 65537])},d:{size},q:{width},q:{height}}}"


# Questions about nodes, and room for their answers.
ASKS = [
    ("cuGraphKernelNodeGetParams_v2", "@?72"),
    ("cuGraphMemsetNodeGetParams", "@p5"),
    ("cuGraphHostNodeGetParams", "@p2"),
    ("cuGraphMemcpyNodeGetParams", "@?200"),
    ("cuGraphMemAllocNodeGetParams", "@?120"),
    ("cuGraphMemFreeNodeGetParams", "@p"),
    ("cuGraphEventRecordNodeGetEvent", "@p"),
    ("cuGraphEventWaitNodeGetEvent", "@p"),
    ("cuGraphChildGraphNodeGetGraph", "@p"),
]

POOL = "d:1,d:0,d:1,d:0,q:0,q:0,w:0,z:54"


def memory(s: Sequence) -> None:
    """Memory, and questions about it."""
    rng = s.rng
    size = rng.choice(ODD_SIZES) if s.chance(0.06) else rng.choice(SIZES)
    where = rng.randrange(16)
    if where <= 3:
        s.say(f"cuMemAlloc_v2 &{s.new('m', size)}:{size} {size}")
    elif where == 4:
        s.say(f"cuMemAllocManaged &{s.new('v', size)}:{size} {size} {rng.choice([1, 1, 2, 1, 0, 3])}")
    elif where == 5:
        s.say(f"cuMemHostAlloc &{s.new('n', size)}:{size} {size} {rng.choice([0, 0, 2, 1, 3, 8])}")
    elif where == 6:
        s.say(f"cuMemAllocHost_v2 &{s.new('n', size)}:{size} {size}")
    elif where == 7:
        size = max(64, size % (1 << 20))
        s.say(f"host {s.new('h', size)} {size}")
    elif where == 8:
        s.end(rng.choice("mmv"), "cuMemFree_v2")
    elif where == 9:
        s.end("n", "cuMemFreeHost")
    elif where == 10:
        target = s.pick("mvn", 0.1)
        s.say(f"cuMemGetAddressRange_v2 @p @q {target}{rng.choice(['', '', '+1', '+3']) if target != 'NULL' else ''}")
    elif where == 11:
        attribute = rng.choice([1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 0, 99])
        target = s.pick("mvnh", 0.05)
        s.say(f"cuPointerGetAttribute {'@d' if attribute in (2, 8, 9, 10, 13, 14, 15, 16) else '@p'} {attribute} {target}")
    elif where == 12:
        s.say(f"cuMemHostGetDevicePointer_v2 @p {s.pick('nh', 0.05)} {0 if s.chance(0.95) else 1}")
    elif where == 13:
        s.say(f"cuMemHostGetFlags @d {s.pick('nh', 0.05)}")
    elif where == 14:
        name = s.pick("h", 0.05)
        s.say(f"cuMemHostRegister_v2 {name} {s.size.get(name, 64)} {rng.choice([0, 1, 2, 3])}")
    else:
        s.say(f"cuMemHostUnregister {s.pick('h', 0.05)}")


def copies(s: Sequence) -> None:
    """Copies and fills that wait, and that do not."""
    rng = s.rng
    count = s.count()
    where = rng.randrange(14)
    if where <= 3:
        s.behind("NULL")
    if where == 0:
        s.say(f"cuMemcpyHtoD_v2 {s.place('mv', count)} {s.place('hn', count)} {count}")
    elif where == 1:
        s.say(f"cuMemcpyDtoH_v2 {s.place('hn', count)} {s.place('mv', count)} {count}")
    elif where == 2:
        s.say(f"cuMemcpyDtoD_v2 {s.place('mv', count)} {s.place('mv', count)} {count}")
    elif where == 3:
        s.say(f"cuMemcpy {s.place('mvhn', count)} {s.place('mvhn', count)} {count}")
    elif where == 4:
        s.say(f"cuMemcpyHtoDAsync_v2 {s.place('mv', count)} {s.place('hn', count)} {count} {s.stream()}")
    elif where == 5:
        s.say(f"cuMemcpyDtoHAsync_v2 {s.place('hn', count)} {s.place('mv', count)} {count} {s.stream()}")
    elif where == 6:
        s.say(f"cuMemcpyDtoDAsync_v2 {s.place('mv', count)} {s.place('mv', count)} {count} {s.stream()}")
    elif where == 7:
        s.say(f"cuMemcpyAsync {s.place('mvhn', count)} {s.place('mvhn', count)} {count} {s.stream()}")
    elif where == 8:
        call, bytes_ = rng.choice([("cuMemsetD8", 1), ("cuMemsetD16", 2), ("cuMemsetD32", 4)])
        value, words = rng.choice([0, 7, 255, 65535]), count // bytes_
        if s.chance(0.5):
            s.behind("NULL")
            s.say(f"{call}_v2 {s.place('mv', count)} {value} {words}")
        else:
            s.say(f"{call}Async {s.place('mv', count)} {value} {words} {s.stream()}")
    elif where == 9:
        call, bytes_ = rng.choice([("cuMemsetD2D8", 1), ("cuMemsetD2D16", 2), ("cuMemsetD2D32", 4)])
        pitch, width, height = 64, rng.choice([1, 4, 16]), rng.choice([1, 2, 4])
        pitch = pitch if s.chance(0.9) else rng.choice([0, 2])
        target = s.place("mv", 256)
        if s.chance(0.5):
            s.behind("NULL")
            s.say(f"{call}_v2 {target} {pitch} 9 {width} {height}")
        else:
            s.say(f"{call}Async {target} {pitch} 9 {width} {height} {s.stream()}")
    elif where == 10:
        s.behind("NULL")
        s.say(f"{rng.choice(['cuMemcpy2D_v2', 'cuMemcpy2DUnaligned_v2'])} {box(s, False)}")
    elif where == 11:
        s.say(f"cuMemcpy2DAsync_v2 {box(s, False)} {s.stream()}")
    elif where == 12:
        s.behind("NULL")
        s.say(f"cuMemcpy3D_v2 {box(s, True)}")
    else:
        s.say(f"cuMemcpy3DAsync_v2 {box(s, True)} {s.stream()}")


def streams(s: Sequence) -> None:
    """Streams and events."""
    rng = s.rng
    where = rng.randrange(19)
    if where <= 1:
        s.say(f"cuStreamCreate &{s.new('s')} {rng.choice([0, 1, 1, 1]) if s.chance(0.95) else 2}")
    elif where == 2:
        s.say(f"cuStreamCreateWithPriority &{s.new('s')} {rng.choice([0, 1])} {rng.choice([0, -1, 1, -100])}")
    elif where == 3:
        s.end("s", "cuStreamDestroy_v2")
    elif where == 4:
        s.say(f"cuStreamSynchronize {s.stream()}")
    elif where == 5:
        s.say(f"cuStreamQuery {s.stream()}")
    elif where == 6:
        s.say(f"cuStreamGetFlags {s.stream()} @d")
    elif where == 7:
        s.say(f"cuStreamGetPriority {s.stream()} {'@d' if s.chance(0.95) else 'NULL'}")
    elif where == 8:
        s.say(f"cuStreamGetCtx {s.stream()} @p")
    elif where == 9:
        s.say(f"cuStreamGetId {s.stream()} @#8")
    elif where <= 11:
        s.say(f"cuEventCreate &{s.new('e')} {rng.choice([0, 2, 2, 1, 3]) if s.chance(0.95) else rng.choice([4, 8])}")
    elif where == 12:
        s.end("e", "cuEventDestroy_v2")
    elif where <= 14:
        s.say(f"cuEventRecord {s.pick('e')} {s.stream()}")
    elif where == 15:
        s.say(f"cuEventQuery {s.pick('e')}")
    elif where == 16:
        s.say(f"cuEventSynchronize {s.pick('e')}")
    elif where == 17:
        s.say(f"cuStreamWaitEvent {s.stream()} {s.pick('e')} {0 if s.chance(0.95) else 2}")
    else:
        s.say(f"cuEventElapsedTime {'@?4' if s.chance(0.95) else 'NULL'} {s.pick('e')} {s.pick('e')}")


def work(s: Sequence) -> None:
    """Launches, functions of the application, and waits."""
    rng = s.rng
    where = rng.randrange(10)
    if where <= 3:
        function = function_of(s)
        shown = " ".join(str(value) for value in shape(s))
        s.say(f"cuLaunchKernel {function} {shown} {s.stream()} {params(s, function)} NULL")
    elif where == 4:
        function = function_of(s)
        shown = ",".join(f"d:{value}" for value in shape(s))
        s.say(f"cuLaunchKernelEx {{{shown},q:{s.stream()},q:NULL,d:0}} {function} {params(s, function)} NULL")
    elif where == 5:
        s.say(f"cuLaunchHostFunc {s.stream()} {'$host' if s.chance(0.95) else 'NULL'} {rng.randrange(9)}")
    elif where == 6:
        s.say(f"cuStreamAddCallback {s.stream()} {'$stream' if s.chance(0.95) else 'NULL'} {rng.randrange(9)} {0 if s.chance(0.95) else 1}")
    elif where == 7:
        s.say("cuCtxSynchronize")
    elif where == 8:
        call = rng.choice(["cuStreamWriteValue32_v2", "cuStreamWriteValue64_v2"])
        s.say(f"{call} {s.stream()} {s.place('m', 64)} {rng.randrange(99)} {rng.choice([0, 0, 1])}")
    else:
        s.say("cuCtxSynchronize")
        if s.has("h"):
            s.say(f"fill {rng.choice(s.live['h'])} {rng.randrange(256)}")


def pools(s: Sequence) -> None:
    """Memory in the order of streams."""
    rng = s.rng
    size = rng.choice(SIZES)
    where = rng.randrange(8)
    if where <= 1:
        stream = s.stream()
        name = s.new("a" if s.capturing else "m", size)
        s.say(f"cuMemAllocAsync &{name}:{size} {size if s.chance(0.95) else 0} {stream}")
        s.say(f"cuStreamSynchronize {stream}" if not s.capturing else "cuCtxGetCurrent @p")
    elif where == 2 and s.has("m"):
        name = s.pick("m")
        s.say(f"cuMemFreeAsync {'~' + name if name != 'NULL' else name} {s.stream()}")
        if name in s.live.get("m", []):
            s.live["m"].remove(name)
    elif where == 3:
        s.say(f"cuMemPoolCreate &{s.new('p')} {{{POOL}}}")
    elif where == 4 and s.has("p"):
        s.say(f"cuMemAllocFromPoolAsync &{s.new('m', size)}:{size} {size} {s.pick('p')} {s.stream()}")
        s.say("cuCtxSynchronize")
    elif where == 5:
        s.end("p", "cuMemPoolDestroy")
    elif where == 6:
        attribute = rng.choice([1, 2, 3, 4, 6, 8, 0, 99])
        s.say(f"cuMemPoolGetAttribute {s.pick('p', 0.05)} {attribute} {'@q' if attribute in (4, 6, 8) else '@d'}")
    else:
        s.say(f"cuMemPoolSetAttribute {s.pick('p', 0.05)} {rng.choice([1, 2, 3, 4, 6, 8])} {{q:{rng.choice([0, 1, 65536])}}}")


def contexts(s: Sequence) -> None:
    """Contexts and the device."""
    rng = s.rng
    where = rng.randrange(12)
    context = rng.choice(["c99", "c99", "c98", "NULL"])
    if where == 0:
        s.say(f"cuCtxPushCurrent_v2 {rng.choice(['c99', 'c98'])}")
    elif where == 1:
        s.say("cuCtxPopCurrent_v2 @p")
        s.say("cuCtxGetCurrent @p")
    elif where == 2:
        s.say(f"cuCtxSetCurrent {context}")
        if context == "NULL" and s.chance(0.8):
            s.say("cuCtxSetCurrent c99")
    elif where == 3:
        s.say("cuCtxGetCurrent @p")
    elif where == 4:
        s.say("cuCtxGetDevice @d")
    elif where == 5:
        s.say(f"cuCtxGetApiVersion {context} @?4")
    elif where == 6:
        s.say(f"cuCtxGetStreamPriorityRange {rng.choice(['@d', 'NULL'])} {rng.choice(['@d', 'NULL'])}")
    elif where == 7:
        s.say("cuCtxGetFlags @d")
    elif where == 8:
        s.say(f"cuDeviceGetAttribute @?4 {rng.choice([1, 2, 10, 41, 75, 86, 0, 400, 99999])} {rng.choice([0, 0, 0, -1, 77])}")
    elif where == 9:
        s.say(f"cuDeviceGet @d {rng.choice([0, 0, -1, 99])}")
    elif where == 10:
        s.say(f"cuGetErrorName {rng.choice([0, 1, 2, 201, 400, 719, 900, 12345])} @z")
    else:
        s.say(f"cuGetErrorString {rng.choice([0, 1, 2, 3, 201, 600, 700, 905, 12345])} @z")


def modules(s: Sequence) -> None:
    """Modules, libraries and functions."""
    rng = s.rng
    where = rng.randrange(12)
    name = rng.choice(['"add_one"', '"scale"', '"other"', '"missing"', '""', "NULL"])
    if where == 0:
        s.say(f"cuModuleLoadData &{s.new('d')} {rng.choice(['$small', '$small', '$small', '$broken', '$garbage', 'NULL'])}")
    elif where == 1:
        s.end("d", "cuModuleUnload")
    elif where == 2:
        s.say(f"cuModuleGetFunction &{s.new('f')} {rng.choice(['d99', s.pick('d')])} {name}")
        s.live["f"].pop()
    elif where == 3:
        wanted = rng.choice(['"table"', '"fixed"', '"missing"', "NULL"])
        s.say(f"cuModuleGetGlobal_v2 {rng.choice(['@p', '@p', 'NULL'])} {rng.choice(['@q', '@q', 'NULL'])} d99 {wanted}")
    elif where == 4:
        s.say(f"cuFuncGetAttribute @{'d' if s.chance(0.5) else '?4'} {rng.choice([0, 1, 8, 9, 99])} {function_of(s)}")
    elif where == 5:
        s.say(f"cuFuncSetAttribute {function_of(s)} {rng.choice([8, 9, 0, 99])} {rng.choice([0, 1024, -1, 50])}")
    elif where == 6:
        s.say(f"cuFuncGetModule @p {function_of(s)}")
    elif where == 7:
        s.say(f"cuFuncGetName @z {function_of(s)}")
    elif where == 8:
        s.say(f"cuFuncGetParamInfo {function_of(s)} {rng.choice([0, 1, 2, 9])} @q {rng.choice(['@q', 'NULL'])}")
    elif where == 9:
        s.say(f"cuLibraryLoadData &{s.new('l')} {rng.choice(['$small', '$broken', 'NULL'])} NULL NULL 0 NULL NULL 0")
    elif where == 10 and s.has("l"):
        s.say(f"cuLibraryGetKernel &{s.new('r')} {s.pick('l')} {name}")
    else:
        s.say(f"cuModuleGetFunctionCount @d {rng.choice(['d99', 'NULL'])}")


def captures(s: Sequence) -> None:
    """Capturing of streams."""
    rng = s.rng
    where = rng.randrange(11)
    if where <= 2 or not s.capturing:
        own = [name for name in s.live.get("s", []) if name not in s.capturing]
        stream = rng.choice(own) if own and s.chance(0.95) else s.stream()
        mode = rng.choice([0, 1, 2, 2, 2]) if s.chance(0.97) else 3
        if s.has("g") and s.chance(0.2):
            s.say(f"cuStreamBeginCaptureToGraph {stream} {s.pick('gy')} NULL NULL 0 {mode}")
        else:
            s.say(f"cuStreamBeginCapture_v2 {stream} {mode}")
        if stream.startswith("s"):
            s.capturing.append(stream)
    elif where <= 5:
        stream = rng.choice(s.capturing) if s.chance(0.95) else s.stream()
        s.say(f"cuStreamEndCapture {stream} {'&' + s.new('g') if s.chance(0.93) else 'NULL'}")
        if stream in s.capturing:
            s.capturing.remove(stream)
    elif where == 6:
        s.say(f"cuStreamIsCapturing {s.stream()} {'@d' if s.chance(0.95) else 'NULL'}")
    elif where == 7:
        stream = rng.choice(s.capturing) if s.chance(0.8) else s.stream()
        places = ["@#8", "@p", "@?8", "@q"]
        if s.chance(0.2):
            places[rng.randrange(4)] = "NULL"
        s.say(f"cuStreamGetCaptureInfo_v2 {stream} @d {' '.join(places)}")
    elif where == 8:
        listed, count = nodes(s)
        s.say(f"cuStreamUpdateCaptureDependencies {rng.choice(s.capturing)} {listed} {count} {rng.choice([0, 1, 2])}")
    elif where == 9:
        s.say(f"cuThreadExchangeStreamCaptureMode {{d:{rng.choice([0, 1, 2, 2])}}}")
    else:
        s.say(f"cuEventRecordWithFlags {s.pick('e')} {rng.choice(s.capturing)} {rng.choice([0, 1])}")


def graphs(s: Sequence) -> None:
    """Graphs: making, asking, changing."""
    rng = s.rng
    if not s.has("g"):
        s.say(f"cuGraphCreate &{s.new('g')} {0 if s.chance(0.97) else 1}")
        return
    graph = s.pick("gy")
    node = s.pick("k")
    listed, count = nodes(s)
    where = rng.randrange(42)
    if where <= 2:
        s.say(f"cuGraphAddKernelNode_v2 &{s.new('k')} {graph} {listed} {count} {kernel_params(s, 2)}")
    elif where == 3:
        s.say(f"cuGraphAddKernelNode &{s.new('k')} {graph} {listed} {count} {kernel_params(s, 1)}")
    elif where <= 5:
        s.say(f"cuGraphAddMemcpyNode &{s.new('k')} {graph} {listed} {count} {box(s, True)} {rng.choice(['c99', 'c99', 'NULL'])}")
    elif where <= 7:
        s.say(f"cuGraphAddMemsetNode &{s.new('k')} {graph} {listed} {count} {fill(s)} {rng.choice(['c99', 'c99', 'NULL'])}")
    elif where == 8:
        s.say(f"cuGraphAddHostNode &{s.new('k')} {graph} {listed} {count} {{q:{rng.choice(['$host', '$host', 'NULL'])},q:3}}")
    elif where == 9 and s.chance(0.5):
        call, value = rng.choice(
            [
                ("cuGraphHostNodeSetParams", "{q:$host,q:5}" if s.chance(0.8) else "{q:NULL,q:5}"),
                ("cuGraphEventRecordNodeSetEvent", s.pick("e", 0.1)),
                ("cuGraphEventWaitNodeSetEvent", s.pick("e", 0.1)),
                ("cuGraphKernelNodeCopyAttributes", s.pick("k", 0.1)),
                ("cuGraphHostNodeSetParams", "NULL"),
            ]
        )
        s.say(f"{call} {node} {value}")
    elif where == 9:
        s.say(f"cuGraphAddChildGraphNode &{s.new('k')} {graph} {listed} {count} {s.pick('g')}")
    elif where <= 11:
        s.say(f"cuGraphAddEmptyNode &{s.new('k')} {graph} {listed} {count}")
    elif where == 12:
        s.say(f"cuGraphAddEventRecordNode &{s.new('k')} {graph} {listed} {count} {s.pick('e')}")
    elif where == 13:
        s.say(f"cuGraphAddEventWaitNode &{s.new('k')} {graph} {listed} {count} {s.pick('e')}")
    elif where == 14:
        size = rng.choice(SIZES)
        s.say(f"cuGraphAddMemAllocNode &{s.new('k')} {graph} {listed} {count} {{{POOL},q:NULL,q:0,q:{size},q:0}}")
    elif where == 15:
        s.say(f"cuGraphAddMemFreeNode &{s.new('k')} {graph} {listed} {count} {s.pick('ma')}")
    elif where <= 18:
        room = rng.choice([0, 1, 2, 8])
        call = rng.choice(["cuGraphGetNodes", "cuGraphGetRootNodes"])
        places = rng.choice(["NULL", f"@p{max(room, 1)}"])
        s.say(f"{call} {graph} {places} {'NULL' if s.chance(0.05) else f'{{q:{room}}}'}")
    elif where == 19:
        room = rng.choice([0, 1, 2, 8])
        place = f"@p{max(room, 1)}"
        from_, to = rng.choice([("NULL", "NULL"), (place, place), (place, place), (place, "NULL"), ("NULL", place)])
        s.say(f"cuGraphGetEdges {graph} {from_} {to} {{q:{room}}}")
    elif where <= 21:
        room = rng.choice([0, 1, 2, 8])
        call = rng.choice(["cuGraphNodeGetDependencies", "cuGraphNodeGetDependentNodes"])
        s.say(f"{call} {node} {rng.choice(['NULL', f'@p{max(room, 1)}'])} {{q:{room}}}")
    elif where == 22:
        s.say(f"cuGraphNodeGetType {node} {'@d' if s.chance(0.95) else 'NULL'}")
    elif where == 23:
        s.say(f"cuGraphClone &{s.new('g')} {graph}")
    elif where == 24:
        s.say(f"cuGraphNodeFindInClone @p {node} {graph}")
    elif where == 25:
        s.say(f"cuGraphAddDependencies {graph} {{q:{s.pick('k')}}} {{q:{s.pick('k')}}} {rng.choice([1, 1, 0])}")
    elif where == 26:
        s.say(f"cuGraphRemoveDependencies {graph} {{q:{s.pick('k')}}} {{q:{s.pick('k')}}} {rng.choice([1, 1, 0])}")
    elif where == 27:
        s.end("k", "cuGraphDestroyNode")
    elif where == 28:
        s.end("g", "cuGraphDestroy")
    elif where <= 31:
        s.say(f"cuGraphInstantiateWithFlags &{s.new('x')} {graph} {rng.choice([0, 0, 0, 1, 2, 8, 99])}")
    elif where == 32:
        s.say(f"cuGraphInstantiate_v2 &{s.new('x')} {graph} {rng.choice(['@p', 'NULL'])} NULL 0")
    elif where == 33:
        version = rng.choice([1, 2])
        suffix = "" if version == 1 else "_v2"
        s.say(f"cuGraphKernelNodeSetParams{suffix} {node} {kernel_params(s, version)}")
    elif where == 34:
        s.say(f"cuGraphMemsetNodeSetParams {node} {fill(s) if s.chance(0.95) else 'NULL'}")
    elif where == 35:
        s.say(f"cuGraphMemcpyNodeSetParams {node} {box(s, True) if s.chance(0.95) else 'NULL'}")
    elif where == 36:
        call, place = rng.choice(ASKS)
        s.say(f"{call} {node} {place if s.chance(0.9) else 'NULL'}")
    elif where == 37:
        body = s.new("z")
        s.live["z"].pop()
        s.say(f"cuGraphConditionalHandleCreate &{body} {graph} c99 {rng.choice([0, 1])} {rng.choice([0, 1])}")
        s.say(
            f"cuGraphAddNode &{s.new('k')} {graph} {listed} {count} "
            f"{{d:13,d:0,d:0,d:0,q:{body},d:{rng.choice([0, 0, 2, 9])},d:{rng.choice([1, 1, 2, 0])},q:NULL,q:c99,z:200,q:0}}"
        )
        s.say(f"body {s.new('y')} 7")
    elif where == 38:
        s.say(f"cuGraphAddNode &{s.new('k')} {graph} {listed} {count} {{d:{rng.choice([5, 5, 77, 11])},z:252}}")
    elif where == 39:
        s.say(f"cuGraphChildGraphNodeGetGraph {node} @p")
    elif where == 40:
        s.say(f"cuGraphExecUpdate_v2 {s.pick('x')} {graph} {{d:0,q:0,q:0}}")
    else:
        s.say(f"cuGraphNodeGetContainingGraph {node} @p")


def executables(s: Sequence) -> None:
    """What is made executable."""
    rng = s.rng
    if not s.has("x"):
        graphs(s)
        return
    exec_, node = s.pick("x"), s.pick("k")
    where = rng.randrange(13)
    if where <= 3:
        s.say(f"cuGraphLaunch {exec_} {s.stream()}")
    elif where == 4:
        s.say(f"cuGraphUpload {exec_} {s.stream()}")
    elif where == 5:
        s.end("x", "cuGraphExecDestroy")
    elif where == 6:
        s.say(f"cuGraphExecKernelNodeSetParams_v2 {exec_} {node} {kernel_params(s, 2)}")
    elif where == 7:
        s.say(f"cuGraphExecMemsetNodeSetParams {exec_} {node} {fill(s)} c99")
    elif where == 8:
        s.say(f"cuGraphNodeSetEnabled {exec_} {node} {rng.choice([0, 1])}")
    elif where == 9:
        s.say(f"cuGraphNodeGetEnabled {exec_} {node} {'@d' if s.chance(0.9) else 'NULL'}")
    elif where == 10:
        s.say(f"cuGraphExecMemcpyNodeSetParams {exec_} {node} {box(s, True) if s.chance(0.9) else 'NULL'} c99")
    elif where == 11:
        s.say(f"cuGraphExecHostNodeSetParams {exec_} {node} {'{q:$host,q:7}' if s.chance(0.9) else 'NULL'}")
    else:
        s.say(f"cuGraphExecGetFlags {exec_} @q")


GROUPS: list[tuple[Callable[[Sequence], None], int]] = [
    (memory, 5),
    (copies, 6),
    (streams, 5),
    (work, 5),
    (pools, 2),
    (contexts, 1),
    (modules, 2),
    (captures, 3),
    (graphs, 6),
    (executables, 3),
]

# Calls that are made before cuInit, and without a context.
EARLY = [
    "cuDeviceGetCount @d",
    "cuDeviceGet @d 0",
    "cuCtxGetCurrent @p",
    "cuCtxSynchronize",
    "cuMemAlloc_v2 &m0 64",
    "cuMemFree_v2 NULL",
    "cuStreamCreate &s0 0",
    "cuStreamSynchronize NULL",
    "cuEventCreate &e0 0",
    "cuModuleLoadData &d0 $small",
    "cuGraphCreate &g0 0",
    "cuDevicePrimaryCtxRetain &c0 0",
    "cuMemHostAlloc &n0 64 0",
    "cuMemcpy NULL NULL 0",
    "cuGetErrorName 3 @z",
    "cuGetErrorString 3 @z",
    "cuDriverGetVersion @?4",
    "cuDriverGetVersion NULL",
    "cuCtxPopCurrent_v2 @p",
    "cuProfilerStart",
    "cuCtxSetCurrent NULL",
    "cuPointerGetAttribute @d 2 4096",
    "cuLaunchKernel NULL 1 1 1 1 1 1 0 NULL NULL NULL",
    "cuThreadExchangeStreamCaptureMode {d:2}",
    "cuInit 1",
    "cuInit 0",
]


def early(rng: random.Random) -> list[str]:
    lines = rng.sample(EARLY[:-2], rng.randrange(2, 8))
    if rng.random() < 0.7:
        lines += ["cuInit 1"] * rng.randrange(2) + ["cuInit 0"] + rng.sample(EARLY[:-2], rng.randrange(2, 8))
    return lines


def sequence(seed: int, length: int = 24) -> tuple[str, list[str]]:
    """The name and the lines of a seed's sequence."""
    rng = random.Random(seed)
    if seed % 256 == 0:
        return f"{seed} fresh", early(rng)
    s = Sequence(rng)
    # Something to work with, then as many calls of a few groups.
    s.say(f"cuMemAlloc_v2 &{s.new('m', 4096)}:4096 4096")
    s.say(f"host {s.new('h', 4096)} 4096")
    s.say(f"cuStreamCreate &{s.new('s')} 1")
    if rng.random() < 0.5:
        s.say(f"cuMemAlloc_v2 &{s.new('m', 4096)}:4096 4096")
        s.say(f"cuEventCreate &{s.new('e')} 2")
        s.say(f"cuStreamCreate &{s.new('s')} {rng.choice([0, 1])}")
    chosen = rng.sample(range(len(GROUPS)), rng.randrange(2, 6))
    groups = [GROUPS[at][0] for at in chosen for _ in range(GROUPS[at][1])]
    wanted = len(s.lines) + rng.randrange(4, length)
    while len(s.lines) < wanted:
        rng.choice(groups)(s)
    return str(seed), s.lines


def render(items: list[tuple[str, list[str]]]) -> str:
    """Sequences as the text of a file, behind the prologue."""
    parts = [PROLOGUE]
    for name, lines in items:
        parts.append(f"sequence {name}\n" + "".join(f"  {line}\n" for line in lines) + "end\n")
    return "".join(parts)
