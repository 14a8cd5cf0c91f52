#!/usr/bin/env python3
"""Runs every instruction of `instructions.py` on a CUDA device, to record what it answers or to compare that with a record.

    goldens.py record --out DIR                   on an NVIDIA GPU: what it answers is right
    goldens.py compare --goldens DIR [--only NAME] under `towline run`, against what a GPU answered
    goldens.py modules --out DIR                  the kernels as PTX, for other compilers to judge
    goldens.py list                               names

It needs nothing but the driver's library, `libcuda.so.1`.

A record is two files. `goldens.txt` has a line per case: a digest of its kernel and operands, one of all results, and how many results
are kept. `goldens.bin` has those that are kept: of all combinations of special operands, and of some random ones. Results must be
equal to the bit, but for instructions whose result the PTX ISA only bounds: those must be as near to the exact result as it says,
and equal where the exact result is no number, zero or infinite.
"""

from __future__ import annotations

import argparse
import array
import ctypes
import hashlib
import itertools
import multiprocessing
import re
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Union

import bounds
from instructions import BITS, Case, cases
from textures import Maker

# Threads, and so operands, of every case: 18 blocks of 128.
THREADS = 2304
# Random operands whose results are kept, behind those of the special ones; more where results are only bounded.
KEPT_RANDOM = 64
KEPT_BOUNDED = 400
# Of products of matrices, so that a model of how they are rounded can be held against them.
KEPT_MATRIX = 256
# Special values of each operand, by the number of operands.
SPECIALS = {1: 64, 2: 21, 3: 10, 4: 5}
# Kernels of one module.
MODULE = 48
# Bytes that results lie in before the kernel writes them.
UNTOUCHED = 0xA5
SKIPPED = 77

