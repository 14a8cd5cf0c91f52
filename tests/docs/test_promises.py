"""Each promise of docs/promises.md is numbered once, and the tests and files that hold it are there."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+) \| (.*) \| (.+) \|$", re.MULTILINE)


def sources() -> str:
    """All code in which a test may be."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.rs", "*.py"], cwd=ROOT, capture_output=True, check=True)
    return "\n".join((ROOT / name).read_text() for name in listed.stdout.decode().split("\0") if name and (ROOT / name).exists())


class Promises(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.rows = ROW.findall((ROOT / "docs/promises.md").read_text())
        lines = (ROOT / "tests/docs/promises.txt").read_text().splitlines()
        cls.held = {line.split()[0]: line.split()[1:] for line in lines if line and not line.startswith("#")}

    def test_page_has_promises_and_numbers_each_once(self) -> None:
        numbers = [row[0] for row in self.rows]
        self.assertGreater(len(numbers), 200)
        self.assertEqual(len(numbers), len(set(numbers)))

    def test_each_number_but_those_of_speed_has_tests(self) -> None:
        self.assertEqual({row[0] for row in self.rows if not row[0].startswith("F")}, set(self.held))
        self.assertEqual([number for number, tests in self.held.items() if not tests], [])

    def test_tests_that_hold_promises_are_there(self) -> None:
        known = set(re.findall(r"\w+", sources()))
        gone = [
            f"{number}: {test}"
            for number, tests in self.held.items()
            for test in tests
            if not (test in known if re.fullmatch(r"\w+", test) else (ROOT / test).exists())
        ]
        self.assertEqual(gone, [])

    def test_files_that_the_page_names_are_there(self) -> None:
        gone = [
            f"{number}: {path}"
            for number, _, _, proven in self.rows
            for path in re.findall(r"`([^`]+)`", proven)
            if not (ROOT / path).exists() and not (ROOT / "crates" / path).exists()
        ]
        self.assertEqual(gone, [])


if __name__ == "__main__":
    unittest.main()
