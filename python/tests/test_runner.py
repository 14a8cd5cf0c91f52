import io
import json
import time
from pathlib import Path

import pytest

from towline_bench import BenchError
from towline_bench.launch import Figures, energy, execute, simulated
from towline_bench.runner import read_log, run_suite
from towline_bench.suite import Point, Suite, read

LOCAL = """
name = "local"
launcher = "local"
repeat = 3
clusters = { here = "preset:two-leaves" }
[sweep]
tasks = [1, 2]
placements = ["block"]
[[programs]]
name = "ok"
command = ["sh", "-c", "echo real 1.5"]
adapter = "time"
[[programs]]
name = "broken"
command = ["sh", "-c", "echo no idea >&2; exit 3"]
adapter = "time"
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    path = tmp_path / "suite.toml"
    path.write_text(LOCAL)
    return read(path)


def is_alive(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_outcomes_are_kept_and_failures_said(suite: Suite, tmp_path: Path) -> None:
    progress = io.StringIO()
    outcomes = run_suite(suite, tmp_path / "log.jsonl", progress=progress)
    assert [(outcome.point.program, bool(outcome.error)) for outcome in outcomes] == [
        ("ok", False),
        ("broken", True),
        ("ok", False),
        ("broken", True),
    ]
    row = next(outcomes[0].rows())
    assert (row.value, row.runs, row.least, row.tasks) == (1.5, 3, 1.5, 1)
    assert "status 3" in outcomes[1].error
    assert "no idea" in outcomes[1].error
    assert progress.getvalue().count("\n") == 4


def test_a_second_run_goes_on_where_the_first_stopped(suite: Suite, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    ran: list[str] = []

    def count(_: Suite, point: Point, __: Path) -> Figures:
        ran.append(point.program)
        if point.program == "broken":
            raise BenchError("still broken")
        return {"seconds": (1.0, "s")}

    run_suite(suite, log, progress=io.StringIO(), run_point=count)
    first = len(ran)
    # As after a crash: the last outcome is cut in the middle of its line.
    text = log.read_text()
    log.write_text(text[: len(text) - 30])
    ran.clear()
    again = run_suite(suite, log, progress=io.StringIO(), run_point=count)
    assert (first, ran) == (3 * 2 + 2, ["broken"])
    assert len(again) == 4
    ran.clear()
    run_suite(suite, log, again=True, progress=io.StringIO(), run_point=count)
    assert ran == ["broken", "broken"]
    assert len(read_log(log)) == 4


def test_a_log_that_is_damaged_before_its_end_is_refused(suite: Suite, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    run_suite(suite, log, progress=io.StringIO())
    log.write_text("{}\n" + log.read_text())
    with pytest.raises(BenchError, match="line 1"):
        read_log(log)


def test_a_command_that_runs_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="longer than"):
        execute(["sh", "-c", "sleep 1000 & echo $! > child; wait"], 0.5, tmp_path)
    child = int((tmp_path / "child").read_text())
    # It was told; on a busy machine it takes a while to die.
    for _ in range(1000):
        if not is_alive(child):
            break
        time.sleep(0.02)
    assert not is_alive(child)
    with pytest.raises(BenchError, match="cannot start"):
        execute(["/nonexistent/program"], 1, tmp_path)


def test_the_simulator_s_table_is_read() -> None:
    output = (
        "cg on study-qdr, 64 ranks\n\nPLACEMENT     SIMULATED   AN ITERATION     ESTIMATE\n"
        "rr:12          47.715 s     636.194 ms     47.829 s\nrr:1          912.500 ms     12.000 us      1.000 s\n"
    )
    assert simulated(output, "rr:1") == {"seconds": (0.9125, "s"), "estimate_s": (1.0, "s")}
    with pytest.raises(BenchError, match="rr:2"):
        simulated(output, "rr:2")


def test_an_energy_report_without_outcome_is_an_error() -> None:
    with pytest.raises(BenchError, match="no outcome"):
        energy(json.dumps({"outcome": None}))
    with pytest.raises(BenchError, match="no outcome"):
        energy("")


FAKE = """#!/bin/sh
# Writes what `towline bench` writes, and lines for people around it.
echo "measuring {not JSON}"
what=$2
while [ "$1" != --json ]; do shift; done
side='{"value": 4.0, "partial": false}'
sides="{\\"client\\": $side, \\"server\\": $side, \\"total\\": $side}"
case $what in
net) echo '{"figures": [{"id": "net.0.round_trip", "unit": "us", "legs": {"tcp": {"median": 20.5}}}]}' >"$2" ;;
energy) echo "{\\"outcome\\": {\\"time_s\\": 2.0, \\"power_w\\": $sides, \\"energy_j\\": $sides}}" >"$2" ;;
esac
echo "done"
"""

METERED = """
name = "metered"
launcher = "local"
towline = "{towline}"
[[programs]]
name = "md"
command = ["./md"]
adapter = "lammps"
[[clients]]
name = "here"
power = ["rapl"]
[[servers]]
name = "there"
power = ["csv:it's.csv"]
address = { gbe = "127.0.0.1:1" }
"""


def test_remote_gpus_are_metered_and_their_links_measured(tmp_path: Path) -> None:
    towline = tmp_path / "towline"
    towline.write_text(FAKE.replace("\\\\", "\\"))
    towline.chmod(0o755)
    path = tmp_path / "suite.toml"
    path.write_text(METERED.replace("{towline}", str(towline)))
    remote, link = run_suite(read(path), tmp_path / "log.jsonl", progress=io.StringIO())
    assert (remote.error, link.error) == ("", "")
    assert remote.figures["seconds"] == [2.0]
    assert remote.figures["server_energy"] == [4.0]
    assert (link.figures, link.units) == ({"net.round_trip": [20.5]}, {"net.round_trip": "us"})
