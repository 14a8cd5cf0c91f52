//! `towline trace` on MPI programs whose messages are known, under Open MPI and MPICH, from C and Fortran.
//!
//! Needs both MPIs, a Fortran compiler and SimGrid, which `scripts/setup test` installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

const OPENMPI: Mpi = Mpi {
    suffix: "openmpi",
    launcher: "mpirun.openmpi",
};
const MPICH: Mpi = Mpi {
    suffix: "mpich",
    launcher: "mpirun.mpich",
};

struct Mpi {
    suffix: &'static str,
    launcher: &'static str,
}

impl Mpi {
    /// Compiles one of the programs of pmpi/tests.
    fn program(&self, source: &str) -> PathBuf {
        let compiler = if source.ends_with(".f90") {
            "mpif90"
        } else {
            "mpicc"
        };
        let source = root().join("pmpi/tests").join(source);
        let stem = source.file_stem().unwrap().to_str().unwrap();
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "{stem}.{}.{}",
            self.suffix,
            next_number()
        ));
        let mut command = Command::new(format!("{compiler}.{}", self.suffix));
        // The same entries of MPI are called with arguments of several types.
        if compiler == "mpif90" {
            command.arg("-fallow-argument-mismatch");
        }
        succeed(command.args(["-O1", "-w", "-o"]).arg(&program).arg(source));
        program
    }

    /// Runs a program under `towline trace` into `folder`.
    fn trace(
        &self,
        folder: &Path,
        options: &[&str],
        ranks: u32,
        program: &Path,
        arguments: &[&str],
    ) -> Output {
        self.tracing(folder, options, ranks, program, arguments)
            .output()
            .unwrap()
    }

    /// The same, not started yet.
    fn tracing(
        &self,
        folder: &Path,
        options: &[&str],
        ranks: u32,
        program: &Path,
        arguments: &[&str],
    ) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["120", env!("CARGO_BIN_EXE_towline"), "trace", "--out"])
            .arg(folder)
            .args(options)
            .args(["--", self.launcher, "-np", &ranks.to_string()])
            .arg(program)
            .args(arguments)
            .env("TOWLINE_PMPI", libraries())
            // More ranks than processors, also as root in a container.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            .env("OMPI_MCA_mpi_yield_when_idle", "1")
            .env("OMPI_MCA_btl", "self,vader,tcp")
            .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
            .env("OMPI_MCA_hwloc_base_binding_policy", "none")
            .stdin(Stdio::null());
        command
    }
}

/// Tests run at the same time and may compile the same program.
fn next_number() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn succeed(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", err(&output));
    output
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Builds the tracing libraries once.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pmpi");
        let build = format!("BUILD={}", folder.display());
        succeed(
            Command::new("make")
                .env_remove("MAKEFLAGS")
                .args(["-C", "pmpi", &build, "openmpi", "mpich"])
                .current_dir(root()),
        );
        folder
    })
}

fn new_folder() -> (TempDir, PathBuf) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("trace");
    (temporary, folder)
}

fn read(path: PathBuf) -> Value {
    serde_json::from_slice(
        &std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    )
    .unwrap()
}

/// What pmpi/tests/mixture.* sends, by its own comments.
fn expected_point_to_point() -> Value {
    let mut pairs = Vec::new();
    for rank in 0..4u32 {
        for to in 0..4u32 {
            pairs.push(match (to + 4 - rank) % 4 {
                0 => json!([rank, to, 1, 5]),
                1 => json!([rank, to, 2, 100 + 64]),
                2 => json!([rank, to, 2, 40 + 1000]),
                _ => json!([rank, to, 3, 3 * 7]),
            });
        }
    }
    Value::Array(pairs)
}

