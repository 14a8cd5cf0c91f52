"""Textures and surfaces that cases of `instructions.py` read and write, made with the driver's calls.

A specification is a few words: a shape, a format, and how it is read. Shapes have sizes of their own (`SHAPES`); formats are a type and
the number of channels (`f32x2`); other words are `wrap`, `mirror`, `border` (else edges clamp), `linear`, `normalized`, `integers`,
`srgb`, `seamless`, and `blend` between levels. Contents look random and are the same in every run.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable
from typing import Any

# Width, height, depth as the driver wants them, flags of the array, levels. `memory` and `rows` are over plain memory.
LAYERED, SURFACE, CUBE, GATHER = 1, 2, 4, 8
SHAPES = {
    "1d": ((16, 0, 0), 0, 1), "2d": ((16, 12, 0), GATHER, 1), "3d": ((12, 8, 6), 0, 1),
    "a1d": ((16, 0, 5), LAYERED, 1), "a2d": ((16, 12, 5), LAYERED, 1),
    "cube": ((8, 8, 6), CUBE, 1), "acube": ((8, 8, 12), CUBE | LAYERED, 1),
    "levels": ((16, 16, 0), 0, 5), "memory": ((300, 0, 0), 0, 1), "rows": ((20, 12, 0), 0, 1),
    # An element for every thread.
    "paper": ((48, 48, 0), SURFACE, 1), "papers": ((16, 12, 12), SURFACE | LAYERED, 1), "block": ((16, 12, 12), SURFACE, 1),
}  # fmt: skip
# The driver's number, bytes of a channel.
FORMATS = {
    "u8": (1, 1),
    "u16": (2, 2),
    "u32": (3, 4),
    "s8": (8, 1),
    "s16": (9, 2),
    "s32": (10, 4),
    "f16": (16, 2),
    "f32": (32, 4),
}
EDGES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}
FLAGS = {"integers": 1, "normalized": 2, "srgb": 16, "seamless": 64}
BORDER = (0.5, -1.25, 2.0, 3.5)
PITCH = 512


def contents(specification: str, format_name: str, count: int) -> bytes:
    """So many channels that look random; those with a point are finite and at most 4."""
    size = FORMATS[format_name][1]
    noise = hashlib.shake_128(specification.encode()).digest(2 * count)
    words = struct.unpack(f"<{count}H", noise)
    if format_name in ("f16", "f32"):
        letter = "e" if format_name == "f16" else "f"
        return struct.pack(f"<{count}{letter}", *((word % 2048 - 1024) / 256 for word in words))
    return b"".join((word * 0x9E3779B1 & (1 << 8 * size) - 1).to_bytes(size, "little") for word in words)


class Maker:
    """Makes objects of specifications with a driver's calls, each once; those of surfaces anew, since they are written."""

    def __init__(self, call: Callable[..., None], allocate: Callable[[int], ctypes.c_uint64]) -> None:
        self.call, self.allocate = call, allocate
        self.made: dict[str, int] = {}

    def object(self, specification: str) -> int:
        if specification not in self.made:
            self.made[specification] = self.make(specification)
        return self.made[specification]

    def make(self, specification: str) -> int:
        shape, format_words, *how = specification.split()
        format_name, channels = format_words.split("x")
        number, size = FORMATS[format_name]
        element = size * int(channels)
        (width, height, depth), flags, levels = SHAPES[shape]
        handle = ctypes.c_uint64()
        if shape in ("memory", "rows"):
            pitch = PITCH if shape == "rows" else width * element
            rows = max(height, 1)
            memory = self.allocate(pitch * rows)
            filled = contents(specification, format_name, pitch * rows // size)
            self.call("cuMemcpyHtoD_v2", memory, filled, ctypes.c_size_t(len(filled)))
            if shape == "memory":
                resource = struct.pack("<I4xQIIQ", 2, memory.value, number, int(channels), width * element)
            else:
                resource = struct.pack("<I4xQIIQQQ", 3, memory.value, number, int(channels), width, height, pitch)
        else:
            array = self.array((width, height, depth), (number, int(channels), element), flags, levels, specification, format_name)
            resource = struct.pack("<I4xQ", 1 if levels > 1 else 0, array)
        # The union has 128 bytes, then there are flags.
        resource = resource.ljust(144, b"\0")
        if flags & SURFACE:
            self.call("cuSurfObjectCreate", ctypes.byref(handle), resource)
            return handle.value
        edge = next((EDGES[word] for word in how if word in EDGES), EDGES["clamp"])
        flags = sum(FLAGS[word] for word in how if word in FLAGS)
        texture = struct.pack(
            "<3IIIIIfff4f12i",
            edge,
            edge,
            edge,
            "linear" in how,
            flags,
            0,
            "blend" in how,
            0.0,
            0.0,
            16.0,
            *BORDER,
            *[0] * 12,
        )
        self.call("cuTexObjectCreate", ctypes.byref(handle), resource, texture, None)
        return handle.value

    def array(
        self,
        sides: tuple[int, int, int],
        form: tuple[int, int, int],
        flags: int,
        levels: int,
        specification: str,
        format_name: str,
    ) -> int:
        number, channels, element = form
        descriptor = struct.pack("<QQQIII4x", *sides, number, channels, flags)
        whole = ctypes.c_void_p()
        if levels == 1:
            self.call("cuArray3DCreate_v2", ctypes.byref(whole), descriptor)
            parts = [(whole, sides)]
        else:
            self.call("cuMipmappedArrayCreate", ctypes.byref(whole), descriptor, levels)
            parts = []
            for level in range(levels):
                part = ctypes.c_void_p()
                self.call("cuMipmappedArrayGetLevel", ctypes.byref(part), whole, level)
                parts.append((part, (max(sides[0] >> level, 1), max(sides[1] >> level, 1), 0)))
        for place, (part, (width, height, depth)) in enumerate(parts):
            height, depth = max(height, 1), max(depth, 1)
            count = width * height * depth * element // FORMATS[format_name][1]
            filled = ctypes.create_string_buffer(contents(f"{specification} {place}", format_name, count))
            self.copy(part, filled, (width * element, height, depth))
        return int(whole.value or 0)

    def copy(self, array: ctypes.c_void_p, source: Any, size: tuple[int, int, int]) -> None:
        side = "<4QI4x4Q2Q"
        host, into_array = 1, 3
        from_host = struct.pack(side, 0, 0, 0, 0, host, ctypes.addressof(source), 0, 0, 0, size[0], size[1])
        to_array = struct.pack(side, 0, 0, 0, 0, into_array, 0, 0, array.value or 0, 0, 0, 0)
        self.call("cuMemcpy3D_v2", from_host + to_array + struct.pack("<3Q", *size))
