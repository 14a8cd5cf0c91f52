"""Runs what pages of docs/ show, word for word, with the programs of TOWLINE_BIN_DIR.

A fenced block `console` is a terminal: lines that begin with `$ ` are commands, with `> ` their further lines, the others are what they
print, where `...` stands for any text. `title="NAME"` makes it a terminal of its own, which goes on in the next block of that name.
`towline serve` goes on until the page ends. A block of another language with `title="FILE"` is the file of that name.

Each page runs in an empty folder, with a HOME of its own, as root in a network namespace of its own, so that its ports are free.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PATIENCE_S = 60
# Not a user namespace: the server would say that it cannot jail its workers as root does.
NAMESPACE = ["unshare", "--net"]


def pattern(text: str) -> re.Pattern[str]:
    """A pattern for `text`: `...` stands for any characters, a line `...` for any lines."""
    parts = (re.escape(part) for part in text.strip().split("..."))
    return re.compile(r"(?:.|\n)*?".join(parts) + r"\s*\Z")


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a terminal, each with what it prints."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> ") and found:
            found[-1] = (found[-1][0] + "\n" + line[2:], "")
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
    return found


class Terminal:
    """A shell whose commands come from a page."""

    def __init__(self, folder: pathlib.Path, environment: dict[str, str]) -> None:
        self.shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.printed = b""
        self.ended = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while piece := os.read(self.shell.stdout.fileno(), 65536):
            self.printed += piece
        self.ended.set()

    def run(self, command: str, expected: str) -> str | None:
        """The reason why the command did not print what is expected, or None."""
        begin = len(self.printed)
        mark = f"end-of-command-{begin}"
        # The status of the command before is for the page's `echo $?`.
        self.shell.stdin.write(f"(exit ${{status:-0}})\n{command}\nstatus=$?; echo; echo {mark}\n".encode())
        self.shell.stdin.flush()
        goes_on = command.startswith("towline serve")
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            text, marked, _ = self.printed[begin:].decode(errors="replace").partition(f"\n{mark}\n")
            if pattern(expected).match(text.lstrip()) and (marked or goes_on):
                return None
            if marked or self.ended.is_set():
                break
            time.sleep(0.02)
        text = self.printed[begin:].decode(errors="replace").partition(f"\n{mark}\n")[0]
        return f"$ {command}\nprinted\n{text}\nwhere the page has\n{expected}"

    def end(self) -> None:
        for sent in (signal.SIGINT, signal.SIGKILL):
            try:
                os.killpg(self.shell.pid, sent)
            except ProcessLookupError:
                break
            if sent == signal.SIGINT:
                self.shell.stdin.close()
                self.ended.wait(10)
        self.shell.wait()
        self.ended.wait()
        self.shell.stdout.close()


def run_page(page: pathlib.Path) -> str | None:
    """The reason why the page does not do what it says, or None."""
    binaries = pathlib.Path(os.environ.get("TOWLINE_BIN_DIR", ROOT / "target/release")).resolve()
    with tempfile.TemporaryDirectory() as folder:
        home, work = pathlib.Path(folder, "home"), pathlib.Path(folder, "work")
        home.mkdir()
        work.mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TOWLINE_", "XDG_", "CUDA_"))}
        # A program on a terminal writes line by line.
        environment |= {"HOME": str(home), "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
        terminals: dict[str, Terminal] = {}
        try:
            for language, title, block in FENCE.findall(page.read_text()):
                if language != "console":
                    if title:
                        work.joinpath(title).write_text(block)
                    continue
                if title not in terminals:
                    terminals[title] = Terminal(work, environment)
                for command, expected in commands(block):
                    if wrong := terminals[title].run(command, expected):
                        others = "\n".join(
                            f"--- {name}\n{other.printed.decode(errors='replace')}" for name, other in terminals.items() if name != title
                        )
                        return f"{page.name}: {wrong}\n{others}"
        finally:
            for terminal in terminals.values():
                terminal.end()
    return None


class Pages(unittest.TestCase):
    def test_tutorial_does_what_it_says(self) -> None:
        self.assertIsNone(run_page(ROOT / "docs/tutorial.md"))

    def test_first_page_does_what_it_says(self) -> None:
        self.assertIsNone(run_page(ROOT / "docs/get-started.md"))

    def test_opencl_page_does_what_it_says(self) -> None:
        self.assertIsNone(run_page(ROOT / "docs/opencl.md"))

    def test_administration_page_does_what_it_says(self) -> None:
        self.assertIsNone(run_page(ROOT / "docs/administration.md"))

    @unittest.skipUnless(os.geteuid() == 0, "namespaces need root")
    def test_container_page_does_what_it_says(self) -> None:
        self.assertIsNone(run_page(ROOT / "docs/containers.md"))


class Rules(unittest.TestCase):
    def test_dots_stand_for_any_text(self) -> None:
        self.assertTrue(pattern("up ...: 0 of 32\n...\nend\n").match("up 3 s: 0 of 32\nx\ny\nend\n"))

    def test_other_text_is_noticed(self) -> None:
        self.assertFalse(pattern("1048576 of 1048576 are right").match("1048575 of 1048576 are right"))

    def test_text_behind_the_end_is_noticed(self) -> None:
        self.assertFalse(pattern("right\n").match("right\nand more\n"))

    def test_page_that_says_otherwise_fails(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text("```console\n$ echo one\none\n$ echo two\nthree\n```\n")
            self.assertIn("$ echo two\nprinted\ntwo", run_page(page) or "")


def in_namespace() -> bool:
    return shutil.which("unshare") is not None and not subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode


if __name__ == "__main__":
    if "TOWLINE_DOCS_NAMESPACE" not in os.environ and in_namespace():
        os.environ["TOWLINE_DOCS_NAMESPACE"] = "1"
        os.execvp(NAMESPACE[0], [*NAMESPACE, "sh", "-c", 'ip link set lo up && exec python3 "$0" "$@"', __file__, *sys.argv[1:]])
    unittest.main()