F32 = (
    0x00000000, 0x80000000, 0x3F800000, 0x00000001, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x7F812345, 0xBF800000,
    0x00800000, 0x007FFFFF, 0xFFC12345, 0x3FC00000, 0x3F800001, 0x3F7FFFFF, 0x80000001, 0x40000000, 0xFF7FFFFF, 0x807FFFFF, 0x3F000000,
    0xBF000000, 0x40400000, 0x40200000, 0xC0200000, 0x40600000, 0x3DCCCCCD, 0x40490FDB, 0xC0490FDB, 0x3FC90FDB, 0x40C90FDB, 0x4B000001,
    0x4B7FFFFF, 0x4B800000, 0x4EFFFFFF, 0x4F000000, 0xCF000000, 0xCF000001, 0x4F7FFFFF, 0x4F800000, 0x5EFFFFFF, 0x5F000000, 0xDF000000,
    0x5F7FFFFF, 0x5F800000, 0x437F8000, 0x43800000, 0x42FF0000, 0xC3008000, 0x477FE000, 0x477FF000, 0x38800000, 0x33000000, 0x33000001,
    0x387FC000, 0x42FC0000, 0x43000000, 0xC2FC0000, 0xC3150000, 0xC3160000, 0xC3170000, 0x3F808000, 0x3F818000, 0x7F7F8000,
)  # fmt: skip
F64 = (
    0x0000000000000000, 0x8000000000000000, 0x3FF0000000000000, 0x0000000000000001, 0x7FF0000000000000, 0xFFF0000000000000,
    0x7FF8000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0123456789ABC, 0xBFF0000000000000, 0x0010000000000000, 0x000FFFFFFFFFFFFF,
    0xFFF8123456789ABC, 0x3FF8000000000000, 0x3FF0000000000001, 0x3FEFFFFFFFFFFFFF, 0x8000000000000001, 0x4000000000000000,
    0xFFEFFFFFFFFFFFFF, 0x800FFFFFFFFFFFFF, 0x3FE0000000000000, 0xBFE0000000000000, 0x4004000000000000, 0xC004000000000000,
    0x400C000000000000, 0x3FB999999999999A, 0x41DFFFFFFFC00000, 0x41DFFFFFFFE00000, 0x41E0000000000000, 0xC1E0000000000000,
    0xC1E0000000200000, 0x41EFFFFFFFE00000, 0x41F0000000000000, 0x43DFFFFFFFFFFFFF, 0x43E0000000000000, 0xC3E0000000000000,
    0x43EFFFFFFFFFFFFF, 0x43F0000000000000, 0x406FF00000000000, 0x4070000000000000, 0x47EFFFFFE0000000, 0x47EFFFFFF0000000,
    0x47F0000000000000, 0x3810000000000000, 0x380FFFFFE0000000, 0x36A0000000000000, 0x3690000000000000, 0x3690000000000001,
    0x40EFFC0000000000, 0x40EFFE0000000000, 0x3F10000000000000, 0x3E70000000000000, 0x3E60000000000000, 0x3E60000000000001,
    0x4340000000000001, 0x4330000000000001, 0x3FF0000010000000, 0x3FF0000030000000, 0x40F0000000000000, 0xC0F0000000000000,
)  # fmt: skip
F16 = (
    0x0000, 0x8000, 0x3C00, 0x0001, 0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0x7D23, 0xBC00, 0x0400, 0x03FF, 0xFE12, 0x3E00, 0x3C01, 0x3BFF, 0x8001,
    0x4000, 0xFBFF, 0x83FF, 0x3800, 0xB800, 0x4100, 0xC100, 0x4300, 0x2E66, 0x4248, 0x6400, 0x6401, 0x77FF, 0x7800, 0xF800, 0x5BFC, 0x5C00,
    0x57F8, 0xD808, 0x4900, 0xC900, 0x4B00, 0xCC00,
)  # fmt: skip
BF16 = (
    0x0000, 0x8000, 0x3F80, 0x0001, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0x7F92, 0xBF80, 0x0080, 0x007F, 0xFFC1, 0x3FC0, 0x3F81, 0x3F7F, 0x8001,
    0x4000, 0xFF7F, 0x807F, 0x3F00, 0xBF00, 0x4020, 0xC020, 0x4060, 0x3DCD, 0x4049, 0x4300, 0x4301, 0x4EFF, 0x4F00, 0xCF00, 0x437F, 0x4380,
    0x5F00, 0xDF00, 0x477F, 0x4780, 0x3880, 0xC3FF,
)  # fmt: skip
INTEGERS = (
    0, -1, 1, 0x12345678_9ABCDEF0, -(1 << 63), (1 << 63) - 1, 2, -2, 0x7FFFFFFF, 0x80000000, 31, 0xFFFF, 0x8000, 0x7FFF, 0xFF, 0x80, 0x7F,
    0xFFFFFFFF, 0x100000000, 3, -3, 32, 33, 63, 64, 7, -7, 10, 100, 0x10000, 0x55555555_55555555, 0xAAAAAAAA_AAAAAAAA, 0x100, 0xFF00FF00_FF00FF00,
    0x80000001, 0xFFFF8000, 0xFFFFFF80, 0x01000001, 0x01000003, 0x00800001, 0x00200000_00000001, 0x00200000_00000003, 0x7FFFFF80, 0x7FFFFFC0,
    0x7FFFFFFF_FFFFFC00, 0x7FFFFFFF_FFFFFE00, 0x7FFFFFC0_00000000, 0xFFFFFF80_00000000, 0x801, 0x803, 65504, 65519, 65520, 0x8000000000000001,
)  # fmt: skip
SHIFTS = (0, 1, 31, 32, 33, 8, 63, 64, 0xFFFFFFFF, 0x108, 16, 7, 24, 15, 17, 65, 0x80000000, 255, 256, 4, 30, 62, 127)


def single(number: float) -> int:
    """A number of 32 bits as these."""
    return int.from_bytes(struct.pack("<f", number), "little")


