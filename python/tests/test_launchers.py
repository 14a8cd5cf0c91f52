"""Whole suites with the real programs: what `make test` has built and installed, else skipped."""

import io
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import Far
from towline_bench.runner import Outcome, run_suite
from towline_bench.suite import read

ROOT = Path(__file__).resolve().parents[2]
TOWLINE = Path(os.environ.get("TOWLINE_BIN_DIR", ROOT / "target/release")) / "towline"
SIMULATOR = ROOT / "sim/towline-sim"

pytestmark = pytest.mark.skipif(not TOWLINE.exists(), reason=f"{TOWLINE} is not built")


def run(folder: Path, text: str, limit_s: float = 120) -> list[Outcome]:
    path = folder / "suite.toml"
    path.write_text(f'name = "test"\ntowline = "{TOWLINE}"\nlimit_s = {limit_s}\n{text}')
    return run_suite(read(path), folder / "log.jsonl", progress=io.StringIO())


@pytest.mark.skipif(not SIMULATOR.exists(), reason="sim/towline-sim is not built")
def test_a_sweep_is_simulated_over_networks_and_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOWLINE_SIM", str(SIMULATOR))
    outcomes = run(
        tmp_path,
        """
        launcher = "simulate"
        clusters = { qdr = "preset:study-qdr", gbe = "preset:study-gbe" }
        sweep = { tasks = [16], placements = ["rr:1", "rr:12"] }
        [[programs]]
        name = "md"
        simulate = "stmv"
        devices = { cpu = [], gpu = [] }
        """,
    )
    assert [outcome.error for outcome in outcomes] == [""] * 8
    seconds = {outcome.point.key(): outcome.figures["seconds"][0] for outcome in outcomes}
    assert seconds["md|16|rr:1||gpu|qdr||"] < seconds["md|16|rr:1||cpu|qdr||"]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_a_program_is_placed_and_started_by_mpirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    cores = len(os.sched_getaffinity(0))
    (tmp_path / "here.toml").write_text(
        'name = "here"\n[network]\nname = "none"\nbandwidth = "1 GB/s"\nlatency = "50 us"\n'
        f'[[nodes]]\nnames = "{socket.gethostname()}"\ncores = {cores}\n'
    )
    outcomes = run(
        tmp_path,
        f"""
        launcher = "mpirun"
        repeat = 2
        clusters = {{ here = "here.toml" }}
        sweep = {{ tasks = [{cores}, {cores + 1}], placements = ["block"] }}
        [[programs]]
        name = "ranks"
        command = ["sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"]
        result = [{{ metric = "size", pattern = "^rank \\\\d+ of #" }}]
        """,
    )
    placed, refused = outcomes
    assert (placed.error, placed.figures) == ("", {"size": [cores, cores]})
    assert "cores" in refused.error


NODES = """
name = "nodes"
[network]
name = "none"
bandwidth = "1 GB/s"
latency = "50 us"
[[nodes]]
names = "n[0-3]"
cores = 2
"""


def holds_soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_a_program_is_placed_and_started_by_slurm(slurm: Path) -> None:
    (slurm / "nodes.toml").write_text(NODES)
    outcomes = run(
        slurm,
        """
        launcher = "slurm"
        repeat = 2
        clusters = { here = "nodes.toml" }
        sweep = { tasks = [3], placements = ["block", "cyclic"] }
        [[programs]]
        name = "ranks"
        command = ["sh", "-c", "echo task $SLURM_PROCID of $SLURM_NTASKS is on $(hostname) of a job"]
        result = [
          { metric = "size", pattern = "^task 2 of #" },
          { metric = "first", pattern = "^task 0 .* on n# " },
          { metric = "second", pattern = "^task 1 .* on n# " },
          { metric = "third", pattern = "^task 2 .* on n# " },
        ]
        """,
    )
    block, cyclic = outcomes
    assert (block.error, cyclic.error) == ("", "")
    assert block.figures == {"size": [3, 3], "first": [0, 0], "second": [0, 0], "third": [1, 1]}
    assert cyclic.figures == {"size": [3, 3], "first": [0, 0], "second": [1, 1], "third": [2, 2]}
    assert list(slurm.glob("towline-bench-*")) == []


