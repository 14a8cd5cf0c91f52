"""Every instruction of PTX that devices in software are held to, each as a few lines for one thread.

A case names the registers that a thread has been given, what it does with them, and what of it counts: `goldens.py` makes kernels
of it. In its lines `a` to `f` are the inputs and `x`, `y`, `z` and `w` the results, registers without a type. Beside them there are `t0` to
`t5` of 32 bits, `u0` to `u3` of 64, `h0` to `h3` of 16, and the predicates `p`, `q`, `r`, `s`; `i` is the thread's number, `tid` that
within its block and `lane` within its warp, `own` the address of 64 bytes of its own (in `scratch`), `from` and `result` where its
first input and result lie, `object` the handle of the case's texture or surface (`textures.py`), `mine` 32 bytes of its own in the
block's shared memory `sh`, `lo` 32 bytes of local memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Bits of a type's register.
BITS = {
    "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16, "b32": 32, "u32": 32, "s32": 32, "f32": 32,
    "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64, "shift": 32, "tf32": 32, "bytes": 32,
    # Numbers around 1, as sums of many are made of.
    "near_f16x2": 32, "near_bf16x2": 32, "near_f32": 32, "near_f64": 64,
    "place": 32, "texel": 32, "way": 32, "level": 32, "step": 32, "index": 32, "layer": 32,
}  # fmt: skip
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
WORDS = ("u32", "s32", "u64", "s64")
ROUNDINGS = ("rn", "rz", "rm", "rp")
HALVES = ("f16", "f16x2", "bf16", "bf16x2")
ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")

# A launch of many dimensions, and the usual one: blocks of 128 threads.
FLAT = ((18, 1, 1), (128, 1, 1))
DEEP = ((3, 2, 3), (8, 4, 4))


@dataclass(frozen=True)
class Case:
    """What one instruction, or a few that belong together, do for every thread."""

    group: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: str
    # What holds it to the exact result, if it is approximate: a function of `bounds` in goldens.py.
    bound: str = ""
    # Declarations before the kernel.
    before: str = ""
    launch: tuple[tuple[int, int, int], tuple[int, int, int]] = FLAT
    # What `object` is a handle of, as `textures.py` has it, if the case has one.
    object: str = ""
    # How far numbers may be from the GPU's: filters of textures are only documented by the bits of their weights.
    near: float = 0.0


def plain(group: str, instruction: str, inputs: tuple[str, ...], output: str, bound: str = "") -> Case:
    """An instruction whose operands are its inputs, in their order."""
    operands = ", ".join("abcdef"[: len(inputs)])
    return Case(group, instruction, inputs, (output,), f"{instruction} x, {operands};", bound)


def wider(ty: str) -> str:
    return ty[0] + str(2 * int(ty[1:]))


def integers() -> Iterator[Case]:
    for ty in INTEGERS:
        for op in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            yield plain("integer", f"{op}.{ty}", (ty, ty), ty)
        for op in ("mad.lo", "mad.hi", "sad"):
            yield plain("integer", f"{op}.{ty}", (ty, ty, ty), ty)
        if ty[0] == "s":
            yield plain("integer", f"abs.{ty}", (ty,), ty)
            yield plain("integer", f"neg.{ty}", (ty,), ty)
    for ty in ("u16", "s16", "u32", "s32"):
        yield plain("integer", f"mul.wide.{ty}", (ty, ty), wider(ty))
        yield plain("integer", f"mad.wide.{ty}", (ty, ty, wider(ty)), wider(ty))
    for ty in ("u32", "s32"):
        for half in ("lo", "hi"):
            yield plain("integer", f"mul24.{half}.{ty}", (ty, ty), ty)
            yield plain("integer", f"mad24.{half}.{ty}", (ty, ty, ty), ty)
    yield plain("integer", "add.sat.s32", ("s32", "s32"), "s32")
    yield plain("integer", "sub.sat.s32", ("s32", "s32"), "s32")
    yield plain("integer", "mad.hi.sat.s32", ("s32", "s32", "s32"), "s32")
    yield plain("integer", "mad24.hi.sat.s32", ("s32", "s32", "s32"), "s32")
    for ty in ("u16x2", "s16x2"):
        for op in ("add", "min", "max"):
            yield plain("integer", f"{op}.{ty}", (ty, ty), ty)
    for op in ("min", "max"):
        yield plain("integer", f"{op}.relu.s16x2", ("s16x2", "s16x2"), "s16x2")
        yield plain("integer", f"{op}.relu.s32", ("s32", "s32"), "s32")
    for ty in WORDS:
        for op in ("add", "sub"):
            body = f"{op}.cc.{ty} x, a, b;\n{op}c.cc.{ty} y, c, d;\n{op}c.{ty} z, a, d;"
            yield Case("carry", f"{op}.cc.{ty}, {op}c.cc.{ty}, {op}c.{ty}", (ty,) * 4, (ty,) * 3, body)
        for first, second in (("lo", "hi"), ("hi", "lo")):
            body = f"mad.{first}.cc.{ty} x, a, b, c;\nmadc.{second}.cc.{ty} y, a, b, d;\naddc.{ty} z, c, d;"
            yield Case("carry", f"mad.{first}.cc.{ty}, madc.{second}.cc.{ty}", (ty,) * 4, (ty,) * 3, body)
        body = f"mad.lo.cc.{ty} x, a, b, c;\nmadc.hi.{ty} y, a, b, d;"
        yield Case("carry", f"mad.lo.cc.{ty}, madc.hi.{ty}", (ty,) * 4, (ty,) * 2, body)


def bits() -> Iterator[Case]:
    for ty in ("b16", "b32", "b64"):
        for op in ("and", "or", "xor"):
            yield plain("bits", f"{op}.{ty}", (ty, ty), ty)
        for op in ("not", "cnot"):
            yield plain("bits", f"{op}.{ty}", (ty,), ty)
        yield plain("bits", f"shl.{ty}", (ty, "shift"), ty)
        for kind in "bus":
            yield plain("bits", f"shr.{kind}{BITS[ty]}", (ty, "shift"), ty)
    for ty in ("b32", "b64"):
        for op, output in (("popc", "b32"), ("clz", "b32"), ("brev", ty)):
            yield plain("bits", f"{op}.{ty}", (ty,), output)
        yield plain("bits", f"bfi.{ty}", (ty, ty, "shift", "shift"), ty)
    for ty in WORDS:
        for op in ("bfind", "bfind.shiftamt"):
            yield plain("bits", f"{op}.{ty}", (ty,), "b32")
        yield plain("bits", f"bfe.{ty}", (ty, "shift", "shift"), ty)
    for way in "lr":
        for mode in ("wrap", "clamp"):
            yield plain("bits", f"shf.{way}.{mode}.b32", ("b32", "b32", "shift"), "b32")
    for mode in ("wrap", "clamp"):
        yield plain("bits", f"bmsk.{mode}.b32", ("shift", "shift"), "b32")
        for ty in ("u32", "s32"):
            yield plain("bits", f"szext.{mode}.{ty}", (ty, "shift"), ty)
    yield plain("bits", "fns.b32", ("b32", "shift", "shift"), "b32")
    for table in (0x01, 0x1E, 0x40, 0x7F, 0x80, 0x96, 0xB2, 0xCA, 0xD8, 0xE8, 0xFE):
        body = f"lop3.b32 x, a, b, c, {table};"
        yield Case("bits", f"lop3.b32 {table:#04x}", ("b32",) * 3, ("b32",), body)
    for op in ("and", "or"):
        body = f"setp.lt.s32 q, d, 0;\nlop3.{op}.b32 x|p, a, b, c, 0x96, q;\nselp.b32 y, 1, 0, p;"
        yield Case("bits", f"lop3.{op}.b32 0x96", ("b32",) * 4, ("b32", "b32"), body)
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield plain("bits", f"prmt.b32{mode}", ("b32", "b32", "b32"), "b32")
    for a in ("u32", "s32"):
        for b in ("u32", "s32"):
            yield plain("bits", f"dp4a.{a}.{b}", ("bytes", "bytes", "b32"), "b32")
            for half in ("lo", "hi"):
                yield plain("bits", f"dp2a.{half}.{a}.{b}", ("bytes", "bytes", "b32"), "b32")
    # Only some of these are carried out in software; others are known to be refused.
    for op in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
        for ty in ("u32", "s32"):
            body = f"{op}.{ty}.{ty}.{ty} x, a.b0, b.h1;\n{op}.{ty}.{ty}.{ty}.sat y, a, b;\n"
            body += f"{op}.{ty}.{ty}.{ty}.add z, a.h0, b.b3, c;"
            yield Case("video", f"{op}.{ty}", ("b32",) * 3, ("b32",) * 3, body)
    for count in (2, 4):
        for op in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"):
            for ty in ("u32", "s32"):
                name = f"{op}{count}.{ty}.{ty}.{ty}"
                added = f"{name}.add y, a, b, c;" if op == "vabsdiff" else "mov.b32 y, 0;"
                body = f"{name} x, a, b, c;\n{added}"
                yield Case("video", name, ("b32",) * 3, ("b32", "b32"), body)


def floats() -> Iterator[Case]:
    for ty in ("f32", "f64"):
        for flush in ("", ".ftz") if ty == "f32" else ("",):
            for saturate in ("", ".sat") if ty == "f32" else ("",):
                for rounding in ("", *(f".{one}" for one in ROUNDINGS)):
                    for op in ("add", "sub", "mul"):
                        yield plain("float", f"{op}{rounding}{flush}{saturate}.{ty}", (ty, ty), ty)
                for rounding in ROUNDINGS:
                    yield plain("float", f"fma.{rounding}{flush}{saturate}.{ty}", (ty, ty, ty), ty)
            for rounding in ROUNDINGS:
                yield plain("float", f"mad.{rounding}{flush}.{ty}", (ty, ty, ty), ty)
                yield plain("float", f"div.{rounding}{flush}.{ty}", (ty, ty), ty)
                yield plain("float", f"rcp.{rounding}{flush}.{ty}", (ty,), ty)
                yield plain("float", f"sqrt.{rounding}{flush}.{ty}", (ty,), ty)
            for op in ("abs", "neg"):
                yield plain("float", f"{op}{flush}.{ty}", (ty,), ty)
            for op in ("min", "max"):
                for kind in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs") if ty == "f32" else ("",):
                    yield plain("extremum", f"{op}{flush}{kind}.{ty}", (ty, ty), ty)
        yield plain("float", f"copysign.{ty}", (ty, ty), ty)
        classes = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
        body = mask((f"testp.{one}.{ty} p, a;", "p") for one in classes)
        yield Case("compare", f"testp.{ty}", (ty,), ("b32",), body)
    for flush in ("", ".ftz"):
        yield plain("approximate", f"div.approx{flush}.f32", ("f32", "f32"), "f32", "div_approx")
        yield plain("approximate", f"div.full{flush}.f32", ("f32", "f32"), "f32", "div_full")
        for op in ("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos"):
            yield plain("approximate", f"{op}.approx{flush}.f32", ("f32",), "f32", op)
    yield plain("approximate", "tanh.approx.f32", ("f32",), "f32", "tanh")
    yield plain("approximate", "rcp.approx.ftz.f64", ("f64",), "f64", "rcp_f64")
    yield plain("approximate", "rsqrt.approx.ftz.f64", ("f64",), "f64", "rsqrt_f64")
    yield plain("approximate", "rsqrt.approx.f64", ("f64",), "f64", "rsqrt_f64")
    for ty in HALVES:
        flushes = ("", ".ftz") if ty[0] == "f" else ("",)
        for flush in flushes:
            for saturate in ("", ".sat") if ty[0] == "f" else ("",):
                for op in ("add", "sub", "mul"):
                    yield plain("half", f"{op}.rn{flush}{saturate}.{ty}", (ty, ty), ty)
                yield plain("half", f"fma.rn{flush}{saturate}.{ty}", (ty, ty, ty), ty)
            yield plain("half", f"fma.rn{flush}.relu.{ty}", (ty, ty, ty), ty)
            for op in ("abs", "neg"):
                yield plain("half", f"{op}{flush}.{ty}", (ty,), ty)
            for op in ("min", "max"):
                for kind in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"):
                    yield plain("extremum", f"{op}{flush}{kind}.{ty}", (ty, ty), ty)
        flush = "" if ty[0] == "f" else ".ftz"
        yield plain("approximate", f"ex2.approx{flush}.{ty}", (ty,), ty, f"ex2_{ty}")
        yield plain("approximate", f"tanh.approx.{ty}", (ty,), ty, f"tanh_{ty}")
    for op in ("add", "sub", "mul"):
        yield plain("half", f"{op}.f16", ("f16", "f16"), "f16")


def mask(tests: Iterator[tuple[str, str]]) -> str:
    """Lines that gather predicates as bits of `x`, the first test's the lowest."""
    lines = ["mov.b32 x, 0;"]
    for number, (test, predicate) in enumerate(tests):
        lines += [test, f"selp.b32 t0, {1 << number}, 0, {predicate};", "or.b32 x, x, t0;"]
    return "\n".join(lines)