# Coordinates of textures and surfaces: what lies on edges and between them, and how far random ones go.
COORDINATES = {
    "place": tuple(
        map(single, (0.0, 0.5, 1.0, 0.25, -0.25, 1.5, 0.03125, 0.96875, 2.0, -1.0, 0.734375, -0.0, 1e9, -1e9, 3.0, 0.125))
    ),
    "texel": tuple(
        map(single, (0.0, 0.5, 1.0, 11.5, 12.0, 16.0, -0.5, 15.75, -3.0, 20.0, 2.25, 7.998046875, 1e9, -1e9, 5.0, 0.25))
    ),
    "way": tuple(map(single, (1.0, -1.0, 0.5, -0.5, 0.25, 0.0, -0.75, 0.875, 3.0, -0.0))),
    "level": tuple(map(single, (0.0, 0.5, 1.0, 1.25, 2.75, 4.0, 5.5, -1.0, 0.4375, 9.0))),
    "step": tuple(map(single, (0.0, 0.0625, 0.125, 0.25, 0.5, 0.03125, -0.125, 1.0))),
    "index": tuple(number & 0xFFFFFFFF for number in (0, 1, -1, 11, 12, 15, 16, 5, 300, 299, 2, 3, 4, 0x7FFFFFFF, -0x80000000)),
    "layer": (0, 1, 4, 5, 0xFFFFFFFF, 2),
}
SPANS = {"place": (-2, 3), "texel": (-4, 20), "way": (-1, 1), "level": (-1, 6), "step": (0, 1)}
LAYOUT = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
FLOATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def scalar(ty: str) -> str:
    """The type of each half of a pair, else the type."""
    return ty[:-2] if ty.endswith("x2") else ty


def specials(ty: str) -> tuple[int, ...]:
    """Operands of a type that tell implementations apart, those that tell most first; as patterns of bits."""
    if ty.startswith("near_"):
        return ()
    if ty.endswith("x2"):
        each = specials(scalar(ty))
        # Every value meets others in the other half.
        return tuple(one | each[(3 * place + 5) % len(each)] << 16 for place, one in enumerate(each))
    if ty in FLOATS:
        return FLOATS[ty]
    if ty == "shift":
        return SHIFTS
    if ty in COORDINATES:
        return COORDINATES[ty]
    if ty == "bytes":
        return (0, 0xFFFFFFFF, 0x80808080, 0x7F7F7F7F, 0x01020304, 0x80FF7F01, 0x80008000, 0x7FFF7FFF, 0xFF00FF00, 0x12345678)
    distinct = dict.fromkeys(number & ((1 << BITS[ty]) - 1) for number in INTEGERS)
    return tuple(distinct)


def random(ty: str, place: int, count: int) -> list[int]:
    """Operands that look random, the same in every run: others for each place among the operands."""
    noise = array.array("Q", hashlib.shake_128(f"{ty} {place}".encode()).digest(8 * count))
    if sys.byteorder == "big":
        noise.byteswap()
    return [shaped(ty, kind, number) for kind, number in enumerate(noise)]


