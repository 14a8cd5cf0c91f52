"""The checks of site/build notice what they are for."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
BUILD = str(pathlib.Path(__file__).resolve().parents[2] / "site/build")
SPEC = importlib.util.spec_from_loader("site_build", importlib.machinery.SourceFileLoader("site_build", BUILD))
site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site)


class Links(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        (self.root / "docs").mkdir()
        (self.root / "bench").mkdir()
        (self.root / "bench/results.json").write_text("{}")
        (self.root / "docs/other.md").write_text("# Other\n\n## `towline run`: a Name, twice\n\n## Again\n\n## Again\n")

    def page(self, text: str, name: str = "docs/page.md") -> pathlib.Path:
        page = self.root / name
        page.write_text(text)
        return page

    def wrong(self, text: str) -> list[str]:
        return site.wrong_links(self.root, self.page(text))

    def test_right_links_pass(self) -> None:
        text = "# Page\n[a](other.md) [b](other.md#towline-run-a-name-twice) [c](other.md#again-1) [d](#page) [e](../bench) [f](https://x.org/y#z)\n"
        self.assertEqual(self.wrong(text), [])

    def test_missing_file_is_named_with_its_line(self) -> None:
        self.assertEqual(self.wrong("# Page\n\n[a](gone.md)\n"), ["docs/page.md:3: gone.md: there is no such file"])

    def test_missing_heading_is_named(self) -> None:
        self.assertEqual(self.wrong("[a](other.md#gone)"), ["docs/page.md:1: other.md#gone: docs/other.md has no such heading"])

    def test_missing_heading_of_the_page_itself_is_named(self) -> None:
        self.assertEqual(len(self.wrong("# Page\n[a](#gone)")), 1)

    def test_file_outside_of_the_repository_is_wrong(self) -> None:
        self.assertEqual(len(self.wrong("[a](../../../etc/passwd)")), 1)

    def test_code_is_not_read_for_links(self) -> None:
        self.assertEqual(self.wrong("`[a](gone.md)`\n\n```\n[b](gone.md)\n# [c](gone.md)\n```\n"), [])

    def test_heading_in_code_is_none(self) -> None:
        self.assertEqual(site.anchors("# One\n```\n# two\n```\n"), {"one"})

    def test_page_without_entry_and_entry_without_page_are_named(self) -> None:
        config = {"project": {"nav": [{"Home": "index.md"}, {"Part": [{"Gone": "gone.md"}]}]}}
        self.assertEqual(
            site.wrong_navigation(self.root, config),
            ["site/zensical.toml: the navigation lacks docs/other.md", "site/zensical.toml: there is no docs/gone.md"],
        )

    def test_links_that_leave_docs_lead_to_the_repository(self) -> None:
        page = self.page("[a](../bench/results.json) [b](../bench) [c](other.md#again)")
        blob, tree = f"{site.REPOSITORY}/blob/main/bench/results.json", f"{site.REPOSITORY}/tree/main/bench"
        self.assertEqual(site.staged(self.root, page), f"[a]({blob}) [b]({tree}) [c](other.md#again)")

    def test_first_page_leads_into_docs(self) -> None:
        page = self.page("[a](docs/other.md#again) `[b](docs/other.md)`", "README.md")
        self.assertEqual(site.staged(self.root, page), "[a](other.md#again) `[b](docs/other.md)`")