def comparisons() -> Iterator[Case]:
    for ty in ("b16", "b32", "b64", *INTEGERS, "f16", "bf16", "f32", "f64"):
        known: tuple[str, ...] = ORDERED
        if ty[0] == "b" and ty != "bf16":
            known = ("eq", "ne")
        elif ty[0] == "u":
            known = (*ORDERED, "lo", "ls", "hi", "hs")
        elif ty in ("f16", "bf16", "f32", "f64"):
            known = (*ORDERED, *UNORDERED)
        for flush in ("", ".ftz") if ty in ("f16", "f32") else ("",):
            body = mask((f"setp.{one}{flush}.{ty} p, a, b;", "p") for one in known)
            yield Case("compare", f"setp{flush}.{ty}", (ty, ty), ("b32",), body)
    for ty in ("u32", "s64", "f32", "f64"):
        tests = []
        for logic in ("and", "or", "xor"):
            for flag in ("r", "!r"):
                test = f"setp.lt.{logic}.{ty} p|q, a, b, {flag};"
                tests += [(test, "p"), (test, "q")]
        body = "setp.lt.s32 r, c, 0;\n" + mask(iter(tests))
        yield Case("compare", f"setp.lt.{{and,or,xor}}.{ty} p|q", (ty, ty, "b32"), ("b32",), body)
    for ty in ("f16x2", "bf16x2"):
        tests = []
        for one in (*ORDERED, *UNORDERED):
            test = f"setp.{one}.{ty} p|q, a, b;"
            tests += [(test, "p"), (test, "q")]
        yield Case("compare", f"setp.{ty} p|q", (ty, ty), ("b32",), mask(iter(tests)))
    for ty in ("u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64"):
        for to in ("u32", "s32", "f32"):
            for one in ("lt", "ne") if ty[0] != "f" else ("lt", "neu"):
                yield plain("compare", f"set.{one}.{to}.{ty}", (ty, ty), to)
    for one in ("ge", "nan"):
        yield plain("compare", f"set.{one}.ftz.u32.f32", ("f32", "f32"), "u32")
        yield plain("compare", f"set.{one}.ftz.f32.f32", ("f32", "f32"), "f32")
        for ty in ("f16", "bf16"):
            for to in (ty, "u16", "s16", "u32", "s32"):
                yield plain("compare", f"set.{one}.{to}.{ty}", (ty, ty), to)
        for ty in ("f16x2", "bf16x2"):
            yield plain("compare", f"set.{one}.{ty}.{ty}", (ty, ty), ty)
    for ty in ("s32", "f32"):
        body = f"setp.lt.s32 r, c, 0;\nset.gt.and.u32.{ty} x, a, b, r;\nset.gt.xor.f32.{ty} y, a, b, !r;"
        yield Case("compare", f"set.gt.and.u32.{ty}, set.gt.xor.f32.{ty}", (ty, ty, "b32"), ("b32", "f32"), body)
    for ty in ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
        body = f"setp.ne.s32 p, c, 0;\nselp.{ty} x, a, b, p;\nselp.{ty} y, a, b, !p;"
        yield Case("compare", f"selp.{ty}", (ty, ty, "b32"), (ty, ty), body)
        yield plain("compare", f"slct.{ty}.s32", (ty, ty, "s32"), ty)
        yield plain("compare", f"slct.{ty}.f32", (ty, ty, "f32"), ty)
        yield plain("compare", f"slct.ftz.{ty}.f32", (ty, ty, "f32"), ty)
    tests = []
    for op in ("and", "or", "xor"):
        tests += [(f"{op}.pred s, p, q;", "s"), (f"{op}.pred s, !p, q;", "s")]
    tests += [("not.pred s, p;", "s"), ("mov.pred s, q;", "s")]
    body = "setp.lt.s32 p, a, 0;\nsetp.lt.s32 q, b, 0;\n" + mask(iter(tests))
    yield Case("compare", "and.pred, or.pred, xor.pred, not.pred, mov.pred", ("b32", "b32"), ("b32",), body)