def shaped(ty: str, kind: int, noise: int) -> int:
    """Random bits as an operand. A kind that the number of the operand picks says of which magnitude it is."""
    if ty.endswith("x2"):
        return shaped(scalar(ty), kind, noise & 0xFFFFFFFF) | shaped(scalar(ty), kind // 5, noise >> 32) << 16
    near = ty.startswith("near_")
    ty = ty.removeprefix("near_")
    bits = BITS[ty]
    low = noise & ((1 << bits) - 1)
    if ty == "shift":
        return low % 72 if kind % 2 else low
    if ty in ("index", "layer"):
        return (low % 24 - 3) & 0xFFFFFFFF if ty == "index" else low % 8
    if ty in COORDINATES:
        # Multiples of a power of two, so that products and sums of them are exact.
        least, most = SPANS[ty]
        return single(least + (noise >> 8) % ((most - least) * 4096) / 4096)
    if ty not in LAYOUT:
        # Every other number has fewer digits.
        return low >> (noise >> 40) % bits if kind % 2 and bits < 64 else low >> (noise % 61) if kind % 2 else low
    exponent_bits, mantissa_bits = LAYOUT[ty]
    most = (1 << exponent_bits) - 1
    bias = most >> 1
    pick = noise >> 7 & 0xFFFF
    # Anything; around 1, more and less closely; integers; small; large.
    spans = (
        (0, most),
        (bias - 3, bias + 3),
        (bias - mantissa_bits, bias + mantissa_bits),
        (bias, bias + 66),
        (0, bias // 2 + 4),
        (bias * 3 // 2, most - 1),
    )
    least, last = (bias - 6, bias + 5) if near else spans[kind % len(spans)]
    if near and pick % 16 == 0:
        return 0
    exponent = min(least + pick % (last - least + 1), most)
    sign = noise >> 24 & 1
    mantissa = hash_down(noise, mantissa_bits)
    return sign << bits - 1 | exponent << mantissa_bits | mantissa


def hash_down(noise: int, bits: int) -> int:
    """Other bits out of random ones."""
    return (noise * 0x9E3779B97F4A7C15 >> 11 & (1 << 64) - 1) >> 3 & (1 << bits) - 1


class Operands:
    """What the threads of cases with certain types of inputs are given."""

    def __init__(self, types: tuple[str, ...]) -> None:
        lists = [specials(ty)[: SPECIALS[len(types)]] for ty in types]
        combined = list(itertools.product(*lists)) if types else []
        assert len(combined) + KEPT_BOUNDED <= THREADS, f"{types} have too many special values"
        self.special = len(combined)
        drawn = [random(ty, place, THREADS - self.special) for place, ty in enumerate(types)]
        self.values = [[one[place] for one in combined] + drawn[place] for place in range(len(types))]
        slots = array.array("Q", itertools.chain.from_iterable(self.values))
        if sys.byteorder == "big":
            slots.byteswap()
        self.slots = slots.tobytes()

    def kept(self, case: Case) -> int:
        """How many results of a case are kept."""
        if not case.inputs:
            return THREADS
        return self.special + (KEPT_BOUNDED if case.bound else KEPT_MATRIX if case.group == "matrix" else KEPT_RANDOM)


def kernel(case: Case, name: str) -> str:
    """The kernel of a case."""
    body = case.body
    used = set(re.findall(r"[A-Za-z_]\w*", body))
    parameters = "(.param .u64 inputs, .param .u64 outputs, .param .u64 memory" + (", .param .u64 handle)" if case.object else ")")
    lines = [case.before, f".visible .entry {name}{parameters}", "{"]
    lines += ["  .reg .b64 from, result, scratch, own, place;", "  .reg .b32 i, tid, lane, mine, s0, s1, t<6>;"]
    lines += ["  .reg .b64 u<4>;", "  .reg .b16 h<4>;", "  .reg .pred p, q, r, s;"]
    if used & {"mine", "sh"}:
        lines.append("  .shared .align 32 .b8 sh[4096];")
    if "lo" in used:
        lines.append("  .local .align 32 .b8 lo[32];")
    inputs = list(zip("abcdef", case.inputs))
    outputs = list(zip("xyzw", case.outputs))
    lines += [f"  .reg .b{BITS[ty]} {register};" for register, ty in inputs + outputs]
    lines += [
        "  ld.param.u64 from, [inputs]; ld.param.u64 result, [outputs]; ld.param.u64 scratch, [memory];",
        "  mov.u32 s0, %tid.z; mov.u32 s1, %ntid.y; mul.lo.u32 tid, s0, s1; mov.u32 s0, %tid.y; add.u32 tid, tid, s0;",
        "  mov.u32 s1, %ntid.x; mul.lo.u32 tid, tid, s1; mov.u32 s0, %tid.x; add.u32 tid, tid, s0;",
        "  mov.u32 s0, %ctaid.z; mov.u32 s1, %nctaid.y; mul.lo.u32 i, s0, s1; mov.u32 s0, %ctaid.y; add.u32 i, i, s0;",
        "  mov.u32 s1, %nctaid.x; mul.lo.u32 i, i, s1; mov.u32 s0, %ctaid.x; add.u32 i, i, s0;",
        "  shl.b32 i, i, 7; add.u32 i, i, tid; and.b32 lane, tid, 31;",
        "  mul.wide.u32 place, i, 8; add.u64 from, from, place; add.u64 result, result, place;",
        "  mul.wide.u32 own, i, 64; add.u64 own, own, scratch;",
    ]
    if case.object:
        lines += ["  .reg .b64 object;", "  ld.param.u64 object, [handle];"]
    if "mine" in used:
        lines.append("  mov.u32 mine, sh; shl.b32 s0, tid, 5; add.u32 mine, mine, s0;")
    for place, (register, ty) in enumerate(inputs):
        lines.append(f"  ld.global.b{BITS[ty]} {register}, [from+{place * THREADS * 8}];")
    lines += [f"  {line}" for line in body.splitlines()]
    for place, (register, ty) in enumerate(outputs):
        lines.append(f"  st.global.b{BITS[ty]} [result+{place * THREADS * 8}], {register};")
    lines += ["  ret;", "}"]
    return "\n".join(line for line in lines if line) + "\n"


HEADER = ".version 8.2\n.target sm_90\n.address_size 64\n"


def module(chunk: list[Case]) -> str:
    """A module of the kernels of some cases, numbered. What a case declares beside its kernel gets its number too."""
    return HEADER + "".join(numbered(case, number) for number, case in enumerate(chunk))


def numbered(case: Case, number: int) -> str:
    text = kernel(case, f"case{number}")
    # Names of variables and functions are the module's.
    for name in re.findall(
        r"^(?:\.const|\.global|\.visible \.func).*?(\w+)(?:\[\d+\] = \{|\(\.param \.\w+ \w+\)$| = |\(\.param \.\w+ \w+\) \{)",
        case.before,
        re.M,
    ):
        text = re.sub(rf"\b{name}\b", f"{name}_{number}", text)
    return text


class Refused(Exception):
    """The driver has answered an error."""


class Device:
    """The first CUDA device, through the driver's library."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            print(f"goldens: skipped: {error}", file=sys.stderr)
            sys.exit(SKIPPED)
        self.call("cuInit", 0)
        device, context, version = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDeviceGetName", name, 256, device)
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.name, self.version = name.value.decode(), version.value
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.inputs = self.allocate(6 * THREADS * 8)
        self.outputs = self.allocate(4 * THREADS * 8)
        self.scratch = self.allocate(THREADS * 64)
        self.given: Operands | None = None
        self.objects = Maker(self.call, self.allocate)

    def call(self, name: str, *arguments: object) -> None:
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise Refused(f"{name} answered {status}")

    def allocate(self, size: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def load(self, text: str) -> ctypes.c_void_p:
        """A module. What the compiler says against it is the exception's text."""
        log = ctypes.create_string_buffer(8192)
        # CU_JIT_ERROR_LOG_BUFFER and its size.
        names = (ctypes.c_int * 2)(5, 6)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), 8192)
        loaded = ctypes.c_void_p()
        try:
            self.call("cuModuleLoadDataEx", ctypes.byref(loaded), text.encode() + b"\0", 2, names, values)
        except Refused as refused:
            said = log.value.decode(errors="replace").strip()
            raise Refused(f"{refused}: {said}" if said else str(refused)) from None
        return loaded

    def works(self) -> bool:
        """Whether no fault has ended the context."""
        return int(self.library.cuCtxSynchronize()) == 0

    def unload(self, loaded: ctypes.c_void_p) -> None:
        self.call("cuModuleUnload", loaded)

    def run(self, loaded: ctypes.c_void_p, number: int, case: Case, operands: Operands) -> bytes:
        """What a case's kernel leaves: the slots of each result, one after another."""
        if self.given is not operands:
            if operands.slots:
                self.call("cuMemcpyHtoD_v2", self.inputs, operands.slots, ctypes.c_size_t(len(operands.slots)))
            self.given = operands
        size = len(case.outputs) * THREADS * 8
        self.call("cuMemsetD8_v2", self.outputs, ctypes.c_ubyte(UNTOUCHED), ctypes.c_size_t(size))
        self.call("cuMemsetD8_v2", self.scratch, ctypes.c_ubyte(0), ctypes.c_size_t(THREADS * 64))
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), loaded, f"case{number}".encode())
        handle = ctypes.c_uint64(self.objects.object(case.object) if case.object else 0)
        given = (self.inputs, self.outputs, self.scratch, handle)
        pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(one) for one in given))
        grid, block = case.launch
        self.call("cuLaunchKernel", function, *grid, *block, 0, None, pointers, None)
        self.call("cuCtxSynchronize")
        result = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", result, self.outputs, ctypes.c_size_t(size))
        return result.raw


