"""Every command of towline that README and docs/ name is known to the program in TOWLINE_BIN_DIR, also where no test runs it."""

import functools
import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^```.*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
PATIENCE_S = 60


def named_commands(text: str) -> list[str]:
    """The words behind `towline` in the code of a page, up to the program that it runs or the end of the command."""
    code = FENCED.findall(text) + SPAN.findall(FENCED.sub("", text))
    found = []
    for piece in code:
        piece = re.sub(r"#.*", "", piece.replace("\\\n", " "))
        for start in re.finditer(r"(?<![\w.-])towline (?=[a-z])", piece):
            found.append(re.split(r" -- | --$|[\n|&<>;()'\"]", piece[start.end() :], maxsplit=1)[0].strip())
    return found


@functools.cache
def help_of(*verbs: str) -> str | None:
    """The text that `towline VERBS --help` prints, or None where there is no such verb."""
    program = pathlib.Path(os.environ.get("TOWLINE_BIN_DIR", ROOT / "target/release")) / "towline"
    told = subprocess.run([program, *verbs, "--help"], capture_output=True, text=True, timeout=PATIENCE_S)
    return None if told.returncode else told.stdout


def unknown_words(command: str, page: str) -> list[str]:
    """Verbs and options of a command that the program does not know."""
    verbs: list[str] = []
    options = []
    if command.startswith("nvcc"):
        # All that follows is nvcc's.
        return [] if "\n  nvcc " in help_of() else [f"{page}: towline nvcc"]
    for word in command.split():
        if word.startswith("--"):
            options.append(re.match(r"--[\w-]*", word)[0])
        elif re.fullmatch(r"[a-z]+", word) and (not verbs or f"\n  {word} " in (help_of(*verbs) or "")):
            verbs.append(word)
            if help_of(*verbs) is None:
                return [f"{page}: towline {' '.join(verbs)}"]
    texts = [help_of(*verbs[: end + 1]) for end in range(len(verbs))]
    return [
        f"{page}: towline {' '.join(verbs)} {option}"
        for option in options
        if not any(re.search(rf"(?<![\w-]){option}(?![\w-])", text) for text in texts)
    ]


class Commands(unittest.TestCase):
    def test_verbs_and_options_of_all_pages_exist(self) -> None:
        # The protocol has names of keys that look like commands.
        pages = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs/protocol.md"})]
        found = {(command, page.name) for page in pages for command in named_commands(page.read_text())}
        self.assertGreater(len(found), 100)
        self.assertEqual(sorted({wrong for command, page in found for wrong in unknown_words(command, page)}), [])


class Rules(unittest.TestCase):
    def test_commands_end_where_the_program_begins(self) -> None:
        page = "`towline status`\n\n```\n$ towline run --server a:1 \\\n    --report -- ./towline-like --x  # towline no\n```\n"
        self.assertEqual(named_commands(page), ["run --server a:1      --report", "status"])

    def test_unknown_verbs_and_options_are_named(self) -> None:
        self.assertEqual(unknown_words("nothing --x", "p"), ["p: towline nothing"])
        self.assertEqual(unknown_words("run --reprot --server x", "p"), ["p: towline run --reprot"])
        self.assertEqual(unknown_words("tenant --tenants-file f add x --sessions 8", "p"), [])


if __name__ == "__main__":
    unittest.main()