def test_a_job_of_slurm_that_takes_too_long_is_cancelled(slurm: Path) -> None:
    (slurm / "nodes.toml").write_text(NODES)
    (outcome,) = run(
        slurm,
        """
        launcher = "slurm"
        clusters = { here = "nodes.toml" }
        sweep = { tasks = [2], placements = ["block"] }
        [[programs]]
        name = "endless"
        command = ["sleep", "1000"]
        adapter = "time"
        """,
        limit_s=15,
    )
    assert "longer than 15 s" in outcome.error
    queue = ["timeout", "20", "squeue", "--noheader"]
    assert holds_soon(lambda: subprocess.run(queue, capture_output=True, text=True, check=True).stdout == "")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Serve a device that computes nothing, and answer where."""
    ready = tmp_path / "ready"
    arguments = ["--backend", "null", "--cuda", "off", "--listen", "127.0.0.1:0", "--ready-file", str(ready)]
    with (tmp_path / "server.log").open("wb") as log:
        command = ["setpriv", "--pdeathsig", "TERM", str(TOWLINE), "serve", *arguments]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        assert holds_soon(lambda: ready.exists() and ready.read_text() != "")
        yield ready.read_text().strip()
    finally:
        child.terminate()
        child.wait()


def test_clients_elsewhere_are_reached_by_ssh(far: Far, server: str, tmp_path: Path) -> None:
    # Quotes and blanks must come through a second shell.
    program = f"""test "$(hostname)" = '{far.name}' && echo "real 1.5  of  $TOWLINE_SERVERS\""""
    suite = f"""
        launcher = "local"
        [[programs]]
        name = "timed"
        command = ["sh", "-c", '''{program}''']
        result = [{{ metric = "seconds", unit = "s", pattern = "^real #  of  {server}$" }}]
        [[clients]]
        name = "elsewhere"
        host = "{far.host}"
        [[servers]]
        name = "null"
        address = {{ loopback = "{server}" }}
        """
    timed, link = run(tmp_path, suite)
    assert (timed.error, timed.figures) == ("", {"seconds": [1.5]})
    assert link.error == ""
    assert link.figures["net.round_trip"][0] > 0


def test_power_is_read_on_a_client_elsewhere(far: Far, server: str, tmp_path: Path) -> None:
    (outcome, _) = run(
        tmp_path,
        f"""
        launcher = "local"
        arguments = ["--warm-up", "0", "--repetitions", "3", "--samples", "1", "--idle", "1"]
        [[programs]]
        name = "rest"
        command = ["sleep", "0.5"]
        adapter = "time"
        [[clients]]
        name = "elsewhere"
        host = "{far.host}"
        power = ["command:test $(hostname) = {far.name} && echo 50"]
        [[servers]]
        name = "null"
        power = ["command:echo 100"]
        address = {{ loopback = "{server}" }}
        """,
    )
    assert outcome.error == ""
    assert outcome.figures["client_power"] == [50]
    assert outcome.figures["server_power"] == [100]
    assert outcome.figures["client_energy"] == [pytest.approx(50 * outcome.figures["seconds"][0], rel=0.05)]


def test_what_runs_too_long_elsewhere_is_ended_there(far: Far, server: str, tmp_path: Path) -> None:
    outcome, _ = run(
        tmp_path,
        f"""
        launcher = "local"
        [[programs]]
        name = "endless"
        command = ["sh", "-c", "echo $$ >{tmp_path}/process; exec sleep 1000"]
        adapter = "time"
        [[clients]]
        name = "elsewhere"
        host = "{far.host}"
        [[servers]]
        name = "null"
        address = {{ loopback = "{server}" }}
        """,
        limit_s=5,
    )
    assert "124" in outcome.error
    process = Path("/proc") / (tmp_path / "process").read_text().strip()
    assert holds_soon(lambda: not process.exists())