def columns(case: Case, left: bytes) -> list[bytes]:
    """Each result's values, as wide as its type. What lies beside them must be as it was."""
    found = []
    for place, ty in enumerate(case.outputs):
        width = BITS[ty] // 8
        slots = left[place * THREADS * 8 : (place + 1) * THREADS * 8]
        beside = [slots[byte::8] for byte in range(width, 8)]
        if any(one != bytes([UNTOUCHED]) * THREADS for one in beside):
            raise Refused("it wrote beside its results")
        # Byte by byte: planes compress better than words.
        found.append(b"".join(slots[byte::8] for byte in range(width)))
    return found


def values(ty: str, planes: bytes, count: int) -> list[int]:
    """The numbers of planes."""
    width = BITS[ty] // 8
    each = [planes[byte * count : (byte + 1) * count] for byte in range(width)]
    return [int.from_bytes(bytes(one), "little") for one in zip(*each)]


def first(planes: bytes, kept: int) -> bytes:
    """The planes of the first values alone."""
    return b"".join(planes[start : start + kept] for start in range(0, len(planes), THREADS))


def short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def key(case: Case, operands: Operands) -> str:
    """Tells whether a record is of the same kernel and operands."""
    return short(f"{kernel(case, 'case')} {case.launch} ".encode() + operands.slots)


