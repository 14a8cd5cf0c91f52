"""What the record of instructions is made with, without a device: `python3 -m unittest discover -s tests/gpu`."""

from __future__ import annotations

import contextlib
import ctypes
import io
import math
import struct
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import bounds
import goldens
import textures
from instructions import BITS, Case, cases


def bits(number: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", number))[0])


class Operands(unittest.TestCase):
    def test_cases_have_names_of_their_own_and_room_for_their_operands(self) -> None:
        every = cases()
        self.assertEqual(len({case.name for case in every}), len(every))
        pool = goldens.Pool()
        for case in every:
            self.assertLessEqual(pool.of(case).kept(case), goldens.THREADS, case.name)

    def test_operands_fit_their_types_and_combine_what_is_special(self) -> None:
        operands = goldens.Operands(("f32", "shift"))
        self.assertTrue(all(value < 1 << 32 for column in operands.values for value in column))
        pairs = set(zip(*operands.values))
        self.assertIn((0x7F812345, 32), pairs)
        self.assertEqual(len(operands.slots), 2 * goldens.THREADS * 8)

    def test_operands_are_the_same_every_time(self) -> None:
        for ty in ("u16", "f64", "bf16x2", "shift"):
            self.assertEqual(goldens.random(ty, 1, 50), goldens.random(ty, 1, 50))
            self.assertNotEqual(goldens.random(ty, 0, 50), goldens.random(ty, 1, 50))

    def test_random_operands_are_of_all_magnitudes(self) -> None:
        exponents = {number >> 23 & 0xFF for number in goldens.random("f32", 0, 2000)}
        self.assertGreater(len(exponents), 240)


class Kernels(unittest.TestCase):
    def test_a_kernel_reads_its_operands_and_writes_its_results(self) -> None:
        case = Case("bits", "shf", ("b32", "b32"), ("b64",), "mov.b64 x, {a, b};")
        text = goldens.kernel(case, "k")
        self.assertIn("ld.global.b32 b, [from+18432];", text)
        self.assertIn("st.global.b64 [result+0], x;", text)

    def test_what_cases_declare_has_names_of_its_own_in_a_module(self) -> None:
        chosen = [case for case in cases() if case.before]
        text = goldens.module(chosen)
        self.assertIn("product_of_", text)
        self.assertNotRegex(text, r"\bproduct_of\b")
        self.assertNotRegex(text, r"\bchosen\b")


class Results(unittest.TestCase):
    case = Case("bits", "both", ("b32",), ("b16", "b32"), "")

    def left(self) -> bytes:
        narrow = b"".join(struct.pack("<H", place) + bytes([goldens.UNTOUCHED]) * 6 for place in range(goldens.THREADS))
        wide = b"".join(struct.pack("<I", place << 16) + bytes([goldens.UNTOUCHED]) * 4 for place in range(goldens.THREADS))
        return narrow + wide

    def test_results_come_back_from_what_is_kept(self) -> None:
        narrow, wide = goldens.columns(self.case, self.left())
        self.assertEqual(goldens.values("b16", narrow, goldens.THREADS)[700], 700)
        kept = goldens.first(wide, 10)
        self.assertEqual(len(kept), 10 * BITS["b32"] // 8)
        self.assertEqual(goldens.values("b32", kept, 10), [place << 16 for place in range(10)])

    def test_a_kernel_that_writes_beside_its_results_is_found(self) -> None:
        left = bytearray(self.left())
        left[8 * 30 + 5] = 0
        with self.assertRaises(goldens.Refused):
            goldens.columns(self.case, bytes(left))


class Comparison(unittest.TestCase):
    record = goldens.Goldens(Path(goldens.__file__).parent / "goldens")

    def compared(self, name: str, found: goldens.Found) -> int:
        """The verdict on what a device is said to have left."""
        case = next(case for case in cases() if case.name == name)
        with mock.patch.object(goldens, "Run") as run, contextlib.redirect_stdout(io.StringIO()):
            run.return_value.__iter__.return_value = iter([(case, found)])
            run.return_value.name = "a device"
            return goldens.compare(self.record, [case])

    def left(self, name: str) -> list[bytes]:
        """What the GPU left of a case whose results are all kept."""
        _, _, kept, at = self.record.lines[name]
        self.assertEqual(kept, goldens.THREADS)
        case = next(case for case in cases() if case.name == name)
        sizes = [kept * BITS[ty] // 8 for ty in case.outputs]
        return [self.record.kept[at + sum(sizes[:place]) :][:size] for place, size in enumerate(sizes)]

    def test_what_the_gpu_left_is_right_and_nothing_else(self) -> None:
        name = "%laneid, WARP_SZ"
        lanes, sizes = self.left(name)
        self.assertEqual(self.compared(name, [lanes, sizes]), 0)
        self.assertEqual(self.compared(name, [lanes, sizes[:-1] + b"\1"]), 1)

    def test_no_case_may_be_refused(self) -> None:
        self.assertEqual(self.compared("%laneid, WARP_SZ", "cuLaunchKernel answered 209"), 1)

    def test_what_is_listed_as_differing_must_differ(self) -> None:
        name = "%laneid, WARP_SZ"
        lanes, sizes = self.left(name)
        with tempfile.NamedTemporaryFile("w") as listed, mock.patch.object(goldens, "DIFFERING", Path(listed.name)):
            listed.write(f"{name}\n")
            listed.flush()
            self.assertEqual(self.compared(name, [lanes, sizes[:-1] + b"\1"]), 0)
            self.assertEqual(self.compared(name, [lanes, sizes]), 1)
            self.assertEqual(self.compared(name, "cuLaunchKernel answered 209"), 1)

    def test_filtered_numbers_may_be_as_far_from_the_gpus_as_the_case_says(self) -> None:
        case = Case("texture", "filtered", ("b32",), ("b32",), "", object="2d f32x1 linear", near=0.25)
        self.assertTrue(goldens.is_near(case, bits(1.0), bits(1.25)))
        self.assertFalse(goldens.is_near(case, bits(1.0), bits(1.5)))
        self.assertTrue(goldens.is_near(case, bits(math.nan), bits(math.nan)))


class Textures(unittest.TestCase):
    def test_contents_are_finite_the_same_every_time_and_others_for_each_object(self) -> None:
        once = textures.contents("2d f32x4", "f32", 500)
        self.assertEqual(once, textures.contents("2d f32x4", "f32", 500))
        self.assertNotEqual(once, textures.contents("2d f32x4 linear", "f32", 500))
        self.assertTrue(all(abs(number) <= 4 for (number,) in struct.iter_unpack("<f", once)))
        self.assertEqual(len(textures.contents("2d u16x1", "u16", 9)), 18)

    def test_descriptions_are_as_long_as_the_drivers(self) -> None:
        lengths: dict[str, list[int]] = {}

        def call(name: str, *arguments: object) -> None:
            lengths[name] = [len(one) for one in arguments if isinstance(one, bytes)]

        maker = textures.Maker(call, lambda _: ctypes.c_uint64(1 << 20))
        for specification in ("2d f32x4 wrap linear", "levels u8x1", "memory s16x2", "rows f16x1", "paper u32x1"):
            maker.object(specification)
        self.assertEqual(lengths["cuArray3DCreate_v2"], [40])
        self.assertEqual(lengths["cuMemcpy3D_v2"], [200])
        self.assertEqual(lengths["cuTexObjectCreate"], [144, 104])
        self.assertEqual(lengths["cuSurfObjectCreate"], [144])


class Bounds(unittest.TestCase):
    sine = Case("approximate", "sin.approx.f32", ("f32",), ("f32",), "", "sin")
    divided = Case("approximate", "div.full.ftz.f32", ("f32", "f32"), ("f32",), "", "div_full")

    def test_every_bound_is_known(self) -> None:
        for case in cases():
            if case.bound:
                one = goldens.Operands(case.inputs)
                bounds.verdicts(case, [column[:3] for column in one.values], [0, 0, 0])

    def test_a_result_may_be_as_far_away_as_is_said(self) -> None:
        near, far = bits(math.sin(1.0) + 2.0**-21), bits(math.sin(1.0) + 2.0**-20)
        self.assertEqual(bounds.outside(self.sine, [[bits(1.0)] * 2], [near, far]), [1])

    def test_units_count_from_the_exact_quotient(self) -> None:
        third = bits(1 / 3)
        operands = [[bits(1.0)] * 3, [bits(3.0)] * 3]
        self.assertEqual(bounds.outside(self.divided, operands, [third, third + 1, third + 2]), [2])

    def test_what_is_subnormal_may_be_flushed_and_nothing_else(self) -> None:
        tiny, small = bits(2.0**-126), bits(2.0**-124)
        operands = [[tiny, small], [bits(2.0)] * 2]
        self.assertEqual(bounds.outside(self.divided, operands, [0, 0]), [1])

    def test_where_nothing_is_bounded_the_gpu_decides(self) -> None:
        operands = [[bits(math.inf)]]
        self.assertEqual(bounds.unlike(self.sine, operands, [0x7FFFFFFF], [0x7FFFFFFF]), [])
        self.assertEqual(bounds.unlike(self.sine, operands, [0x7FC00000], [0x7FFFFFFF]), [0])


if __name__ == "__main__":
    unittest.main()