def conversions() -> Iterator[Case]:
    whole = ("u8", "s8", *INTEGERS)
    real = ("f16", "f32", "f64")

    def cvt(modifiers: str, to: str, source: str) -> Case:
        # A register of 32 bits for whatever is smaller than 16, with what it likes above.
        register = "b32" if BITS[source] == 8 else source
        target = "b32" if BITS[to] == 8 else to
        return plain("convert", f"cvt{modifiers}.{to}.{source}", (register,), target)

    for to in whole:
        for source in whole:
            yield cvt("", to, source)
            # Only where the result's type cannot hold every value.
            holds = BITS[to] > BITS[source] - (to[0] == "u" == source[0]) - (to[0] == "s" == source[0])
            if not (holds and (to[0] == source[0] or source[0] == "u")):
                yield cvt(".sat", to, source)
    for to in real:
        for source in whole:
            for rounding in ROUNDINGS:
                yield cvt(f".{rounding}", to, source)
            yield cvt(".rn.sat", to, source)
    for to in whole:
        for source in (*real, *(("bf16",) if BITS[to] > 8 else ())):
            for rounding in ROUNDINGS:
                yield cvt(f".{rounding}i", to, source)
                if source == "f32":
                    yield cvt(f".{rounding}i.ftz", to, source)
                if source != "bf16":
                    yield cvt(f".{rounding}i.sat", to, source)
    for ty in real:
        for rounding in ROUNDINGS:
            for flush in ("", ".ftz") if ty == "f32" else ("",):
                for saturate in ("", ".sat"):
                    yield cvt(f".{rounding}i{flush}{saturate}", ty, ty)
        yield cvt("", ty, ty)
        yield cvt(".sat", ty, ty)
    yield cvt(".ftz", "f32", "f32")
    yield cvt(".ftz.sat", "f32", "f32")
    for narrow, wide in (("f16", "f32"), ("f16", "f64"), ("f32", "f64")):
        yield cvt("", wide, narrow)
        yield cvt(".sat", wide, narrow)
        for rounding in ROUNDINGS:
            yield cvt(f".{rounding}", narrow, wide)
            yield cvt(f".{rounding}.sat", narrow, wide)
            if "f32" in (narrow, wide):
                yield cvt(f".{rounding}.ftz", narrow, wide)
    yield cvt(".ftz", "f32", "f16")
    yield cvt(".ftz", "f64", "f32")
    for to in ("f16", "bf16"):
        for rounding in ("rn", "rz"):
            yield cvt(f".{rounding}.relu", to, "f32")
            yield plain("convert", f"cvt.{rounding}.{to}x2.f32", ("f32", "f32"), f"{to}x2")
            yield plain("convert", f"cvt.{rounding}.relu.{to}x2.f32", ("f32", "f32"), f"{to}x2")
    for rounding in ("rn", "rz"):
        yield cvt(f".{rounding}", "bf16", "f32")
    yield cvt("", "f32", "bf16")
    yield cvt("", "f64", "bf16")
    for rounding in ROUNDINGS:
        for source in (*INTEGERS, "f16", "f64"):
            yield cvt(f".{rounding}", "bf16", source)
        yield cvt(f".{rounding}", "f16", "bf16")
    for rounding in ("rn", "rz", "rna"):
        yield cvt(f".{rounding}", "tf32", "f32")
    for to in ("e4m3x2", "e5m2x2"):
        for relu in ("", ".relu"):
            name = f"cvt.rn.satfinite{relu}.{to}.f32"
            yield Case("convert", name, ("f32", "f32"), ("b16",), f"{name} x, a, b;")
            name = f"cvt.rn{relu}.f16x2.{to}"
            yield Case("convert", name, ("b16",), ("b32",), f"{name} x, a;")
            name = f"cvt.rn.satfinite{relu}.{to}.f16x2"
            yield Case("convert", name, ("f16x2",), ("b16",), f"{name} x, a;")
    for ty in ("u8", "s8", "u16", "s16"):
        name = f"cvt.pack.sat.{ty}.s32"
        body = f"{name}{'.b32' if BITS[ty] == 8 else ''} x, a, b{', c' if BITS[ty] == 8 else ''};"
        yield Case("convert", name, ("s32", "s32", "b32"), ("b32",), body)


def moves() -> Iterator[Case]:
    yield Case("move", "mov.b32 of two", ("b16", "b16"), ("b32",), "mov.b32 x, {a, b};")
    yield Case("move", "mov.b64 of two", ("b32", "b32"), ("b64",), "mov.b64 x, {a, b};")
    yield Case("move", "mov.b64 of four", ("b16",) * 4, ("b64",), "mov.b64 x, {a, b, c, d};")
    yield Case("move", "mov.b32 to two", ("b32",), ("b16", "b16"), "mov.b32 {x, y}, a;")
    yield Case("move", "mov.b64 to two", ("b64",), ("b32", "b32"), "mov.b64 {x, y}, a;")
    yield Case("move", "mov.b64 to four", ("b64",), ("b16",) * 3, "mov.b64 {x, y, z, _}, a;")
    for name, ty in (("3.5", "f32"), ("0f7fc12345", "f32"), ("0d7ff8000000012345", "f64"), ("-1.0e300", "f64")):
        yield Case("move", f"mov.{ty} {name}", (), (ty,), f"mov.{ty} x, {name};")
    for width, name in ((32, "0x80000000U"), (32, "-1"), (64, "0xfedcba9876543210U"), (32, "5 - 3 * 7"), (64, "-8 / 3")):
        yield Case("move", f"mov.b{width} {name}", (), (f"b{width}",), f"mov.b{width} x, {name};")
    for ty in ("u32", "s32"):
        body = f"@p mov.{ty} x, 1;\n@!p mov.{ty} x, 2;"
        yield Case("move", f"guarded mov.{ty}", (ty, ty), (ty,), f"setp.lt.{ty} p, a, b;\n{body}")


def memory() -> Iterator[Case]:
    spaces = {"global": "own", "shared": "mine", "local": "lo", "generic": "own"}
    for space, at in spaces.items():
        dot = "" if space == "generic" else f".{space}"
        for ty in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64", "b8", "b16", "b32", "b64"):
            # Small values are stored from, and loaded to, registers that are wider.
            stored = "b32" if BITS[ty] == 8 else f"b{BITS[ty]}"
            loaded = "b64" if ty[0] in "us" else stored
            body = f"st{dot}.{ty} [{at}+8], a;\nld{dot}.{ty} x, [{at}+8];"
            yield Case("memory", f"st{dot}.{ty}, ld{dot}.{ty} in {space}", (stored,), (loaded,), body)
        for count, ty in (
            (2, "u8"),
            (4, "u8"),
            (2, "u16"),
            (4, "u16"),
            (2, "u32"),
            (4, "u32"),
            (2, "u64"),
            (2, "f32"),
            (4, "f32"),
            (2, "f64"),
        ):
            stored = "b32" if BITS[ty] == 8 else f"b{BITS[ty]}"
            names, results = ("ab", "xy") if count == 2 else ("abcd", "xyz_")
            body = f"st{dot}.v{count}.{ty} [{at}], {{{', '.join(names)}}};\nld{dot}.v{count}.{ty} {{{', '.join(results)}}}, [{at}];"
            outputs = (stored,) * (2 if count == 2 else 3)
            yield Case("memory", f"st{dot}.v{count}.{ty}, ld{dot}.v{count}.{ty} in {space}", (stored,) * count, outputs, body)
    # Which byte lies where, and what a wider access sees of narrower ones.
    body = (
        "st.global.u32 [own], a;\nst.global.u8 [own+1], b;\nst.global.u16 [own+2], b;\n"
        "ld.global.u32 x, [own];\nld.global.s8 y, [own+3];"
    )
    yield Case("memory", "bytes of a word", ("b32", "b32"), ("b32", "b32"), body)
    for modifiers in (
        ".volatile.global",
        ".relaxed.gpu.global",
        ".acquire.sys.global",
        ".global.ca",
        ".global.cg",
        ".global.cs",
        ".global.lu",
        ".global.cv",
        ".global.nc",
    ):
        first = ".release.sys.global" if ".acquire" in modifiers else ".global" if modifiers.endswith("nc") else modifiers
        first = first.replace(".ca", ".wb").replace(".lu", ".wt").replace(".cv", ".wt")
        # What `.nc` reads must not have been written by the kernel: the input itself then.
        body = f"st{first}.u32 [own], a;\nld{modifiers}.u32 x, [own];"
        if modifiers.endswith("nc"):
            body = f"ld{modifiers}.u32 x, [from];"
        yield Case("memory", f"ld{modifiers}.u32", ("b32",), ("b32",), body)
    table = ".const .align 8 .b32 table[8] = {1, 0x80000000, 3, -4, 5, 6, 0xffffffff, 8};"
    for ty, output in (("u32", "b32"), ("s32", "b64"), ("s16", "b32"), ("u8", "b32"), ("u64", "b64")):
        body = f"and.b32 t0, a, 3;\nmul.wide.u32 u0, t0, 8;\nmov.u64 u1, table;\nadd.u64 u0, u0, u1;\nld.const.{ty} x, [u0];"
        yield Case("memory", f"ld.const.{ty}", ("b32",), (output,), body, before=table)
    body = (
        "and.b32 t0, a, 3;\nmul.wide.u32 u0, t0, 8;\nmov.u64 u1, table;\ncvta.const.u64 u1, u1;\n"
        "add.u64 u0, u0, u1;\nld.v2.u32 {x, y}, [u0];"
    )
    yield Case("memory", "ld of constants by generic addresses", ("b32",), ("b32", "b32"), body, before=table)
    filled = ".global .align 16 .f32 numbers[4] = {1.5, 0f80000000, -2.0, 0f7f800000};\n.global .u64 start = numbers;\n"
    filled += ".global .u64 further = numbers + 8;\n.global .align 8 .b8 text[8] = {72, 101, 108, 108, 111, 0x21};"
    body = "and.b32 t0, a, 3;\nmul.wide.u32 u0, t0, 4;\nld.global.u64 u1, [start];\nadd.u64 u0, u0, u1;\nld.global.f32 x, [u0];\n"
    body += "ld.global.u64 u2, [further];\nsub.u64 y, u2, u1;\nld.global.u64 z, [text];"
    yield Case("memory", "variables with values", ("b32",), ("b32", "b64", "b64"), body, before=filled)
    for space, at in (("global", "own"), ("shared", "mine"), ("local", "lo")):
        address = "mov.u64 u0, own;" if space == "global" else f"mov.u32 t0, {at};\ncvt.u64.u32 u0, t0;"
        if space == "local":
            address = "mov.u64 u0, lo;"
        body = f"{address}\ncvta.{space}.u64 u1, u0;\nst.{space}.u32 [{at}+4], a;\nld.u32 x, [u1+4];\n"
        body += f"st.u32 [u1+8], b;\nld.{space}.u32 y, [{at}+8];\ncvta.to.{space}.u64 u2, u1;\nsub.u64 z, u2, u0;"
        yield Case("memory", f"cvta.{space}.u64, cvta.to.{space}.u64", ("b32", "b32"), ("b32", "b32", "b64"), body)
        tests = ((f"isspacep.{one} p, u1;", "p") for one in ("global", "shared", "local", "const"))
        yield Case(
            "memory", f"isspacep of {space} memory", ("b32",), ("b32",), f"{address}\ncvta.{space}.u64 u1, u0;\n" + mask(tests)
        )