def chunks(chosen: list[Case]) -> Iterator[list[Case]]:
    """Cases for one module each: of one group, so that messages name what they are about."""
    for _, group in itertools.groupby(chosen, lambda case: case.group):
        members = list(group)
        for start in range(0, len(members), MODULE):
            yield members[start : start + MODULE]


class Pool:
    """Operands by types of inputs; made once."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, ...], Operands] = {}

    def of(self, case: Case) -> Operands:
        if case.inputs not in self.made:
            self.made[case.inputs] = Operands(case.inputs)
        return self.made[case.inputs]


# The values of each result, or why there are none.
Found = Union[list[bytes], str]


def attempt(device: Device, chunk: list[Case], pool: Pool, twice: bool) -> Iterator[tuple[Found, bool]]:
    """The results of each case of a module, or why there are none; and whether the device can go on."""
    try:
        loaded: ctypes.c_void_p | None = device.load(module(chunk))
    except Refused:
        # One of them is to blame: each alone.
        loaded = None
    for number, case in enumerate(chunk):
        found: Found
        try:
            mine = loaded or device.load(HEADER + numbered(case, number))
            left = device.run(mine, number, case, pool.of(case))
            if twice and device.run(mine, number, case, pool.of(case)) != left:
                raise Refused("its results are not the same a second time")
            found = columns(case, left)
            if not loaded:
                device.unload(mine)
        except Refused as refused:
            found = str(refused)
        # A fault stays with the context, and so with the process.
        yield found, device.works()
    if loaded:
        device.unload(loaded)


def process(chosen: list[Case], twice: bool, sender: Connection) -> None:
    """Carries cases out until a fault, and tells the device's name first."""
    device, pool = Device(), Pool()
    sender.send((device.name, device.version))
    for chunk in chunks(chosen):
        for found, works in attempt(device, chunk, pool, twice):
            sender.send(found)
            if not works:
                return


class Run:
    """Cases carried out by processes of their own, since a fault ends what a process can do with a device."""

    def __init__(self, chosen: list[Case], twice: bool) -> None:
        self.chosen, self.twice = chosen, twice
        self.name, self.version = "", 0

    def __iter__(self) -> Iterator[tuple[Case, Found]]:
        left = list(self.chosen)
        while left:
            receiver, sender = multiprocessing.Pipe(duplex=False)
            child = multiprocessing.Process(target=process, args=(left, self.twice, sender))
            child.start()
            sender.close()
            done = 0
            try:
                self.name, self.version = receiver.recv()
                while done < len(left):
                    found = receiver.recv()
                    yield left[done], found
                    done += 1
            except EOFError:
                # It has ended, after a fault or by one.
                child.join()
                if child.exitcode:
                    if not self.name or child.exitcode == SKIPPED:
                        sys.exit(child.exitcode)
                    yield left[done], f"the process ended with {child.exitcode}"
                    done += 1
            finally:
                receiver.close()
                child.join()
            left = left[done:]


def table(rows: dict[str, list[int]], heads: list[str]) -> None:
    """Counts by group."""
    print(f"{'group':14}" + "".join(f"{head:>14}" for head in heads))
    total = [0] * len(heads)
    for group, counts in rows.items():
        print(f"{group:14}" + "".join(f"{count:14}" for count in counts))
        total = [one + other for one, other in zip(total, counts)]
    print(f"{'all':14}" + "".join(f"{count:14}" for count in total))


