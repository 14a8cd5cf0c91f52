"""Tests of kills.py with programs that need no GPU: `python3 -m unittest discover -s tests/gpu`."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import unittest
from collections.abc import Callable
from unittest import mock

import kills

MIB = 1 << 20
# Gets ready and waits, unless its first argument says never.
PROGRAM = """
import sys, time
if sys.argv[1] == "never":
    sys.exit(0)
print("ready", flush=True)
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Fake(kills.Machine):
    """Its programs hold memory as long as they live, or their worker does."""

    def __init__(self, how: str = "waits", held: int = 100 * MIB, stays: bool = False) -> None:
        self.holders: list[int] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.held = held
        self.stays = stays
        super().__init__(
            used=self.in_use, program=(sys.executable, "-c", PROGRAM, how), remote=("env",), worker=self.worker_of, bytes=100 * MIB
        )

    def in_use(self) -> int:
        return sum(self.held for pid in self.holders if self.stays or is_alive(pid))

    def start(self, side: str, doing: str, megabytes: int) -> subprocess.Popen[str]:
        process = super().start(side, doing, megabytes)
        self.holders.append(process.pid)
        return process

    def worker_of(self, program: int) -> int:
        worker = subprocess.Popen(("sleep", "60"))
        self.workers.append(worker)
        self.holders[self.holders.index(program)] = worker.pid
        return worker.pid

    def clean(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()


class KillsTest(unittest.TestCase):
    def machine(self, **more: object) -> Fake:
        machine = Fake(**more)  # type: ignore[arg-type]
        self.addCleanup(machine.clean)
        return machine

    def wrong(self, ask: Callable[[], object]) -> str:
        with mock.patch.object(kills, "LIMIT_S", 4.0), self.assertRaises(kills.Wrong) as caught:
            ask()
        return str(caught.exception)

    def test_memory_of_a_killed_program_comes_back(self) -> None:
        self.assertLess(self.machine().kill("native", "copies", "program"), kills.LIMIT_S)
        self.assertLess(self.machine().kill("towline", "copies", "program"), kills.LIMIT_S)

    def test_memory_that_stays_is_told(self) -> None:
        machine = self.machine(stays=True)
        self.assertIn("the memory is not back", self.wrong(lambda: machine.kill("native", "copies", "program")))

    def test_a_program_that_holds_nothing_proves_nothing(self) -> None:
        machine = self.machine(held=10 * MIB)
        self.assertIn("10 MiB more are in use", self.wrong(lambda: machine.kill("native", "capture", "program")))

    def test_a_program_that_does_not_get_ready_is_told(self) -> None:
        machine = self.machine(how="never")
        self.assertIn("did not get ready", self.wrong(lambda: machine.kill("towline", "launches", "program")))

    def test_a_program_that_outlives_its_worker_is_told(self) -> None:
        machine = self.machine()
        self.assertIn("the program hangs", self.wrong(lambda: machine.kill("towline", "capture", "worker")))

    def test_what_comes_back_later_than_natively_and_a_second_is_wrong(self) -> None:
        times = {"native": iter((0.2, 0.3)), "towline": iter((1.2, 1.4, 0.1, 0.1))}
        machine = self.machine()
        with mock.patch.object(kills, "DOING", ("copies",)), mock.patch.object(machine, "kill", lambda side, *_: next(times[side])):
            rows, wrong = kills.measure(machine, 2)
        self.assertEqual([row["seconds"] for row in rows], [[0.2, 0.3], [1.2, 1.4], [0.1, 0.1]])
        self.assertEqual(wrong, ["copies, program killed: 1.40 s, natively 0.30 s; 1 s more are allowed"])

    def test_memory_of_descendants_is_counted(self) -> None:
        child = subprocess.Popen((sys.executable, "-c", "x = b'1' * (64 << 20); print(len(x), flush=True); input()"),
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        used = kills.resident(os.getpid())()
        child.communicate(b"\n")
        self.assertGreater(used, 64 * MIB)


if __name__ == "__main__":
    unittest.main()
