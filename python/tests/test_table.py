import json
import math
from pathlib import Path

import pytest

from towline_bench import BenchError
from towline_bench.table import Row, merged, read, write_csv, write_parquet

HEADING = "network\tprogram\ttasks\tplacement\tvaried\tseconds\tmflops\testimate_s\terror\n"
ROWS = [
    Row("measured", "cg", "seconds", "s", 1.5, least=1.25, most=2.0, runs=3, tasks=16, placement="rr:1", device="cpu"),
    Row("measured", "cg", "seconds", "s", math.inf, placement='with "quotes", and commas', error="it\ndied"),
]


def test_a_table_reads_back_as_it_was(tmp_path: Path) -> None:
    write_csv(ROWS, tmp_path / "results.csv")
    assert read(tmp_path / "results.csv") == ROWS


def test_parquet_has_the_same_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_parquet(ROWS, tmp_path / "results.parquet")
    table = parquet.read_table(tmp_path / "results.parquet")
    assert table.num_rows == 2
    assert table.column("value").to_pylist() == [1.5, math.inf]
    assert table.column("least").to_pylist() == [1.25, None]


def test_the_study_s_table_is_read_without_varied_assumptions(tmp_path: Path) -> None:
    path = tmp_path / "study.tsv"
    path.write_text(
        HEADING
        + "study-qdr\thimeno-intel\t16\trr:12\t\t52.5\t100\t51\t\n"
        + "study-qdr\tcg\t16\trr:1\tcg-speed x0.7\t9\t\t9\t\n"
        + "study-qdr\tstmv-gpu\t16\trr:2\t\t\t\t8\tthe simulator failed\n"
    )
    rows = read(path)
    assert [(row.program, row.compiler, row.device, row.metric, row.value) for row in rows[:3]] == [
        ("himeno", "icx", "cpu", "seconds", 52.5),
        ("himeno", "icx", "cpu", "estimate_s", 51),
        ("himeno", "icx", "cpu", "mflops", 100),
    ]
    failed = rows[3]
    assert (failed.program, failed.device, failed.error) == ("stmv", "gpu", "the simulator failed")
    assert math.isnan(failed.value)
    assert all(row.program != "cg" for row in rows)


def test_towline_s_own_figures_become_rows(tmp_path: Path) -> None:
    document = {
        "schema": 1,
        "kind": "opencl",
        "link": {"bits_per_s": 1e9, "delay_us": 100},
        "machine": {"cpu": "X", "gpus": ["G"]},
        "figures": [
            {
                "id": "bandwidth.write.64MiB",
                "unit": "GB/s",
                "legs": {"remote": {"median": 2.5, "min": 2, "max": 3, "n": 9}},
                "ratios": {"remote": {"median": 0.5, "min": 0.4, "max": 0.6, "n": 9}},
            }
        ],
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    value, ratio = read(path)
    assert (value.value, value.unit, value.size, value.network) == (2.5, "GB/s", 64 << 20, "1 Gbit/s, 100 us")
    assert (ratio.metric, ratio.value, ratio.least, ratio.server) == ("ratio", 0.5, 0.4, "G")


def test_kernels_in_software_become_rows_by_tier(tmp_path: Path) -> None:
    kernel = {"name": "stencil", "interpreter": 400.0, "compiled": 4300.5, "bar": 4470.0}
    document = {"schema": 1, "kind": "soft", "machine": {"cpu": "some processor"}, "kernels": [kernel]}
    (tmp_path / "soft.json").write_text(json.dumps(document), encoding="utf-8")
    rows = read(tmp_path / "soft.json")
    assert [(row.source, row.program, row.device, row.value, row.unit) for row in rows] == [
        ("soft", "stencil", "interpreter", 400.0, "M/s"),
        ("soft", "stencil", "compiled", 4300.5, "M/s"),
    ]


def test_an_energy_report_becomes_rows_without_what_is_unknown(tmp_path: Path) -> None:
    def side(value: float | None) -> dict[str, object]:
        return {"value": value, "partial": False}

    sides = {"client": side(50.0), "server": side(None), "total": side(None)}
    document = {
        "schema": 1,
        "kind": "energy",
        "machine": {"cpu": "X"},
        "command": ["run", "./md"],
        "outcome": {"time_s": 2.0, "power_w": sides, "energy_j": sides},
        "idle_w": {"client": side(10.0), "server": side(None)},
    }
    path = tmp_path / "energy.json"
    path.write_text(json.dumps(document))
    assert {row.metric: row.value for row in read(path)} == {
        "seconds": 2.0,
        "client_power": 50.0,
        "client_energy": 50.0,
        "client_idle": 10.0,
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{"),
        ("a.json", "[]"),
        ("a.json", '{"kind": "opencl", "schema": 1}'),
        ("a.json", '{"kind": "opencl", "schema": 2, "figures": []}'),
        ("a.tsv", "some\tthing\n"),
        ("a.tsv", HEADING + "study-qdr\tft\t16\n"),
        ("a.csv", "some,thing\n"),
        ("a.jsonl", "{}\n{}\n"),
        ("a.txt", ""),
    ],
)
def test_files_that_are_no_results_are_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BenchError, match=name.replace(".", r"\.")):
        read(path)


def test_rows_that_come_twice_count_once() -> None:
    assert merged([ROWS[:1], ROWS[:1]]) == ROWS[:1]
