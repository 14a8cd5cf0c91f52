import pytest

from towline_bench import BenchError
from towline_bench.programs import ADAPTERS, adapter, pattern

OUTPUTS = {
    "npb": (
        " CG Benchmark Completed.\n Class = S\n Time in seconds =                     0.05\n"
        " Mop/s total     =                  1293.68\n Verification    =               SUCCESSFUL\n",
        {"seconds": 0.05, "mflops": 1293.68},
    ),
    "himeno": (
        "cpu : 5.25 sec.\nLoop executed for 20 times\nMFLOPS measured : 12.5\n",
        {"mflops": 12.5, "seconds": 5.25},
    ),
    "towline": (
        '{"workload":"is","ranks":1,"seconds":0.004724,"mkeys_per_s":138.739,"check":"pass","max_error":0}\n',
        {"seconds": 0.004724, "mkeys": 138.739},
    ),
    "namd": (
        "Info: Benchmark time: 16 CPUs 0.060 s/step 0.73 days/ns 300 MB memory\n"
        "Info: Benchmark time: 16 CPUs 0.064 s/step 0.75 days/ns 300 MB memory\nWallClock: 33.5  CPUTime: 33.1\n",
        {"seconds_per_step": 0.062, "seconds": 33.5},
    ),
    "lammps": (
        "Loop time of 1.25 on 4 procs for 100 steps with 32000 atoms\n"
        "Performance: 34560.0 tau/day, 80.5 timesteps/s\nTotal wall time: 0:00:01\n",
        {"seconds": 1.25, "steps_per_second": 80.5},
    ),
    "gromacs": (
        "               Core t (s)   Wall t (s)        (%)\n       Time:       40.5       10.25      395.1\n"
        "                 (ns/day)    (hour/ns)\nPerformance:       12.345        1.944\n",
        {"seconds": 10.25, "ns_per_day": 12.345},
    ),
    "time": ("real 1.5\nuser 1.0\nsys 0.0\n", {"seconds": 1.5}),
}


def test_every_adapter_is_tried() -> None:
    assert set(OUTPUTS) == set(ADAPTERS)


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_adapter_reads_what_its_program_prints(name: str) -> None:
    output, expected = OUTPUTS[name]
    found = {metric: value for metric, (value, _) in adapter(name).read(output).items()}
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_without_a_result_is_an_error(name: str) -> None:
    with pytest.raises(BenchError, match="output has no"):
        adapter(name).read("Segmentation fault\n")


def test_a_wrong_result_is_no_result() -> None:
    failed = OUTPUTS["npb"][0].replace("SUCCESSFUL", "UNSUCCESSFUL")
    with pytest.raises(BenchError, match="did not pass"):
        adapter("npb").read(failed)
    failed = OUTPUTS["towline"][0].replace('"pass"', '"fail"')
    with pytest.raises(BenchError, match="did not pass"):
        adapter("towline").read(failed)


def test_a_pattern_needs_a_number_and_must_compile() -> None:
    assert pattern("x", "s", "took # ms", factor=1e-3).read("took 1.5e3 ms, took 20 ms") == pytest.approx(0.02)
    with pytest.raises(BenchError, match="no #"):
        pattern("x", "s", "took ms")
    with pytest.raises(BenchError, match="wrong"):
        pattern("x", "s", "(#")
    with pytest.raises(BenchError, match="there are npb"):
        adapter("nbp")