def atomics() -> Iterator[Case]:
    known = {
        "u32": ("add", "min", "max", "inc", "dec"), "s32": ("add", "min", "max"), "u64": ("add", "min", "max"), "s64": ("min", "max"),
        "b32": ("and", "or", "xor", "exch"), "b64": ("and", "or", "xor", "exch"), "f32": ("add",), "f64": ("add",),
        "f16": ("add.noftz",), "f16x2": ("add.noftz",), "bf16": ("add.noftz",), "bf16x2": ("add.noftz",),
    }  # fmt: skip
    for space, at in (("global", "own"), ("shared", "mine"), ("generic", "own")):
        dot = "" if space == "generic" else f".{space}"
        for ty, ops in known.items():
            width = f"b{BITS[ty]}"
            for op in ops:
                body = f"st{dot}.{width} [{at}], a;\natom{dot}.{op}.{ty} x, [{at}], b;\nld{dot}.{width} y, [{at}];"
                yield Case("atomic", f"atom{dot}.{op}.{ty}", (ty, ty), (ty, ty), body)
                if op != "exch":
                    body = f"st{dot}.{width} [{at}], a;\nred{dot}.{op}.{ty} [{at}], b;\nld{dot}.{width} x, [{at}];"
                    yield Case("atomic", f"red{dot}.{op}.{ty}", (ty, ty), (ty,), body)
        for ty in ("b16", "b32", "b64"):
            # It fits for half of the threads.
            body = f"st{dot}.{ty} [{at}], a;\nand.b32 t0, i, 1;\nsetp.eq.u32 p, t0, 0;\nselp.{ty} b, a, b, p;\n"
            body += f"atom{dot}.cas.{ty} x, [{at}], b, c;\nld{dot}.{ty} y, [{at}];"
            yield Case("atomic", f"atom{dot}.cas.{ty}", (ty, ty, ty), (ty, ty), body)
    for scope in (".relaxed.cta", ".acquire.gpu", ".release.sys", ".acq_rel.gpu"):
        body = f"st.global.u32 [own], a;\natom{scope}.global.add.u32 x, [own], b;\nld.global.u32 y, [own];"
        yield Case("atomic", f"atom{scope}.global.add.u32", ("u32", "u32"), ("u32", "u32"), body)
    # All threads of a block on one word, where their order does not show.
    for op, ty in (
        ("add", "u32"),
        ("min", "s32"),
        ("max", "u32"),
        ("and", "b32"),
        ("or", "b32"),
        ("xor", "b32"),
        ("add", "u64"),
        ("inc", "u32"),
    ):
        operand = "77" if op == "inc" else "a"
        start = "-1" if op == "and" else "0"
        body = f"mov.u32 t1, sh;\nsetp.eq.u32 p, tid, 0;\n@p st.shared.b{BITS[ty]} [t1], {start};\nbar.sync 0;\n"
        body += f"red.shared.{op}.{ty} [t1], {operand};\nbar.sync 0;\nld.shared.b{BITS[ty]} x, [t1];"
        yield Case("atomic", f"red.shared.{op}.{ty} by a block", (ty,), (ty,), body)
    for op in ("add", "max", "xor"):
        body = "mov.u32 t0, %ctaid.x;\nmul.wide.u32 u0, t0, 64;\nadd.u64 u0, u0, scratch;\nsetp.eq.u32 p, tid, 0;\n"
        body += (
            "@p st.global.b32 [u0], 0;\nbar.sync 0;\n"
            f"red.global.{op}.{'b32' if op == 'xor' else 'u32'} [u0], a;\nbar.sync 0;\n"
            "ld.volatile.global.u32 x, [u0];"
        )
        yield Case("atomic", f"red.global.{op}.u32 by a block", ("u32",), ("u32",), body)