def record(out: Path, chosen: list[Case]) -> int:
    """Writes what the device answers."""
    pool, began = Pool(), time.monotonic()
    run = Run(chosen, twice=True)
    out.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    kept_bytes: list[bytes] = []
    rows: dict[str, list[int]] = {}
    failed: list[str] = []
    for case, found in run:
        operands = pool.of(case)
        row = rows.setdefault(case.group, [0, 0, 0, 0, 0])
        row[0] += 1
        if isinstance(found, str):
            failed.append(f"{case.name}: {found}")
            row[4] += 1
            lines.append(f"{case.name}\t{key(case, operands)}\trefused\t0")
            continue
        kept = operands.kept(case)
        row[1] += THREADS
        row[2] += kept
        if case.bound:
            results = [values(ty, planes, THREADS) for ty, planes in zip(case.outputs, found)]
            outside = bounds.outside(case, operands.values, results[0])
            row[3] += len(outside)
            for place in outside[:2]:
                failed.append(f"{case.name}: beyond its bound: {shown(case, operands, place)} gives {results[0][place]:#x}")
        lines.append(f"{case.name}\t{key(case, operands)}\t{short(b''.join(found))}\t{kept}")
        kept_bytes += [first(planes, kept) for planes in found]
    head = f"# What instructions of PTX leave on {run.name}, CUDA {run.version // 1000}.{run.version % 1000 // 10}; by tests/gpu/goldens.py.\n"
    head += "# Case, digest of its kernel and operands, digest of its results, results kept in goldens.bin; parted by tabs.\n"
    (out / "goldens.txt").write_text(head + "\n".join(lines) + "\n")
    packed = zlib.compress(b"".join(kept_bytes), 9)
    (out / "goldens.bin").write_bytes(packed)
    table(rows, ["cases", "results", "kept", "beyond bounds", "refused"])
    for line in failed:
        print(f"!! {line}")
    print(f"{run.name}: {len(lines)} cases in {time.monotonic() - began:.1f} s; goldens.bin has {len(packed)} bytes, in {out}")
    return 0


def shown(case: Case, operands: Operands, place: int) -> str:
    """The operands of a thread."""
    each = (f"{name}={column[place]:#x}" for name, column in zip("abcdef", operands.values))
    return f"thread {place}, " + (", ".join(each) or "no operands")


