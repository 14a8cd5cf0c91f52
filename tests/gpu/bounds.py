"""How near to the exact result the PTX ISA has its approximate instructions be.

The figures are the published ones (PTX ISA 8.x), per instruction in the table below: units in the last place (of the result's
type), relative, or absolute. The approximations of 64 bits have none there: they are held to the 20 bits of mantissa that the high
word has. Where a result is no number, or infinite or zero by itself, nothing is bounded: there it must be what the GPU gives.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from instructions import Case

MANTISSA = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
LEAST_EXPONENT = {"f16": -14, "bf16": -126, "f32": -126, "f64": -1022}
LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}


def number(ty: str, bits: int) -> float:
    """The number of a pattern of bits."""
    if ty == "bf16":
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    form, raw = {"f16": ("<e", "<H"), "f32": ("<f", "<I"), "f64": ("<d", "<Q")}[ty]
    return float(struct.unpack(form, struct.pack(raw, bits))[0])


def ulp(ty: str, of: float) -> float:
    """What the last place of a number is worth."""
    exponent = math.frexp(of)[1] - 1 if of else LEAST_EXPONENT[ty]
    return math.ldexp(1.0, max(exponent, LEAST_EXPONENT[ty]) - MANTISSA[ty])


class Bound(NamedTuple):
    """The exact result, and how far from it others may be; `None` where nothing is said."""

    exact: Callable[..., float]
    ulps: float = 0
    relative: float = 0
    absolute: float | Callable[..., float] = 0
    # Operands for which the figures hold.
    within: Callable[..., bool] = lambda *_: True


def exp2(a: float) -> float:
    return 2.0**a if a < 1024 else math.inf


def circular(a: float) -> float:
    """For sines and cosines: more loosely beyond one turn; beyond fifty only that they are between -1 and 1."""
    return 2.0**-20.5 if abs(a) <= 2 * math.pi else 2.0**-14.7 if abs(a) <= 100 * math.pi else 2.0


BOUNDS = {
    # Up to 2 units for divisors between 2^-126 and 2^126; beyond, zero is said, which is left to the comparison with the GPU. Of
    # subnormal divisors nothing is said: they are held to the same.
    "div_approx": Bound(lambda a, b: a / b, ulps=2, within=lambda a, b: abs(b) <= 2.0**126),
    "div_full": Bound(lambda a, b: a / b, ulps=2),
    "rcp": Bound(lambda a: 1 / a, ulps=1),
    "sqrt": Bound(math.sqrt, relative=2.0**-23),
    "rsqrt": Bound(lambda a: 1 / math.sqrt(a), relative=2.0**-22.9),
    "ex2": Bound(exp2, ulps=2),
    "lg2": Bound(math.log2, relative=2.0**-22, absolute=2.0**-22),
    "sin": Bound(math.sin, absolute=circular),
    "cos": Bound(math.cos, absolute=circular),
    "tanh": Bound(math.tanh, relative=2.0**-11),
    "rcp_f64": Bound(lambda a: 1 / a, relative=2.0**-20),
    "rsqrt_f64": Bound(lambda a: 1 / math.sqrt(a), relative=2.0**-20),
    "ex2_f16": Bound(exp2, relative=2.0**-9.9),
    "ex2_bf16": Bound(exp2, relative=2.0**-7),
    "tanh_f16": Bound(math.tanh, absolute=2.0**-10.987),
    "tanh_bf16": Bound(math.tanh, absolute=2.0**-8),
}


def judged(bound: Bound, ty: str, flush: bool, given: Sequence[int], result: int) -> bool | None:
    """Whether a result is near enough; `None` where only the GPU can tell."""
    numbers = [number(ty, one) for one in given]
    if flush:
        numbers = [math.copysign(0.0, one) if abs(one) < 2.0 ** LEAST_EXPONENT[ty] else one for one in numbers]
    try:
        exact = bound.exact(*numbers)
    except (ArithmeticError, ValueError):
        return None
    if not math.isfinite(exact) or exact == 0 or not bound.within(*numbers):
        return None
    if abs(exact) > 2 * LARGEST[ty]:
        return None
    found = number(ty, result)
    if math.isnan(found):
        return False
    absolute = bound.absolute if isinstance(bound.absolute, (int, float)) else bound.absolute(*numbers)
    far = max(bound.ulps * ulp(ty, exact), bound.relative * abs(exact), absolute)
    # What is said of relative errors cannot hold between numbers that are too small to have all digits.
    far = max(far, ulp(ty, 0.0) if abs(exact) < 2.0 ** LEAST_EXPONENT[ty] else 0.0)
    if found == 0 and flush and abs(exact) - far < 2.0 ** LEAST_EXPONENT[ty]:
        return True
    if math.isinf(found):
        return found * exact > 0 and abs(exact) + far > LARGEST[ty]
    # Half a unit beyond the bound is the rounding of the result itself, for half precision.
    slack = ulp(ty, exact) / 2 if ty in ("f16", "bf16") else 0.0
    return abs(found - exact) <= far + slack


def halves(case: Case, operands: Sequence[int], result: int) -> list[tuple[str, list[int], int]]:
    """Operands and result of each number that an instruction computes."""
    ty = case.inputs[0]
    if not ty.endswith("x2"):
        return [(ty, list(operands), result)]
    return [(ty[:-2], [one >> shift & 0xFFFF for one in operands], result >> shift & 0xFFFF) for shift in (0, 16)]


def verdicts(case: Case, operands: Sequence[Sequence[int]], results: Sequence[int]) -> list[list[tuple[bool | None, int]]]:
    """Of every thread, for each number: whether it is near enough, and which it is."""
    bound = BOUNDS[case.bound[:-2] if case.bound.endswith("16x2") else case.bound]
    flush = ".ftz" in case.name
    return [
        [(judged(bound, ty, flush, given, one), one) for ty, given, one in halves(case, each, result)]
        for each, result in zip(zip(*operands), results)
    ]


def outside(case: Case, operands: Sequence[Sequence[int]], results: Sequence[int]) -> list[int]:
    """Threads whose result is farther from the exact one than is allowed."""
    found = verdicts(case, operands, results)
    return [place for place, each in enumerate(found) if any(verdict is False for verdict, _ in each)]


def unlike(case: Case, operands: Sequence[Sequence[int]], mine: Sequence[int], theirs: Sequence[int]) -> list[int]:
    """Threads whose result is too far away, or, where the ISA says nothing, another than the GPU's, as far as those are known."""
    own = verdicts(case, operands, mine)
    gpus = verdicts(case, operands, theirs)
    wrong = set(outside(case, operands, mine))
    for place, (one, other) in enumerate(zip(own, gpus)):
        if any(verdict is None and bits != gpu for (verdict, bits), (_, gpu) in zip(one, other)):
            wrong.add(place)
    return sorted(wrong)