def warps() -> Iterator[Case]:
    for kind in ("idx", "up", "down", "bfly"):
        clamp = 0 if kind == "up" else 31
        for distance in ("b", "1", "5"):
            for segment in (0, 24, 28) if distance == "b" else (0,):
                body = f"shfl.sync.{kind}.b32 x|p, a, {distance}, {segment << 8 | clamp}, -1;\nselp.b32 y, 1, 0, p;"
                name = f"shfl.sync.{kind}.b32 by {distance} in segments of {32 - segment if segment else 32}"
                yield Case("warp", name, ("b32", "shift"), ("b32", "b32"), body)
        body = f"shfl.sync.{kind}.b32 x|p, a, b, c, -1;\nselp.b32 y, 1, 0, p;"
        yield Case("warp", f"shfl.sync.{kind}.b32 of any clamp", ("b32", "shift", "b32"), ("b32", "b32"), body)
        # A quarter of the lanes, each from one that is with them.
        body = "and.b32 t0, lane, 3;\nsetp.ne.u32 p, t0, 1;\nmov.b32 x, 0;\n@p bra past;\nand.b32 t1, b, 28;\nor.b32 t1, t1, 1;\n"
        if kind != "idx":
            body = body.replace("or.b32 t1, t1, 1;\n", "")
        body += f"shfl.sync.{kind}.b32 x, a, t1, {clamp}, 0x22222222;\npast:\nbar.warp.sync -1;"
        yield Case("warp", f"shfl.sync.{kind}.b32 of a quarter", ("b32", "shift"), ("b32",), body)
    for kind, negated in (("all", ""), ("any", ""), ("uni", ""), ("all", "!"), ("any", "!"), ("uni", "!")):
        body = f"setp.lt.s32 p, a, b;\nvote.sync.{kind}.pred q, {negated}p, -1;\nselp.b32 x, 1, 0, q;"
        yield Case("warp", f"vote.sync.{kind}.pred {negated}p", ("b32", "b32"), ("b32",), body)
        # Whole warps that agree, since most do not.
        body = (
            "shr.u32 t0, i, 5;\nand.b32 t0, t0, 1;\nsetp.eq.u32 p, t0, 0;\n"
            f"vote.sync.{kind}.pred q, {negated}p, -1;\nselp.b32 x, 1, 0, q;"
        )
        yield Case("warp", f"vote.sync.{kind}.pred {negated}p of warps that agree", (), ("b32",), body)
    body = "setp.lt.s32 p, a, b;\nvote.sync.ballot.b32 x, p, -1;\nvote.sync.ballot.b32 y, !p, -1;"
    yield Case("warp", "vote.sync.ballot.b32", ("b32", "b32"), ("b32", "b32"), body)
    body = (
        "setp.ge.u32 q, lane, 12;\nmov.b32 x, 0;\n@q bra past;\nsetp.lt.s32 p, a, b;\n"
        "vote.sync.ballot.b32 x, p, 0xfff;\npast:\nbar.warp.sync -1;"
    )
    yield Case("warp", "vote.sync.ballot.b32 of twelve", ("b32", "b32"), ("b32",), body)
    for ty in ("b32", "b64"):
        body = f"and.{ty} a, a, 3;\nmatch.any.sync.{ty} x, a, -1;\nmatch.all.sync.{ty} y|p, a, -1;\nselp.b32 z, 1, 0, p;"
        yield Case("warp", f"match.any.sync.{ty}, match.all.sync.{ty}", (ty,), ("b32",) * 3, body)
        body = (
            f"shr.u32 t0, i, 5;\ncvt.u{BITS[ty]}.u32 a, t0;\nmatch.any.sync.{ty} x, a, -1;\n"
            f"match.all.sync.{ty} y|p, a, -1;\nselp.b32 z, 1, 0, p;"
        )
        yield Case("warp", f"match.any.sync.{ty}, match.all.sync.{ty} of one value", (ty,), ("b32",) * 3, body)
    for op, ty in (
        ("add", "u32"),
        ("add", "s32"),
        ("min", "u32"),
        ("max", "u32"),
        ("min", "s32"),
        ("max", "s32"),
        ("and", "b32"),
        ("or", "b32"),
        ("xor", "b32"),
    ):
        yield Case("warp", f"redux.sync.{op}.{ty}", (ty,), ("b32",), f"redux.sync.{op}.{ty} x, a, -1;")
        body = f"and.b32 t0, lane, 1;\nsetp.eq.u32 p, t0, 0;\n@p bra even;\nredux.sync.{op}.{ty} x, a, 0xaaaaaaaa;\nbra past;\n"
        body += f"even:\nredux.sync.{op}.{ty} x, a, 0x55555555;\npast:\nbar.warp.sync -1;"
        yield Case("warp", f"redux.sync.{op}.{ty} of halves", (ty,), ("b32",), body)
    yield Case("warp", "activemask.b32", (), ("b32",), "activemask.b32 x;")
    yield Case("warp", "elect.sync", (), ("b32", "b32"), "elect.sync x|p, -1;\nselp.b32 y, 1, 0, p;")
    for kind, result in (("popc.u32", "x"), ("and.pred", "q"), ("or.pred", "q")):
        tail = "" if result == "x" else "\nselp.b32 x, 1, 0, q;"
        body = f"setp.lt.s32 p, a, b;\nbarrier.red.{kind} {result}, 1, p;{tail}"
        yield Case("warp", f"barrier.red.{kind}", ("b32", "b32"), ("b32",), body)
        body = f"setp.ge.u32 p, lane, 0;\nbar.red.{kind} {result}, 2, 128, !p;{tail}"
        yield Case("warp", f"bar.red.{kind} of a number of threads", (), ("b32",), body)
    body = (
        "st.shared.u32 [mine], a;\nbar.sync 0;\nxor.b32 t0, tid, 96;\nshl.b32 t0, t0, 5;\nmov.u32 t1, sh;\n"
        "add.u32 t0, t0, t1;\nld.shared.u32 x, [t0];"
    )
    yield Case("warp", "bar.sync between warps", ("b32",), ("b32",), body)
    body = (
        "setp.lt.u32 p, tid, 64;\n@p bra waits;\nst.shared.u32 [mine], a;\nmembar.cta;\n"
        "bar.arrive 3, 128;\nmov.b32 x, a;\nbra past;\n"
    )
    body += "waits:\nbar.sync 3, 128;\nadd.u32 t0, mine, 2048;\nld.shared.u32 x, [t0];\npast:\nbar.sync 0;"
    yield Case("warp", "bar.arrive and bar.sync", ("b32",), ("b32",), body)


def specials() -> Iterator[Case]:
    for which in ("tid", "ntid", "ctaid", "nctaid"):
        body = "\n".join(f"mov.u32 {out}, %{which}.{axis};" for out, axis in zip("xyz", "xyz"))
        yield Case("special", f"%{which}", (), ("b32",) * 3, body, launch=DEEP)
    yield Case("special", "%laneid, WARP_SZ", (), ("b32", "b32"), "mov.u32 x, %laneid;\nmov.u32 y, WARP_SZ;", launch=DEEP)
    body = "mov.u32 x, %lanemask_eq;\nmov.u32 y, %lanemask_lt;\nmov.u32 z, %lanemask_le;"
    yield Case("special", "%lanemask_eq, %lanemask_lt, %lanemask_le", (), ("b32",) * 3, body, launch=DEEP)
    body = "mov.u32 x, %lanemask_gt;\nmov.u32 y, %lanemask_ge;\nmov.u32 z, %dynamic_smem_size;"
    yield Case("special", "%lanemask_gt, %lanemask_ge, %dynamic_smem_size", (), ("b32",) * 3, body, launch=DEEP)
    body = "mov.u64 u0, %clock64;\nmov.u64 u1, %clock64;\nsetp.ge.u64 p, u1, u0;\nselp.b32 x, 1, 0, p;\n"
    body += "mov.u64 u0, %globaltimer;\nsetp.ne.u64 p, u0, 0;\nselp.b32 y, 1, 0, p;"
    yield Case("special", "%clock64 does not go back, and there is a %globaltimer", (), ("b32", "b32"), body)


def control() -> Iterator[Case]:
    body = (
        "and.b32 t0, a, 31;\nmov.b32 x, 1;\nagain:\nsetp.eq.u32 p, t0, 0;\n@p bra done;\n"
        "mad.lo.u32 x, x, 3, b;\nsub.u32 t0, t0, 1;\nbra again;\ndone:\nmov.b32 y, t0;"
    )
    yield Case("control", "bra: a loop that lanes leave one by one", ("b32", "b32"), ("b32", "b32"), body)
    body = "and.b32 t0, a, 3;\nbrx.idx t0, places;\nzero:\nadd.u32 x, b, 1;\nbra.uni done;\none:\nmul.lo.u32 x, b, 3;\nbra done;\n"
    body += "two:\nnot.b32 x, b;\nbra done;\nthree:\nxor.b32 x, b, a;\ndone:\nmov.b32 y, t0;"
    body = "places: .branchtargets zero, one, two, three;\n" + body
    yield Case("control", "brx.idx", ("b32", "b32"), ("b32", "b32"), body)
    factorial = """.visible .func (.param .b64 r) product_of(.param .b64 n)
{
  .reg .b64 m, k; .reg .pred p; .param .b64 arg; .param .b64 res;
  ld.param.u64 m, [n]; setp.le.u64 p, m, 1; @p bra last;
  sub.u64 k, m, 1; { .param .b64 q0; .param .b64 q1; st.param.b64 [q0], k; call.uni (q1), product_of, (q0); ld.param.b64 k, [q1]; }
  mul.lo.u64 k, k, m; st.param.b64 [r], k; ret;
  last: st.param.b64 [r], 1; ret;
}"""
    body = (
        "and.b32 t0, a, 15;\ncvt.u64.u32 u0, t0;\n"
        "{ .param .b64 q0; .param .b64 q1; st.param.b64 [q0], u0;\ncall (q1), product_of, (q0);\n"
        "ld.param.b64 x, [q1]; }"
    )
    yield Case("control", "call of a function that calls itself", ("b32",), ("b64",), body, before=factorial)
    # Functions that are called by address take parameters in memory.
    functions = """.visible .func (.param .b32 r) thrice(.param .b32 n) { .reg .b32 m; ld.param.u32 m, [n]; mul.lo.u32 m, m, 3; st.param.b32 [r], m; ret; }
.visible .func (.param .b32 r) inverse(.param .b32 n) { .reg .b32 m; ld.param.u32 m, [n]; not.b32 m, m; st.param.b32 [r], m; ret; }
.global .u64 chosen[2] = {thrice, inverse};"""
    body = "and.b32 t0, a, 1;\nmul.wide.u32 u0, t0, 8;\nmov.u64 u1, chosen;\nadd.u64 u0, u0, u1;\nld.global.u64 u0, [u0];\n"
    body += "{ .param .b32 q0; .param .b32 q1; st.param.b32 [q0], b;\nshape: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
    body += "call (q1), u0, (q0), shape;\nld.param.b32 x, [q1]; }"
    yield Case("control", "call by address", ("b32", "b32"), ("b32",), body, before=functions)
    # The result of threads that have left is what was there before.
    body = (
        "st.global.u32 [own], a;\nsetp.lt.s32 p, a, 0;\nselp.b32 x, a, b, p;\nst.global.b32 [result], x;\n"
        "@p exit;\nadd.u32 x, x, 1;"
    )
    yield Case("control", "exit of some lanes", ("b32", "b32"), ("b32",), body)


