import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from towline_bench import style
from towline_bench.cli import main
from towline_bench.figures import draw
from towline_bench.figures.placed import behind, speedup
from towline_bench.report import agreement, choices
from towline_bench.table import Row, read, write_csv

ROOT = Path(__file__).parents[2]


def placed(placement: str, tasks: int, value: float, **more: object) -> Row:
    fields: dict[str, object] = {"metric": "seconds", "unit": "s", "source": "measured", "device": "cpu", **more}
    return Row(program="cg", placement=placement, tasks=tasks, value=value, **fields)  # type: ignore[arg-type]


ROWS = [
    placed("rr:1", 16, 10.0, least=9.9, most=10.2, runs=3),
    placed("rr:12", 16, 20.0, least=19.0, most=21.0, runs=3),
    placed("rr:1", 32, 6.0, least=5.0, most=9.0, runs=3),
    placed("rr:12", 32, 7.0, least=6.5, most=8.0, runs=3),
    placed("rr:1", 64, 5.0),
    placed("rr:12", 64, 5.02),
    placed("rr:2", 64, float("nan"), error="<it> died"),
]


def test_a_choice_says_how_sure_it_is() -> None:
    sure, overlapping, same = choices(ROWS)
    assert (sure.best.placement, sure.verdict()[0], sure.loss) == ("rr:1", True, 1.0)
    assert overlapping.verdict() == (False, "runs of the two overlap (3 each)")
    assert same.verdict() == (False, "as good: 12-core round robin")


def test_agreement_is_of_orders() -> None:
    estimates = [placed(row.placement, row.tasks, 1 / row.value, metric="estimate_s") for row in ROWS if not row.error]
    assert agreement([*ROWS, *estimates]) == (-1.0, 2)
    assert agreement(ROWS) == (0.0, 0)


def test_speed_up_counts_the_fewest_tasks_as_ideal() -> None:
    assert speedup({16: 10.0, 32: 8.0}) == {16: 16.0, 32: 20.0}


def test_what_a_placement_costs_is_told_where_all_were_run() -> None:
    lines = {"rr:1": {16: 10.0, 32: 8.0}, "rr:12": {16: 15.0}}
    assert behind(lines) == {"rr:1": {16: 0.0}, "rr:12": {16: 50.0}}


def test_the_page_is_whole_and_escapes_what_others_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(ROWS, tmp_path / "results.csv")
    out = tmp_path / "out"
    assert main(["report", str(tmp_path / "results.csv"), "--out", str(out), "--title", "A & B"]) == 0
    page = (out / "report.html").read_text()
    assert "A &amp; B" in page
    assert "&lt;it&gt; died" in page
    assert "<it>" not in page
    # Nothing is fetched from elsewhere.
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "data:image/svg+xml" in page
    assert main(["report", str(tmp_path / "none.csv"), "--out", str(out)]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_figures_are_saved_in_both_formats_with_units_on_their_axes(tmp_path: Path) -> None:
    (drawn,) = draw(ROWS, tmp_path)
    assert drawn.png.stat().st_size > 5000
    assert drawn.flaws == ()
    text = drawn.svg.read_text()
    for label in ("time (s)", "tasks", "speed-up", "1-core round robin", "12-core round robin"):
        assert label in text


def test_scenarios_of_remote_gpus_are_drawn(tmp_path: Path) -> None:
    def row(client: str, server: str, metric: str, unit: str, value: float) -> Row:
        return Row("measured", "md", metric, unit, value, device="gpu", client=client, server=server, network="gbe")

    rows = [
        row(client, server, metric, unit, value)
        for client, server in (("arm", "xeon"), ("xeon", "xeon"), ("xeon", "local"))
        for metric, unit, value in (("seconds", "s", 3.0), ("client_power", "W", 10.0), ("client_energy", "J", 30.0))
    ]
    (drawn,) = draw(rows, tmp_path)
    text = drawn.svg.read_text()
    for label in ("average power (W)", "energy (J)", "own GPU"):
        assert label in text


def test_panels_that_touch_are_told(tmp_path: Path) -> None:
    with style.figure(2) as (made, (left, right)):
        made.set_layout_engine("none")
        right.set_position(left.get_position())
        assert style.save(made, tmp_path, "x", "X", "").flaws == ("panel 1 and panel 2 touch",)


#: Tells what a browser made of the page, in an attribute.
PROBE = """<script>
const errors = [];
addEventListener("error", event => errors.push(String(event.message || event.target.src)), true);
addEventListener("load", () => {
  const images = [...document.images];
  const first = images[0].getBoundingClientRect();
  document.body.dataset.seen = JSON.stringify({
    errors, images: images.length, empty: images.filter(image => !image.naturalWidth).length,
    bottom: first.bottom, height: innerHeight, open: document.querySelectorAll("details[open]").length,
    wide: document.documentElement.scrollWidth - innerWidth,
  });
});
</script>"""


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page that `make report` makes of the committed results."""
    recipe = (ROOT / "Makefile").read_text().partition("\nreport:")[2].partition("\n\n")[0]
    patterns = re.findall(r"bench/results/\S+", recipe)
    files = [str(file) for pattern in patterns for file in sorted(ROOT.glob(pattern))]
    assert len(files) > 30
    out = tmp_path_factory.mktemp("report")
    assert main(["report", "--title", "Towline: committed results", "--out", str(out), *files]) == 0
    return out / "report.html"


def test_committed_results_have_no_flawed_figure(committed: Path) -> None:
    rows = read(committed.parent / "results.csv")
    drawn = list(draw(rows, committed.parent / "again"))
    assert {"overview", "energy", "links", "networks", "fig05-himeno-gcc", "fig14-stmv"} <= {one.name for one in drawn}
    assert [(one.name, one.flaws) for one in drawn if one.flaws] == []


def test_a_browser_shows_answers_and_first_figure_at_once(committed: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("there is no Chromium")
    page = committed.with_name("probed.html")
    page.write_text(committed.read_text().replace("<title>", f"{PROBE}<title>", 1))
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,720"]
    profile = f"--user-data-dir={committed.parent / 'profile'}"
    said = subprocess.run(
        [*command, profile, "--virtual-time-budget=10000", "--dump-dom", page.as_uri()],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    found = re.search(r'data-seen="([^"]*)"', said)
    assert found, said[-2000:]
    seen = json.loads(found[1].replace("&quot;", '"'))
    assert seen["errors"] == []
    assert seen["images"] > 30
    assert (seen["empty"], seen["open"]) == (0, 0)
    assert seen["bottom"] <= seen["height"]
    assert seen["wide"] <= 0
