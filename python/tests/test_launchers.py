"""Whole suites with the real programs: what `make test` has built and installed, else skipped."""

import io
import os
import shutil
import socket
from pathlib import Path

import pytest

from towline_bench.runner import Outcome, run_suite
from towline_bench.suite import read

ROOT = Path(__file__).resolve().parents[2]
TOWLINE = Path(os.environ.get("TOWLINE_BIN_DIR", ROOT / "target/release")) / "towline"
SIMULATOR = ROOT / "sim/towline-sim"

pytestmark = pytest.mark.skipif(not TOWLINE.exists(), reason=f"{TOWLINE} is not built")


def run(folder: Path, text: str) -> list[Outcome]:
    path = folder / "suite.toml"
    path.write_text(f'name = "test"\ntowline = "{TOWLINE}"\nlimit_s = 120\n{text}')
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