def spread(source: str, count: int) -> tuple[str, list[str]]:
    """Registers that hold what a source has in other lanes, the first what it has in this one; and how they come about."""
    names = [source] + [f"{source}_{number}" for number in range(1, count)]
    lines = "".join(
        f".reg .b32 {name};\nshfl.sync.bfly.b32 {name}, {source}, {(7 * number) % 31 + 1}, 31, -1;\n"
        for number, name in enumerate(names[1:], 1)
    )
    return lines, names


def halves(source: str, count: int) -> tuple[str, list[str]]:
    """The same of 64 bits."""
    names = [source] + [f"{source}_{number}" for number in range(1, count)]
    lines = ""
    for number, name in enumerate(names[1:], 1):
        by = (7 * number) % 31 + 1
        lines += f".reg .b64 {name};\nmov.b64 {{t0, t1}}, {source};\nshfl.sync.bfly.b32 t0, t0, {by}, 31, -1;\n"
        lines += f"shfl.sync.bfly.b32 t1, t1, {by}, 31, -1;\nmov.b64 {name}, {{t0, t1}};\n"
    return lines, names


# Factors of a product, their bits and the types of inputs that they are made of; those that come again are of all magnitudes.
FACTORS = {
    "f16": (16, ("near_f16x2", "f16x2")), "bf16": (16, ("near_bf16x2", "bf16x2")), "tf32": (32, ("near_f32", "f32")),
    "f64": (64, ("near_f64", "f64")), "s8": (8, ("b32",)), "u8": (8, ("b32",)), "s4": (4, ("b32",)), "u4": (4, ("b32",)),
    "b1": (1, ("b32",)),
}  # fmt: skip
SUMS = {
    "f32": (32, {"near": "near_f32", "": "f32"}), "f16": (16, {"near": "near_f16x2", "": "f16x2"}),
    "f64": (64, {"near": "near_f64", "": "f64"}), "s32": (32, {"near": "b32", "": "b32"}),
}  # fmt: skip


def held(elements: int, bits: int) -> int:
    """Registers of a lane for so many elements."""
    return elements * bits // 32 // max(bits, 32)


def listed(names: list[str]) -> str:
    return "{" + ", ".join(names) + "}"


def results(names: list[str], bits: int) -> tuple[tuple[str, ...], str]:
    """Results out of registers: two of 32 bits in one."""
    if bits == 64:
        return ("b64",) * len(names), "".join(f"mov.b64 {to}, {name};\n" for to, name in zip("xyzw", names))
    pairs = [names[at : at + 2] for at in range(0, len(names), 2)]
    types = tuple("b64" if len(pair) == 2 else "b32" for pair in pairs)
    moves = (
        f"mov.b64 {to}, {listed(pair)};\n" if len(pair) == 2 else f"mov.b32 {to}, {pair[0]};\n" for to, pair in zip("xyzw", pairs)
    )
    return types, "".join(moves)