fn check_mixture(folder: &Path) {
    let matrix = read(folder.join("matrix.json"));
    assert_eq!(matrix["format"], "towline-matrix");
    assert_eq!(matrix["ranks"], 4);
    assert_eq!(matrix["complete"], true);
    assert_eq!(matrix["point_to_point"], expected_point_to_point());
    assert_eq!(matrix["one_sided"], json!([]));
    let world = &matrix["communicators"][0];
    assert_eq!(world["name"], "MPI_COMM_WORLD");
    // To each of the other 3: 4 bytes of alltoall; alltoallv sends rank + other bytes, also to itself.
    assert_eq!(
        world["collectives"],
        json!([
            {"call": "barrier", "root": null, "calls": 2, "bytes": 0},
            {"call": "bcast", "root": 1, "calls": 1, "bytes": 16},
            {"call": "allreduce", "root": null, "calls": 3, "bytes": 4 * 3 * 8},
            {"call": "gather", "root": 0, "calls": 1, "bytes": 4 * 12},
            {"call": "alltoall", "root": null, "calls": 1, "bytes": 4 * 4 * 4},
            {"call": "alltoallv", "root": null, "calls": 1, "bytes": 2 * 4 * 6},
        ])
    );
    let halves: Vec<_> = matrix["communicators"].as_array().unwrap()[1..]
        .iter()
        .map(|half| (half["ranks"].clone(), half["collectives"].clone()))
        .collect();
    let allreduce = json!([{"call": "allreduce", "root": null, "calls": 1, "bytes": 2 * 24}]);
    assert_eq!(
        halves,
        [
            (json!([0, 2]), allreduce.clone()),
            (json!([1, 3]), allreduce)
        ]
    );
    // From 0 to 1: 2 barriers, nothing of the broadcast, 3 allreduces, alltoall, alltoallv.
    let from_0_to_1 = matrix["collective"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pair| pair[0] == 0 && pair[1] == 1)
        .unwrap();
    assert_eq!(from_0_to_1, &json!([0, 1, 2 + 3 + 1 + 1, 3 * 8 + 4 + 1]));

    let trace = read(folder.join("trace.json"));
    assert_eq!(trace["exit_status"], 0);
    assert_eq!(trace["missing"], json!([]));
    assert_eq!(trace["replay"]["reasons"], json!([]));
    assert_eq!(trace["replay"]["usable"], true);
    assert_eq!(trace["processes"].as_array().unwrap().len(), 4);
}

/// Replays a trace on a machine of 4 hosts and answers the simulated seconds. A replay that blocks fails.
fn simulated_seconds(folder: &Path) -> f64 {
    let platform = folder.join("platform.xml");
    let hosts = folder.join("hosts");
    std::fs::write(
        &platform,
        r#"<?xml version='1.0'?><!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd"><platform version="4.1">
        <cluster id="c" prefix="n" suffix="" radical="0-3" speed="1Gf" bw="1GBps" lat="10us"/></platform>"#,
    )
    .unwrap();
    std::fs::write(&hosts, "n0\nn1\nn2\nn3\n").unwrap();
    let output = succeed(
        Command::new("timeout")
            .args(["60", "smpirun"])
            .args(["--cfg=smpi/display-timing:yes", "-np", "4", "-platform"])
            .arg(&platform)
            .arg("-hostfile")
            .arg(&hosts)
            .args(["-replay", "replay.txt"])
            .current_dir(folder),
    );
    let text = err(&output);
    let (_, seconds) = text
        .split_once("Simulated time: ")
        .unwrap_or_else(|| panic!("{text}"));
    seconds.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn matrix_of_a_c_program_on_open_mpi_is_what_it_sends() {
    let (_temporary, folder) = new_folder();
    let output = OPENMPI.trace(&folder, &[], 4, &OPENMPI.program("mixture.c"), &[]);
    assert!(output.status.success(), "{}", err(&output));
    check_mixture(&folder);
}

#[test]
fn matrix_of_a_fortran_program_on_open_mpi_is_what_it_sends() {
    let (_temporary, folder) = new_folder();
    let output = OPENMPI.trace(
        &folder,
        &[],
        4,
        &OPENMPI.program("mixture_fortran.f90"),
        &[],
    );
    assert!(output.status.success(), "{}", err(&output));
    check_mixture(&folder);
}

/// Reads what Open MPI's monitoring says of each rank: `E from to bytes "bytes" messages ...` is the program's own messages.
fn counted_by_open_mpi(folder: &Path) -> Vec<[u64; 4]> {
    let mut pairs = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.starts_with('E')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |place: usize| words[place].parse::<u64>().unwrap();
            pairs.push([number(1), number(2), number(5), number(3)]);
        }
    }
    pairs.sort_unstable();
    pairs
}