class Goldens:
    """A record."""

    def __init__(self, folder: Path) -> None:
        self.lines: dict[str, tuple[str, str, int, int]] = {}
        try:
            text = (folder / "goldens.txt").read_text()
            self.kept = zlib.decompress((folder / "goldens.bin").read_bytes())
        except OSError as error:
            sys.exit(f"goldens: there is no record: {error}; `tests/gpu/goldens.sh run` makes one on an NVIDIA GPU")
        widths = {case.name: sum(BITS[ty] // 8 for ty in case.outputs) for case in cases()}
        at = 0
        for line in text.splitlines():
            if not line.startswith("#"):
                name, made_of, digest, kept = line.split("\t")
                self.lines[name] = (made_of, digest, int(kept), at)
                at += int(kept) * widths.get(name, 0)

    def results(self, case: Case) -> list[list[int]]:
        _, _, kept, at = self.lines[case.name]
        found = []
        for ty in case.outputs:
            size = kept * BITS[ty] // 8
            found.append(values(ty, self.kept[at : at + size], kept))
            at += size
        return found


# Names of cases whose results on devices in software are known to differ from the GPU's. One that differs no more must leave the list.
DIFFERING = Path(__file__).parent / "goldens" / "differing.txt"


def is_near(case: Case, mine: int, theirs: int) -> bool:
    """Whether a number is as near to the GPU's as the case asks for."""
    one, other = (struct.unpack("<f", word.to_bytes(4, "little"))[0] for word in (mine, theirs))
    return mine == theirs or abs(one - other) <= case.near


def unlike(goldens: Goldens, case: Case, operands: Operands, found: list[bytes]) -> list[str]:
    """Where results differ from the GPU's by more than the case allows: the first few, as text."""
    kept = goldens.lines[case.name][2]
    mine = [values(ty, planes, THREADS) for ty, planes in zip(case.outputs, found)]
    theirs = goldens.results(case)
    if case.bound:
        places = bounds.unlike(case, operands.values, mine[0], theirs[0])
    elif case.near:
        pairs = [list(zip(one[:kept], other)) for one, other in zip(mine, theirs)]
        places = [place for place in range(kept) if any(not is_near(case, *pair[place]) for pair in pairs)]
    else:
        places = [place for place in range(kept) if any(one[place] != other[place] for one, other in zip(mine, theirs))]
        if not places:
            return [f"{case.name}: random operands whose results are not kept give others"]
    complaints = []
    for place in places[:3]:
        given = ", ".join(f"{column[place]:#x}" for column in mine)
        recorded = ", ".join(f"{column[place]:#x}" for column in theirs) if place < kept else "a result that is not kept"
        where = shown(case, operands, place)
        complaints.append(f"{case.name}: {where} gives {given}, and {recorded} on the GPU ({len(places)} differ)")
    return complaints


def compare(goldens: Goldens, chosen: list[Case], digests: Path | None = None) -> int:
    """Compares what the device answers with a record. Digests of cases that are known to differ go to a file."""
    pool, began = Pool(), time.monotonic()
    run = Run(chosen, twice=False)
    rows: dict[str, list[int]] = {}
    wrong: list[str] = []
    other: list[str] = []
    known = DIFFERING.read_text().splitlines()
    for case, found in run:
        operands = pool.of(case)
        row = rows.setdefault(case.group, [0, 0, 0, 0, 0, 0])
        row[0] += 1
        if case.name not in goldens.lines:
            wrong.append(f"{case.name}: it is not in the record; make one anew on an NVIDIA GPU")
            row[4] += 1
            continue
        made_of, digest, _, _ = goldens.lines[case.name]
        if made_of != key(case, operands):
            wrong.append(f"{case.name}: the record is of another kernel or other operands; make one anew on an NVIDIA GPU")
            row[4] += 1
        elif digest == "refused":
            row[3] += 1
        elif isinstance(found, str):
            row[4] += 1
            wrong.append(f"{case.name}: {found}")
        elif short(b"".join(found)) == digest:
            row[1] += 1
            if case.name in known:
                wrong.append(f"{case.name}: it differs no more; take it off {DIFFERING.name}")
        else:
            complaints = unlike(goldens, case, operands, found)
            if case.name in known and complaints:
                row[5] += 1
                other.append(f"{case.name}\t{short(b''.join(found))}\n")
                continue
            row[4 if complaints else 2] += 1
            wrong += complaints
            if case.name in known:
                wrong.append(f"{case.name}: it differs no more; take it off {DIFFERING.name}")
    table(rows, ["cases", "equal", "within bounds", "refused", "wrong", "known to differ"])
    if digests:
        digests.write_text("".join(other))
    for line in wrong:
        print(f"!! {line}")
    print(f"{run.name}: {sum(row[0] for row in rows.values())} cases in {time.monotonic() - began:.1f} s")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("record", "compare", "modules", "list"))
    parser.add_argument("--out", type=Path, help="folder for what is written")
    parser.add_argument("--goldens", type=Path, default=Path(__file__).parent / "goldens", help="folder of the record")
    parser.add_argument("--digests", type=Path, help="file for digests of results that are known to differ, to compare devices with")
    parser.add_argument("--only", help="cases whose name or group this expression finds")
    options = parser.parse_args()
    every = cases()
    names = [case.name for case in every]
    assert len(set(names)) == len(names), f"named twice: {sorted(name for name in set(names) if names.count(name) > 1)}"
    chosen = [case for case in every if not options.only or re.search(options.only, f"{case.group}: {case.name}")]
    if not chosen:
        parser.error(f"--only {options.only}: no case has such a name; `goldens.py list` names them")
    if options.command in ("record", "modules") and not options.out:
        parser.error("--out names the folder to write to")
    actions: dict[str, Callable[[], int]] = {
        "record": lambda: record(options.out, chosen),
        "compare": lambda: compare(Goldens(options.goldens), chosen, options.digests),
        "modules": lambda: modules(options.out, chosen),
        "list": lambda: print("\n".join(f"{case.group}: {case.name}" for case in chosen)) or 0,
    }
    return actions[options.command]()


def modules(out: Path, chosen: list[Case]) -> int:
    """Writes the kernels, a file for each module."""
    out.mkdir(parents=True, exist_ok=True)
    for number, chunk in enumerate(chunks(chosen)):
        (out / f"{number:03}-{chunk[0].group}.ptx").write_text(module(chunk))
    return 0


if __name__ == "__main__":
    sys.exit(main())
