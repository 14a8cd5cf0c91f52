from pathlib import Path

import pytest

from towline_bench import BenchError
from towline_bench.suite import read

SUITE = """
name = "study"
launcher = "simulate"
[clusters]
qdr = "preset:study-qdr"
[sweep]
tasks = [64, 16]
placements = ["rr:1", "rr:12"]
[[programs]]
name = "himeno"
simulate = "himeno"
compilers = ["gcc", "clang"]
[[programs]]
name = "md"
simulate = "stmv"
tasks = [16]
devices = { cpu = [], gpu = ["--gpu"] }
"""

REMOTE = """
name = "remote"
launcher = "local"
[[programs]]
name = "md"
command = "./md --steps 10"
adapter = "lammps"
[[clients]]
name = "xeon"
local = true
[[clients]]
name = "arm"
host = "arm1"
[[servers]]
name = "fermi"
address = { gbe = "10.0.0.1", ib = "10.1.0.1" }
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "suite.toml"
    path.write_text(text)
    return path


def test_points_are_all_combinations_small_ones_first(tmp_path: Path) -> None:
    points = list(read(write(tmp_path, SUITE)).points())
    # Two compilers, two placements and two sizes; of the other two devices, two placements and one size.
    assert len(points) == 8 + 4
    assert [point.tasks for point in points] == sorted(point.tasks for point in points)
    assert len({point.key() for point in points}) == len(points)


def test_remote_gpus_are_client_by_server_by_link_and_the_client_s_own(tmp_path: Path) -> None:
    points = [(point.client, point.server, point.network) for point in read(write(tmp_path, REMOTE)).points()]
    assert points == [
        ("xeon", "local", ""),
        ("xeon", "fermi", "gbe"),
        ("xeon", "fermi", "ib"),
        ("arm", "fermi", "gbe"),
        ("arm", "fermi", "ib"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('launcher = "simulate"', 'launcher = "magic"', "no launcher 'magic'"),
        ('launcher = "simulate"', 'launcher = "mpirun"', "needs a `command`"),
        ('simulate = "stmv"', "", "nothing to be|no `simulate`"),
        ("tasks = [64, 16]", "tasks = [0]", "above 0"),
        ("tasks = [64, 16]", "", "no points"),
        ('name = "md"', 'name = "himeno"', "same name"),
        ('name = "study"', 'name = "study"\nrepeet = 3', "repeet"),
        ('name = "study"', 'name = "study"\nrepeat = 0', "1 to 1000"),
        ('name = "study"', 'name = "study"\nrepeat = "often"', "must be of type int"),
        ('name = "study"', "name = ", "suite.toml"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in SUITE
    with pytest.raises(BenchError, match=complaint):
        read(write(tmp_path, SUITE.replace(old, new)))


def test_a_missing_suite_is_said(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="cannot read"):
        read(tmp_path / "none.toml")