#[test]
fn matrix_of_conjugate_gradients_is_what_open_mpi_counts_itself() {
    let (temporary, folder) = new_folder();
    let (programs, counted) = (
        temporary.path().join("programs"),
        temporary.path().join("counted"),
    );
    std::fs::create_dir(&counted).unwrap();
    succeed(
        Command::new("make")
            .env_remove("MAKEFLAGS")
            .args(["-C", "workloads/mpi", "MPICC=mpicc.openmpi"])
            .arg(format!("BUILD={}", programs.display()))
            .arg(programs.join("cg"))
            .current_dir(root()),
    );
    let output = OPENMPI
        .tracing(&folder, &[], 8, &programs.join("cg"), &["--class", "S"])
        .env("OMPI_MCA_pml_monitoring_enable", "2")
        .env("OMPI_MCA_pml_monitoring_enable_output", "3")
        .env("OMPI_MCA_pml_monitoring_filename", counted.join("rank"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let counted = counted_by_open_mpi(&counted);
    assert!(counted.len() > 8, "{counted:?}");
    assert_eq!(
        read(folder.join("matrix.json"))["point_to_point"],
        json!(counted)
    );
}

#[test]
fn matrix_of_a_modern_fortran_program_is_what_it_sends() {
    for mpi in [OPENMPI, MPICH] {
        let (_temporary, folder) = new_folder();
        let program = mpi.program("modern_fortran.f90");
        let output = mpi.trace(&folder, &[], 3, &program, &[]);
        assert!(output.status.success(), "{}", err(&output));
        let matrix = read(folder.join("matrix.json"));
        assert_eq!(
            matrix["point_to_point"],
            json!([[0, 1, 1, 24], [1, 2, 1, 24], [2, 0, 1, 24]])
        );
        assert_eq!(matrix["communicators"][0]["collectives"][0]["bytes"], 72);
    }
}

#[test]
fn waits_and_communicators_of_modern_fortran_are_recorded_and_do_what_they_did() {
    for mpi in [OPENMPI, MPICH] {
        let (_temporary, folder) = new_folder();
        let program = mpi.program("modern_fortran_requests.f90");
        let output = mpi.trace(&folder, &[], 4, &program, &[]);
        assert!(output.status.success(), "{}", err(&output));
        let matrix = read(folder.join("matrix.json"));
        assert_eq!(
            matrix["point_to_point"],
            json!([
                [0, 1, 10, 40],
                [1, 2, 10, 40],
                [2, 3, 10, 40],
                [3, 0, 10, 40]
            ])
        );
        let members: Vec<_> = matrix["communicators"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|communicator| communicator["collectives"] != json!([]))
            .map(|communicator| communicator["ranks"].clone())
            .collect();
        assert_eq!(members, [json!([0, 2]), json!([0, 1, 2, 3]), json!([1, 3])]);
        assert_eq!(read(folder.join("trace.json"))["replay"]["usable"], true);
    }
}

#[test]
fn matrix_of_a_c_program_on_mpich_is_what_it_sends() {
    let (_temporary, folder) = new_folder();
    let output = MPICH.trace(&folder, &[], 4, &MPICH.program("mixture.c"), &[]);
    assert!(output.status.success(), "{}", err(&output));
    check_mixture(&folder);
}

#[test]
fn matrix_of_a_fortran_program_on_mpich_is_what_it_sends() {
    let (_temporary, folder) = new_folder();
    let output = MPICH.trace(&folder, &[], 4, &MPICH.program("mixture_fortran.f90"), &[]);
    assert!(output.status.success(), "{}", err(&output));
    check_mixture(&folder);
}

#[test]
fn replay_runs_through_in_simgrid() {
    let (_temporary, folder) = new_folder();
    let output = OPENMPI.trace(
        &folder,
        &["--flops-per-second", "1000000"],
        4,
        &OPENMPI.program("mixture.c"),
        &[],
    );
    assert!(output.status.success(), "{}", err(&output));
    // Some 20 rounds of messages at 10 us, and little work at this rate.
    let seconds = simulated_seconds(&folder);
    assert!((1e-4..1.0).contains(&seconds), "{seconds}");
    let rank_0 = std::fs::read_to_string(folder.join("replay/rank-0.txt")).unwrap();
    assert!(
        rank_0.starts_with("0 init\n") && rank_0.ends_with("0 finalize\n"),
        "{rank_0}"
    );
    assert!(rank_0.contains("0 bcast 16 1\n"), "{rank_0}");
}

/// A call that sends nothing, at the edge of a grid of ranks, leaves no event, and the time before it goes with the next.
#[test]
fn what_a_rank_computes_stands_where_it_did() {
    for mpi in [OPENMPI, MPICH] {
        let (_temporary, folder) = new_folder();
        let output = mpi.trace(&folder, &[], 3, &mpi.program("edges.c"), &[]);
        assert!(output.status.success(), "{}", err(&output));
        for rank in 0..3 {
            let text = fs::read_to_string(folder.join(format!("replay/rank-{rank}.txt"))).unwrap();
            let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let (mut computed, mut steps) = (0.0, Vec::new());
            for words in lines {
                match words[1] {
                    "compute" => computed += words[2].parse::<f64>().unwrap(),
                    "allreduce" => steps.push(std::mem::take(&mut computed)),
                    _ => {}
                }
            }
            // 20 ms of a processor of 1 Gflop/s; and what the last step leaves is the program's end.
            assert_eq!(steps.len(), 10, "{text}");
            assert!(steps.iter().all(|flops| *flops > 19e6), "{steps:?}");
            assert!(computed < 19e6, "{computed} at the end, after {steps:?}");
        }
    }
}

#[test]
fn a_rank_that_dies_leaves_what_it_did_and_the_rest_is_whole() {
    let (_temporary, folder) = new_folder();
    let output = OPENMPI.trace(&folder, &[], 4, &OPENMPI.program("dies.c"), &[]);
    assert!(!output.status.success());
    let message = err(&output);
    assert!(message.contains("did not reach MPI_Finalize"), "{message}");
    let matrix = read(folder.join("matrix.json"));
    assert_eq!(matrix["complete"], false);
    assert!(matrix["unfinished"].as_array().unwrap().contains(&json!(2)));
    // All ten messages of the rank that was killed are there.
    let pairs = matrix["point_to_point"].as_array().unwrap();
    assert!(pairs.contains(&json!([2, 3, 10, 80])), "{pairs:?}");
    let trace = read(folder.join("trace.json"));
    assert_eq!(trace["replay"]["usable"], false);
    assert!(
        trace["replay"]["reasons"][0]
            .as_str()
            .unwrap()
            .contains("did not finish")
    );
    let killed = std::fs::read_to_string(folder.join("replay/rank-2.txt")).unwrap();
    assert_eq!(killed.matches(" isend 3 ").count(), 10, "{killed}");
}

#[test]
fn one_sided_communication_is_counted_and_not_replayed() {
    let (_temporary, folder) = new_folder();
    let output = OPENMPI.trace(&folder, &[], 2, &OPENMPI.program("one_sided.c"), &[]);
    assert!(output.status.success(), "{}", err(&output));
    let matrix = read(folder.join("matrix.json"));
    assert_eq!(matrix["one_sided"], json!([[0, 1, 1, 24], [1, 0, 1, 16]]));
    let trace = read(folder.join("trace.json"));
    assert_eq!(trace["replay"]["usable"], false);
    assert!(
        trace["replay"]["reasons"][0]
            .as_str()
            .unwrap()
            .contains("one-sided")
    );
}

#[test]
fn beyond_the_limit_events_are_lost_and_the_matrix_is_whole() {
    let (_temporary, folder) = new_folder();
    let output = OPENMPI.trace(
        &folder,
        &["--events-limit", "0"],
        4,
        &OPENMPI.program("mixture.c"),
        &[],
    );
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(
        read(folder.join("matrix.json"))["point_to_point"],
        expected_point_to_point()
    );
    let trace = read(folder.join("trace.json"));
    assert_eq!(trace["replay"]["usable"], false);
    assert!(trace["processes"][0]["events_lost"].as_u64().unwrap() > 20);
    assert!(
        err(&output).contains("limit for events"),
        "{}",
        err(&output)
    );
}

#[test]
fn damaged_files_of_one_rank_are_named_and_the_others_are_used() {
    let (_temporary, folder) = new_folder();
    let output = MPICH.trace(&folder, &[], 4, &MPICH.program("mixture.c"), &[]);
    assert!(output.status.success(), "{}", err(&output));
    let counts = folder.join("raw/rank-3.counts");
    let bytes = std::fs::read(&counts).unwrap();
    std::fs::write(&counts, &bytes[..5000]).unwrap();
    let again = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["trace", "--json", "--collect"])
        .arg(&folder)
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", err(&again));
    let summary: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(summary, read(folder.join("trace.json")));
    assert!(
        err(&again).contains("rank-3.counts is damaged"),
        "{}",
        err(&again)
    );
    let matrix = read(folder.join("matrix.json"));
    assert_eq!(matrix["missing"], json!([3]));
    assert!(
        matrix["point_to_point"]
            .as_array()
            .unwrap()
            .contains(&json!([0, 1, 2, 164]))
    );
}

#[test]
fn a_program_without_mpi_is_told_apart_from_one_that_sends_nothing() {
    let (_temporary, folder) = new_folder();
    let output = OPENMPI.trace(&folder, &[], 2, Path::new("/bin/true"), &[]);
    assert!(
        err(&output).contains("nothing was traced"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_program_of_another_mpi_than_was_said_is_ended_and_told() {
    for (wrong, mpi) in [("openmpi", MPICH), ("mpich", OPENMPI)] {
        let (_temporary, folder) = new_folder();
        let program = mpi.program("dies.c");
        // Without a launcher there is one rank, and settings come through the environment.
        let output = Command::new("timeout")
            .args([
                "60",
                env!("CARGO_BIN_EXE_towline"),
                "trace",
                "--mpi",
                wrong,
                "--out",
            ])
            .arg(&folder)
            .arg(&program)
            .env("TOWLINE_PMPI", libraries())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", err(&output));
        let told = format!("--mpi {}", mpi.suffix);
        assert!(err(&output).contains(&told), "{}", err(&output));
    }
}

#[test]
fn a_folder_that_holds_something_is_refused_before_the_program_runs() {
    let (_temporary, folder) = new_folder();
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("results"), "").unwrap();
    let output = OPENMPI.trace(&folder, &[], 2, Path::new("/bin/true"), &[]);
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).contains("is not empty"), "{}", err(&output));
}