def product(name: str, factors: tuple[str, str], sums: tuple[str, str], counts: tuple[int, int, int, int]) -> Iterator[Case]:
    """`mma` with operands of each kind: registers of `a`, `b`, what is added, and the result."""
    bits, inputs = FACTORS[factors[0]]
    for kind in inputs:
        near = "near" if kind.startswith("near") else ""
        each = halves if bits == 64 else spread
        width, out = ("b64", 64) if bits == 64 else ("b32", 32)
        first, a = each("a", (counts[0] + 1) // 2)
        other, more = each("b", counts[0] // 2) if counts[0] > 1 else ("", [])
        second, b = each("c", counts[1])
        third, c = each("d", counts[2])
        d = [f"d{number}" for number in range(counts[3])]
        types, moves = results(d, out)
        body = "{\n" + first + other + second + third + f".reg .{width} {', '.join(d)};\n"
        body += f"{name} {listed(d)}, {listed(a + more)}, {listed(b)}, {listed(c)};\n{moves}}}"
        given = (kind, kind, kind, SUMS[sums[1]][1][near])
        suffix = " of numbers near 1" if near else ""
        yield Case("matrix", name + suffix, given, types, body)


def mma() -> Iterator[Case]:
    shapes = {
        "f16": ("m16n8k8", "m16n8k16"), "bf16": ("m16n8k8", "m16n8k16"), "tf32": ("m16n8k4", "m16n8k8"),
        "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"), "s8": ("m8n8k16", "m16n8k16", "m16n8k32"),
        "s4": ("m8n8k32", "m16n8k32", "m16n8k64"), "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
    }  # fmt: skip
    for one, all_shapes in shapes.items():
        pairs = [(one, one)] if one not in ("s8", "s4") else [(one, one), ("u" + one[1:],) * 2, (one, "u" + one[1:])]
        sums = {"f16": ("f32", "f16"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",)}.get(one, ("s32",))
        for shape in all_shapes:
            m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
            bits = FACTORS[one][0]
            for (left, right), result in ((pair, result) for pair in pairs for result in sums):
                width = SUMS[result][0]
                counts = (held(m * k, bits), held(n * k, bits), held(m * n, width), held(m * n, width))
                stem = f"mma.sync.aligned.{shape}.row.col"
                types = f"{result}.{left}.{right}.{result}"
                if one == "b1":
                    names = [f"{stem}.{types}.{op}.popc" for op in ("xor", "and")]
                elif result == "s32":
                    names = [f"{stem}.{types}", f"{stem}.satfinite.{types}"]
                else:
                    names = [f"{stem}.{types}"]
                for name in names:
                    yield from product(name, (left, right), (result, result), counts)
    for rows in ("row", "col"):
        for columns in ("row", "col"):
            for d, c in (("f32", "f32"), ("f16", "f16"), ("f32", "f16")):
                name = f"mma.sync.aligned.m8n8k4.{rows}.{columns}.{d}.f16.f16.{c}"
                counts = (2, 2, 8 * SUMS[c][0] // 32, 8 * SUMS[d][0] // 32)
                yield from product(name, ("f16", "f16"), (d, c), counts)


def tiles() -> Iterator[Case]:
    start = "mov.u32 t0, sh;\nand.b32 t1, tid, 96;\nshl.b32 t1, t1, 5;\nadd.u32 t0, t0, t1;\nshl.b32 t1, lane, 4;\nadd.u32 t1, t1, t0;\n"
    # Every lane has another's row.
    row = "mad.lo.u32 t2, lane, 5, 3;\nand.b32 t2, t2, 31;\nshl.b32 t2, t2, 4;\nadd.u32 t2, t2, t0;\n"
    for count, names in ((1, ["x"]), (2, ["x", "y"]), (4, ["x", "y", "z", "w"])):
        for trans in ("", ".trans"):
            name = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
            body = f"{start}st.shared.v4.b32 [t1], {{a, b, c, d}};\nbar.warp.sync -1;\n{row}{name} {listed(names)}, [t2];"
            # `sh` is what has shared memory declared.
            yield Case("matrix", name, ("b32",) * 4, ("b32",) * count, body)
            name = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
            body = f"{start}mov.b32 t3, 0;\nst.shared.v4.b32 [t1], {{t3, t3, t3, t3}};\nbar.warp.sync -1;\n{row}"
            body += (
                f"{name} [t2], {listed(['a', 'b', 'c', 'd'][:count])};\nbar.warp.sync -1;\nld.shared.v4.b32 {{x, y, z, w}}, [t1];"
            )
            yield Case("matrix", name, ("b32",) * 4, ("b32",) * 4, body)
    name = "movmatrix.sync.aligned.m8n8.trans.b16"
    yield Case("matrix", name, ("b32",), ("b32",), f"{name} x, a;")


def fill(names: list[str], bits: int) -> str:
    """Writes a lane's registers to its share of memory that begins at `u0`."""
    each = bits // 8 * len(names)
    lines = f"mul.wide.u32 u1, lane, {each};\nadd.u64 u1, u1, u0;\n"
    return lines + "".join(f"st.global.b{bits} [u1+{bits // 8 * at}], {name};\n" for at, name in enumerate(names))


def wmma() -> Iterator[Case]:
    large = ((16, 16, 16), (8, 32, 16), (32, 8, 16))
    known = {
        "f16": (large, ("f32", "f16")), "bf16": (large, ("f32",)), "tf32": (((16, 16, 8),), ("f32",)), "f64": (((8, 8, 4),), ("f64",)),
        "s8": (large, ("s32",)), "u8": (large, ("s32",)), "s4": (((8, 8, 32),), ("s32",)), "b1": (((8, 8, 128),), ("s32",)),
    }  # fmt: skip
    for one, (shapes, all_sums) in known.items():
        bits, inputs = FACTORS[one]
        layouts = [("row", "col")] if bits < 8 else [(a, b) for a in ("row", "col") for b in ("row", "col")]
        for (m, n, k), result, (rows, columns) in ((s, r, way) for s in shapes for r in all_sums for way in layouts):
            width, register = SUMS[result][0], 64 if one == "f64" else 32
            each = halves if register == 64 else spread
            share = [count * size // 32 // register for count, size in ((m * k, bits), (n * k, bits), (m * n, width))]
            held_ab = [8, 8] if one == "f16" else share[:2]
            for kind in inputs:
                near = "near" if kind.startswith("near") else ""
                shape, lines = f"m{m}n{n}k{k}", "{\n"
                parts = []
                for source, count in zip("abc", share):
                    made, names = each(source, count)
                    lines += made
                    parts.append(names)
                for letter, count in zip("klm", (*held_ab, share[2])):
                    lines += f".reg .b{register} {letter}<{count}>;\n"
                k_names, l_names, m_names = (
                    [f"{letter}{at}" for at in range(count)] for letter, count in zip("klm", (*held_ab, share[2]))
                )
                # Memory of the warp's lanes together.
                lines += "mul.wide.u32 u0, lane, 64;\nsub.u64 u0, own, u0;\n" + fill(parts[0], register) + "bar.warp.sync -1;\n"
                lines += f"wmma.load.a.sync.aligned.{rows}.{shape}.global.{one} {listed(k_names)}, [u0];\nbar.warp.sync -1;\n"
                lines += fill(parts[1], register) + "bar.warp.sync -1;\n"
                lines += f"wmma.load.b.sync.aligned.{columns}.{shape}.global.{one} {listed(l_names)}, [u0];\nbar.warp.sync -1;\n"
                lines += fill(parts[2], register) + "bar.warp.sync -1;\n"
                lines += f"wmma.load.c.sync.aligned.{columns}.{shape}.global.{result} {listed(m_names)}, [u0];\nbar.warp.sync -1;\n"
                types = f"{result}.{result}" if one == "f16" else f"{result}.{one}.{one}.{result}"
                product_of = "wmma.mma.xor.popc" if one == "b1" else "wmma.mma"
                name = f"{product_of}.sync.aligned.{rows}.{columns}.{shape}.{types}"
                lines += f"{name} {listed(m_names)}, {listed(k_names)}, {listed(l_names)}, {listed(m_names)};\n"
                lines += f"wmma.store.d.sync.aligned.{rows}.{shape}.global.{result} [u0], {listed(m_names)};\nbar.warp.sync -1;\n"
                lines += "".join(f"ld.global.b{register} m{at}, [u1+{register // 8 * at}];\n" for at in range(share[2]))
                outputs, moves = results(m_names, register)
                suffix = " of numbers near 1" if near else ""
                yield Case("matrix", name + suffix, (kind, kind, SUMS[result][1][near]), outputs, lines + moves + "}")


def gates() -> Iterator[Case]:
    """Barriers in memory, each thread's own: what they hold is not to be looked into, but what can be asked of them is."""
    made = "and.b32 t0, a, 7;\nadd.u32 t0, t0, 1;\nmbarrier.init.shared.b64 [mine], t0;\n"
    asked = "mbarrier.pending_count.b64 {0}, u0;\nmbarrier.test_wait.shared.b64 p, [mine], u0;\n@p or.b32 {0}, {0}, 0x100000;\n"
    asked += "mbarrier.test_wait.parity.shared.b64 p, [mine], 0;\n@p or.b32 {0}, {0}, 0x200000;\n"
    for op in ("arrive", "arrive_drop"):
        body = made + "".join(f"mbarrier.{op}.shared.b64 u0, [mine];\n" + asked.format(to) for to in "xy")
        body += "mbarrier.inval.shared.b64 [mine];"
        if op == "arrive_drop":
            # A thread that drops more arrivals than there are to come ends the kernel.
            body = body.replace("add.u32 t0, t0, 1;", "add.u32 t0, t0, 3;")
        yield Case("mbarrier", f"mbarrier.{op}", ("b32",), ("b32", "b32"), body)
    body = made + "mbarrier.arrive.shared.b64 u0, [mine], t0;\n" + asked.format("x")
    body += "mbarrier.arrive.noComplete.shared.b64 u0, [mine], 1;\nmbarrier.pending_count.b64 y, u0;"
    body = body.replace("add.u32 t0, t0, 1;", "add.u32 t0, t0, 2;")
    yield Case("mbarrier", "mbarrier.arrive of many, mbarrier.arrive.noComplete", ("b32",), ("b32", "b32"), body)
    body = "mbarrier.init.shared.b64 [mine], 1;\nand.b32 t1, a, 0xfff;\nadd.u32 t1, t1, 1;\n"
    body += "mbarrier.arrive.expect_tx.shared.b64 u0, [mine], t1;\n" + asked.format("x")
    body += "mbarrier.complete_tx.shared.b64 [mine], t1;\n" + asked.format("y")
    body += "mbarrier.try_wait.parity.shared.b64 p, [mine], 1;\nselp.b32 z, 1, 0, p;"
    yield Case("mbarrier", "mbarrier.arrive.expect_tx, mbarrier.complete_tx", ("b32",), ("b32", "b32", "b32"), body)


def clusters() -> Iterator[Case]:
    """A launch that names no clusters has those of one block."""
    body = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nmov.b32 t0, %cluster_ctarank;\nmov.b32 t1, %cluster_nctarank;\n"
    body += "shl.b32 t1, t1, 8;\nor.b32 x, t0, t1;\nmov.b32 t0, %clusterid.x;\nmov.b32 t1, %ctaid.x;\nsub.u32 y, t0, t1;\n"
    body += "mov.b32 t0, %nclusterid.x;\nmov.b32 t1, %nctaid.x;\nsub.u32 z, t0, t1;\nmov.u32 t0, sh;\n"
    body += "mapa.shared::cluster.u32 t1, t0, 0;\ngetctarank.shared::cluster.u32 t1, t1;\nadd.u32 x, x, t1;"
    yield Case("cluster", "barrier.cluster, mapa, getctarank, registers of clusters", (), ("b32",) * 3, body, launch=DEEP)


# How far filters may be from each other: a 256th of what contents differ by, and as much for each side.
NEAR = 8 * 3 / 256


def textures() -> Iterator[Case]:
    words = ("b32",) * 3

    def of(specification: str, instruction: str, inputs: tuple[str, ...], operands: str, near: float = 0.0) -> Case:
        body = f"{instruction} {{x, y, z, t0}}, [object, {operands}];" if "[" not in operands else f"{instruction} {operands}"
        body = f"mov.b32 t1, 0;\n{body}" if "t1" in operands else body
        return Case("texture", f"{instruction} of {specification}", inputs, words, body, object=specification, near=near)

    shapes = (("1d", 1, "{a}"), ("2d", 2, "{a, b}"), ("3d", 3, "{a, b, c, c}"))
    layers = (("a1d", 1, "{a, b}"), ("a2d", 2, "{a, b, c, c}"))
    for shape, sides, operands in shapes:
        for edge in ("wrap", "clamp", "mirror", "border"):
            name = f"tex.{shape}.v4.f32.f32"
            yield of(f"{shape} f32x4 {edge} normalized", name, ("place",) * sides, operands)
            yield of(f"{shape} f32x4 {edge} normalized linear", name, ("place",) * sides, operands, NEAR)
        for edge in ("clamp", "border"):
            yield of(f"{shape} f32x2 {edge}", f"tex.{shape}.v4.f32.f32", ("texel",) * sides, operands)
            yield of(f"{shape} f32x2 {edge} linear", f"tex.{shape}.v4.f32.f32", ("texel",) * sides, operands, NEAR)
        yield of(f"{shape} s32x4", f"tex.{shape}.v4.s32.s32", ("index",) * sides, operands)
    for shape, sides, operands in layers:
        yield of(
            f"{shape} f32x4 wrap normalized linear",
            f"tex.{shape}.v4.f32.f32",
            ("layer",) + ("place",) * sides,
            operands,
            NEAR,
        )
        yield of(f"{shape} u16x2 integers", f"tex.{shape}.v4.u32.s32", ("layer",) + ("index",) * sides, operands)
    for form in ("u8", "s8", "u16", "s16", "f16", "f32"):
        for channels in (1, 2, 4):
            yield of(f"2d {form}x{channels}", "tex.2d.v4.f32.f32", ("texel", "texel"), "{a, b}")
        yield of(f"2d {form}x4 linear", "tex.2d.v4.f32.f32", ("texel", "texel"), "{a, b}", NEAR)
        if form[0] != "f":
            for channels in (1, 2, 4):
                yield of(f"2d {form}x{channels} integers", "tex.2d.v4.u32.f32", ("texel", "texel"), "{a, b}")
    yield of("2d u8x4 srgb", "tex.2d.v4.f32.f32", ("texel", "texel"), "{a, b}", NEAR)
    yield of("2d f32x4", "tex.2d.v2.f16x2.f32", ("texel", "texel"), "{x, y}, [object, {a, b}];\nmov.b32 z, 0;")
    for edge in ("wrap", "mirror"):
        yield of(f"2d f32x1 {edge} integers", "tex.2d.v4.f32.f32", ("texel", "texel"), "{a, b}")
    yield of("2d u32x1 border integers", "tex.2d.v4.u32.f32", ("texel", "texel"), "{a, b}")
    yield of("memory u32x1 integers", "tex.1d.v4.u32.s32", ("index",), "{a}")
    yield of("memory u8x4", "tex.1d.v4.f32.s32", ("index",), "{a}")
    yield of("rows f32x1 wrap normalized linear", "tex.2d.v4.f32.f32", ("place", "place"), "{a, b}", NEAR)
    yield of("rows u8x2 integers", "tex.2d.v4.u32.f32", ("texel", "texel"), "{a, b}")
    for seamless in ("", " seamless"):
        name = "tex.cube.v4.f32.f32"
        yield of(f"cube f32x1 normalized{seamless}", name, ("way",) * 3, "{a, b, c, c}")
        yield of(f"cube f32x1 normalized linear{seamless}", name, ("way",) * 3, "{a, b, c, c}", NEAR)
    yield of("acube f32x1 normalized", "tex.acube.v4.f32.f32", ("layer",) + ("way",) * 3, "{a, b, c, d}")
    for blend in ("", " blend"):
        near = NEAR if blend else 0.0
        for linear in ("", " linear"):
            specification = f"levels f32x2 normalized{linear}{blend}"
            level = "{x, y, z, t0}, [object, {a, b}], c;"
            yield of(
                specification,
                "tex.level.2d.v4.f32.f32",
                ("place", "place", "level"),
                level,
                near or (NEAR if linear else 0.0),
            )
            # Steps aslant make levels that an H100 only comes near to.
            steps = "{x, y, z, t0}, [object, {a, b}], {c, t1}, {t1, d};"
            yield of(
                specification,
                "tex.grad.2d.v4.f32.f32",
                ("place", "place", "step", "step"),
                steps,
                near or (NEAR if linear else 0.0),
            )
    yield of("levels f32x2 normalized", "tex.2d.v4.f32.f32", ("place", "place"), "{a, b}")
    yield of("levels s32x2", "tex.level.2d.v4.s32.s32", ("index", "index", "index"), "{x, y, z, t0}, [object, {a, b}], c;")
    for component in "rgba":
        for edge in ("clamp", "border"):
            yield of(f"2d f32x4 {edge} normalized", f"tld4.{component}.2d.v4.f32.f32", ("place", "place"), "{a, b}")
    body = "tex.2d.v4.f32.f32 {x, y, z, t0}, [object, {a, b}], {-3, 2};"
    yield Case("texture", "tex.2d.v4.f32.f32 with offsets", ("texel", "texel"), words, body, object="2d f32x4")
    for shape, queries in (
        ("1d f32x1 wrap normalized linear", ("width", "height", "depth")),
        ("3d u8x4 mirror normalized", ("width", "height", "depth")),
        ("a2d s16x2 border", ("width", "height", "array_size")),
        ("levels f16x2 normalized", ("num_mipmap_levels", "channel_data_type", "channel_order")),
        ("2d s8x1 integers", ("channel_data_type", "channel_order", "normalized_coords")),
    ):
        body = "\n".join(f"txq.{query}.b32 {register}, [object];" for register, query in zip("xyz", queries))
        yield Case("texture", f"txq of {shape}: {', '.join(queries)}", (), words, body, object=shape)


def surfaces() -> Iterator[Case]:
    place = "rem.u32 t1, i, 48;\ndiv.u32 t2, i, 48;\n"
    for ty, form, channels in (("b8", "u8", 1), ("b16", "u16", 1), ("b32", "u32", 1), ("b64", "u32", 2)):
        size = BITS[ty] // 8
        register = {"b8": "h0", "b16": "h0", "b32": "t3", "b64": "u1"}[ty]
        wide = {
            "b8": "cvt.u16.u32 h0, a;",
            "b16": "cvt.u16.u32 h0, a;",
            "b32": "mov.b32 t3, a;",
            "b64": "cvt.u64.u32 u1, a;",
        }[ty]
        back = {
            "b8": "cvt.u32.u16 x, h0;",
            "b16": "cvt.u32.u16 x, h0;",
            "b32": "mov.b32 x, t3;",
            "b64": "cvt.u32.u64 x, u1;",
        }[ty]
        body = place + f"mul.lo.u32 t1, t1, {size};\n{wide}\nsust.b.2d.{ty}.trap [object, {{t1, t2}}], {register};\n"
        body += f"suld.b.2d.{ty}.trap {register}, [object, {{t1, t2}}];\n{back}"
        yield Case("surface", f"sust.b.2d.{ty}, suld.b.2d.{ty}", ("b32",), ("b32",), body, object=f"paper {form}x{channels}")
    for beyond in ("clamp", "zero"):
        body = f"shl.b32 t1, a, 2;\nsuld.b.2d.b32.{beyond} x, [object, {{t1, b}}];"
        yield Case(
            "surface",
            f"suld.b.2d.b32.{beyond} beyond the edges",
            ("index", "index"),
            ("b32",),
            body,
            object="paper u32x1",
        )
    for form in ("u8", "s8", "u16", "s16", "u32", "f16", "f32"):
        inputs = ("f32", "f32") if form[0] == "f" else ("b32", "b32")
        body = place + "mov.b32 t3, a;\nmov.b32 t4, b;\nsust.p.2d.v2.b32.trap [object, {t1, t2}], {t3, t4};\n"
        size = 2 * int(form[1:]) // 8
        register = {2: "h0", 4: "x", 8: "u1"}[size]
        back = {2: "cvt.u32.u16 x, h0;", 4: "", 8: "cvt.u32.u64 x, u1;"}[size]
        body += f"mul.lo.u32 t1, t1, {size};\nsuld.b.2d.b{8 * size}.trap {register}, [object, {{t1, t2}}];\n{back}"
        yield Case("surface", f"sust.p.2d.v2.b32 of {form}", inputs, ("b32",), body, object=f"paper {form}x2")
    for op, ty in (("add", "u32"), ("min", "u32"), ("max", "s32"), ("min", "s32"), ("and", "b32"), ("or", "b32")):
        body = place + "shl.b32 t1, t1, 2;\nsust.b.2d.b32.trap [object, {t1, t2}], a;\n"
        body += f"sured.b.{op}.2d.{ty}.trap [object, {{t1, t2}}], b;\nsuld.b.2d.b32.trap x, [object, {{t1, t2}}];"
        yield Case("surface", f"sured.b.{op}.2d.{ty}", ("b32", "b32"), ("b32",), body, object="paper u32x1")
    for name, place, shape in (
        ("a2d", "{t3, t1, t2, t2}", "papers"),
        ("3d", "{t1, t2, t3, t3}", "block"),
    ):
        body = "rem.u32 t1, i, 16;\nshl.b32 t1, t1, 2;\ndiv.u32 t3, i, 16;\nrem.u32 t2, t3, 12;\ndiv.u32 t3, t3, 12;\n"
        body += f"sust.b.{name}.b32.trap [object, {place}], a;\nsuld.b.{name}.b32.trap x, [object, {place}];"
        yield Case("surface", f"sust.b.{name}.b32, suld.b.{name}.b32", ("b32",), ("b32",), body, object=f"{shape} u32x1")
    body = "suq.width.b32 x, [object];\nsuq.height.b32 y, [object];\nsuq.channel_order.b32 z, [object];"
    yield Case("surface", "suq", (), ("b32",) * 3, body, object="paper u8x4")


def cases() -> list[Case]:
    """All of them, in an order that stays."""
    parts = (
        integers,
        bits,
        floats,
        comparisons,
        conversions,
        moves,
        memory,
        atomics,
        warps,
        specials,
        control,
        mma,
        tiles,
        wmma,
        gates,
        clusters,
        textures,
        surfaces,
    )
    return [case for part in parts for case in part()]
