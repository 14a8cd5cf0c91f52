"""Tests of suite.py with programs that need no GPU: `python3 -m unittest discover -s tests/gpu`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import suite

# Prints what its first argument says for the side that it runs on, and ends with the status that its second says.
PROGRAM = """
import json, os, sys, time
side = os.environ.get("SIDE", "native")
what = json.loads(sys.argv[1])[side]
time.sleep(what.get("sleep", 0))
if "line" in what:
    print("some words\\n" + json.dumps(what["line"]))
sys.exit(what.get("status", 0))
"""


def part(name: str, limit_s: int = 20, **sides: object) -> suite.Part:
    command = (sys.executable, "-c", PROGRAM, json.dumps(sides))
    return suite.Part(name, "workloads", command, limit_s, 2, ("total_ms", "median"), "ms")


def line(ms: float, digest: str = "aa") -> dict[str, object]:
    return {"line": {"total_ms": {"median": ms}, "digest": digest}}


class SuiteTest(unittest.TestCase):
    def run_parts(self, *parts: suite.Part, options: tuple[str, ...] = ()) -> tuple[int, dict[str, dict]]:
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["suite.py", "--remote", "env\tSIDE=towline", "--out", folder, "--server-pid", str(os.getpid()), *options]
            with (
                mock.patch.object(suite, "parts_of", lambda *_: list(parts)),
                mock.patch.object(sys, "argv", arguments),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                status = suite.main()
            rows = json.loads((pathlib.Path(folder) / "programs.json").read_text())["parts"]
        return status, {row["part"]: row for row in rows}

    def test_ratio_is_of_the_programs_own_time(self) -> None:
        status, rows = self.run_parts(part("p", native=line(2.0), towline=line(3.0)))
        self.assertEqual(status, 0)
        self.assertEqual(rows["p"]["ratio"], {"median": 1.5, "min": 1.5, "max": 1.5, "n": 2})
        self.assertEqual(rows["p"]["results"], "equal")
        self.assertIsNotNone(rows["p"]["towline"]["server_cpu_s"])

    def test_other_results_are_wrong(self) -> None:
        status, rows = self.run_parts(part("p", native=line(1.0), towline=line(1.0, "bb")))
        self.assertEqual((status, rows["p"]["results"]), (1, "DIFFER"))

    def test_failure_is_not_tried_again_and_others_go_on(self) -> None:
        failing = part("bad", native=line(1.0), towline={"status": 3})
        status, rows = self.run_parts(failing, part("good", native=line(1.0), towline=line(1.0)))
        self.assertEqual(status, 1)
        self.assertEqual(rows["bad"]["towline"]["status"], "status 3")
        self.assertIsNone(rows["bad"]["ratio"])
        self.assertEqual(rows["good"]["ratio"]["n"], 2)

    def test_program_without_its_library_is_skipped(self) -> None:
        status, rows = self.run_parts(part("p", native={"status": 77}, towline={"status": 77}))
        self.assertEqual((status, rows["p"]["native"]["status"]), (0, "skipped"))

    def test_hanging_program_is_ended(self) -> None:
        status, rows = self.run_parts(part("p", 1, native=line(1.0), towline={"sleep": 60}))
        self.assertEqual((status, rows["p"]["towline"]["status"]), (1, "no end within 1 s"))

    def test_program_without_a_result_line_is_no_success(self) -> None:
        status, rows = self.run_parts(part("p", native=line(1.0), towline={}))
        self.assertEqual((status, rows["p"]["towline"]["status"]), (1, "no result line"))

    def test_programs_that_vary_are_not_compared(self) -> None:
        good = suite.Outcome("ok", facts={"digest": "aa"})
        other = suite.Outcome("ok", facts={"digest": "bb"})
        self.assertEqual(suite.same_results({"native": [good, other], "towline": [good]}), "varies natively")

    def test_rounds_of_a_disturbed_processor_do_not_count(self) -> None:
        def run(ms: list[float], reference: list[float]) -> suite.Outcome:
            return suite.Outcome("ok", facts={"of_rounds": {"ms": ms, "reference_ms": reference}})

        calm = [1.0, 1.1, 1.0, 1.1]
        natively = run([10.0, 10.0, 12.0, 10.0], calm)
        found = suite.undisturbed({"native": [natively], "towline": [run([9.0, 20.0, 9.0, 9.0, 21.0], [1.0, 2.0, 1.05, 1.1, 1.2])]})
        assert found
        self.assertEqual((found["ratio"], found["native"]["n"], found["towline"]["n"]), (0.9, 4, 3))
        self.assertEqual((found["towline"]["of"], found["towline"]["max"]), (5, 9.0))
        # What was slow for another reason counts, and so few rounds are no figure.
        self.assertEqual(found["native"]["max"], 12.0)
        disturbed = run([20.0] * 4, [2.0] * 4)
        self.assertIsNone(suite.undisturbed({"native": [natively], "towline": [disturbed]}))
        self.assertIsNone(suite.undisturbed({"native": [natively], "towline": [suite.Outcome("ok")]}))

    def test_programs_are_held_to_cores(self) -> None:
        program = "import os, json; print(json.dumps({'total_ms': {'median': len(os.sched_getaffinity(0))}}))"
        held = suite.Part("p", "workloads", (sys.executable, "-c", program), 20, 1, ("total_ms", "median"))
        _, rows = self.run_parts(held, options=("--cores", "1"))
        self.assertEqual(rows["p"]["native"]["value"]["median"], 1)

    def test_every_named_program_exists(self) -> None:
        makefile = (suite.HERE.parent.parent / "workloads/cuda/Makefile").read_text()
        for known in suite.parts_of(pathlib.Path("folder"), "python3"):
            if known.group == "python":
                self.assertTrue(pathlib.Path(known.command[1]).exists(), known.name)
            else:
                self.assertIn(pathlib.Path(known.command[0]).name, makefile)


class AdapterTest(unittest.TestCase):
    """What is read out of other programs' output."""

    def setUp(self) -> None:
        sys.path.insert(0, str(suite.HERE / "programs"))
        self.addCleanup(sys.path.remove, str(suite.HERE / "programs"))

    def test_loop_and_state_of_lammps_are_read(self) -> None:
        import lammps

        log = (
            "Step Temp E_pair E_mol TotEng Press\n       0         1.44   -6.7733681            0   -4.6134356   -5.0197073\n"
            "     100    0.7574531   -5.7585055            0   -4.6223613   0.20726105\n"
            "Loop time of 2.5 on 1 procs for 100 steps with 32000 atoms\n   7 8 9\n"
        )
        self.assertEqual(lammps.loop_of(log), (2.5, 100, 32000))
        self.assertEqual([row[0] for row in lammps.thermo_of(log)], ["0", "100"])
        self.assertEqual(float(lammps.thermo_of(log)[0][2]), lammps.LATTICE_ENERGY)
        self.assertIsNone(lammps.loop_of("ERROR: no GPU"))

    def test_rounds_tell_how_slow_the_processor_was(self) -> None:
        import argparse

        import harness

        clock = harness.Clock("p", argparse.Namespace(steps=2, rounds=3))
        with mock.patch.object(harness, "reference_ms", mock.Mock(side_effect=[1.0, 3.0, 1.0, 2.0])):
            clock.run(lambda: None, lambda: None)
        self.assertEqual(clock.facts["of_rounds"]["reference_ms"], [3.0, 3.0, 2.0])
        self.assertEqual(len(clock.facts["of_rounds"]["ms"]), 3)
        self.assertGreater(harness.reference_ms(), 0)

    def test_database_has_the_lengths_of_swiss_prot(self) -> None:
        import random

        import cudasw

        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "database"
            cudasw.write_database(file, 2000, random.Random(1))
            lengths = [len(line) for line in file.read_text().splitlines() if not line.startswith(">")]
        self.assertEqual(len(lengths), 2000)
        self.assertLess(abs(sum(lengths) / 2000 - cudasw.MEAN), 25)
        self.assertEqual(cudasw.scores_of("score: 7 -- sequence5\nGCUPS 3\n"), ["score: 7 -- sequence5"])


if __name__ == "__main__":
    unittest.main()
