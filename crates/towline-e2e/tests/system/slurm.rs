//! Programs in jobs of Slurm: a real controller and four nodes' daemons on this machine, whose nodes share one folder and no network name.

#[path = "../../../../tests/slurm/cluster.rs"]
pub(crate) mod cluster;

use std::fs;
use std::path::Path;
use std::time::Duration;

use cluster::Slurm;

use crate::support::{holds_within, opencl_program, towline};

const LIMIT: Duration = Duration::from_secs(60);
/// Has `run` offer devices that need no hardware, and compute nothing.
const NULL: &str = "--serve=--backend --serve=null";

/// A cluster in whose folder the program and its libraries lie; `list` says how many devices it has.
fn cluster() -> Option<Slurm> {
    let slurm = Slurm::start(&["1x4"])?;
    let release = towline();
    let release = release.parent().expect("it lies in a folder");
    let files = ["towline", "libtowline_opencl.so"].map(|name| release.join(name));
    for file in files
        .iter()
        .chain(&[opencl_program("list"), opencl_program("steady")])
    {
        let name = file.file_name().expect("it is a file");
        fs::copy(file, slurm.path("").join(name)).expect("the folder takes it");
    }
    Some(slurm)
}

/// Writes a job's script, in which `run` is `towline slurm run`.
fn script(slurm: &Slurm, text: &str) {
    let folder = slurm.path("");
    let folder = folder.to_str().expect("it is text");
    let head = format!(
        "#!/bin/sh\ncd {folder}\nmkdir -p jobs\nrun() {{ ./towline slurm run --folder jobs \"$@\"; }}\n"
    );
    fs::write(slurm.path("job"), head + text + "\n").expect("the folder takes it");
}

/// Has a job run to its end, and answers what it wrote; its last line is what is left in the folder of jobs.
fn job(slurm: &Slurm, allocation: &str, text: &str) -> Vec<String> {
    script(
        slurm,
        &format!("{text}\necho status $?\necho left $(ls jobs)"),
    );
    let options = format!("--wait --output=job.out {allocation} job");
    let options: Vec<_> = options.split_whitespace().collect();
    slurm.run("sbatch", &options);
    lines(&slurm.path("job.out"))
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[track_caller]
fn expect(lines: &[String], wanted: &[&str]) {
    for line in wanted {
        assert!(
            lines.iter().any(|said| said.contains(line)),
            "no {line:?} in {lines:#?}"
        );
    }
}

#[test]
fn heterogeneous_job_has_its_last_components_devices() {
    let Some(slurm) = cluster() else {
        return;
    };
    // Two nodes without devices and two with: what srun starts has both, on either node.
    let text = format!(
        "run --comment {NULL} -- srun --het-group=0 sh -c 'echo $(hostname) $(./list)'\n\
         scontrol show job $SLURM_JOB_ID | grep -o 'Comment=towline: 4 session(s)'"
    );
    let said = job(&slurm, "-N2 -w n0,n1 : -N2 -w n2,n3", &text);
    let wanted = [
        "n0 status 0, 2 devices",
        "n1 status 0, 2 devices",
        "2 server(s): 4 session(s)",
        "Comment=towline: 4 session(s)",
        "status 0",
    ];
    expect(&said, &wanted);
    assert_eq!(said.last().map(String::as_str), Some("left"), "{said:#?}");
}

#[test]
fn job_of_one_piece_has_servers_on_all_of_its_nodes() {
    let Some(slurm) = cluster() else {
        return;
    };
    let text = format!("run {NULL} -- sh -c './list; exit 7'");
    let said = job(&slurm, "-N3 -w n0,n1,n3", &text);
    expect(
        &said,
        &[
            "status 0, 3 devices",
            "3 server(s): 3 session(s)",
            "status 7",
        ],
    );
    // Faults are told, and nothing starts.
    let said = job(&slurm, "-N1", "run --het-group 1 -- ./list");
    expect(&said, &["the job is not heterogeneous", "status 125"]);
    let said = job(&slurm, "-N1", "run --serve=--no-such-option -- ./list");
    expect(
        &said,
        &[
            "unexpected argument '--no-such-option'",
            "ended before they listened",
            "status 125",
        ],
    );
}

#[test]
fn cancelled_job_leaves_nothing_behind() {
    let Some(slurm) = cluster() else {
        return;
    };
    script(&slurm, "run -- sh -c 'mkfifo pipe; ./steady <>pipe'");
    let submit = ["--parsable", "--output=job.out", "-N1", ":", "-N1", "job"];
    let id = slurm.run("sbatch", &submit);
    let computes = || {
        lines(&slurm.path("job.out"))
            .iter()
            .any(|line| line == "computing")
    };
    assert!(
        holds_within(LIMIT, computes),
        "{:#?}",
        lines(&slurm.path("job.out"))
    );
    slurm.run("scancel", &[id.trim()]);
    let ended = || slurm.run("squeue", &["--noheader"]).trim().is_empty();
    assert!(holds_within(LIMIT, ended));
    let servers = || {
        let all = std::process::Command::new("pgrep")
            .args(["-f", "towline serve.*towline-job-"])
            .output();
        all.is_ok_and(|found| !found.stdout.is_empty())
    };
    assert!(
        holds_within(LIMIT, || !servers()),
        "a server outlives its job"
    );
    // A job that was killed could not remove its folder: the next one does.
    let said = job(&slurm, "-N1", &format!("run {NULL} -- ./list"));
    expect(&said, &["status 0, 1 devices"]);
    assert_eq!(said.last().map(String::as_str), Some("left"), "{said:#?}");
}

#[test]
fn program_whose_server_is_killed_is_told() {
    let Some(slurm) = cluster() else {
        return;
    };
    let text = "run --serve=--grace --serve=1 -- sh -c 'mkfifo pipe; ./steady <>pipe & while ! grep -q computing job.out; do sleep 0.1; done; scancel --signal=KILL $SLURM_JOB_ID.0; wait $!'";
    let said = job(&slurm, "-N1 -w n0", text);
    expect(
        &said,
        &["lost the session", "servers ended before the program did"],
    );
    let status = said.iter().find(|line| line.starts_with("status "));
    assert!(status.is_some_and(|line| line != "status 0"), "{said:#?}");
    assert_eq!(said.last().map(String::as_str), Some("left"), "{said:#?}");
}

#[test]
fn launcher_that_is_killed_takes_servers_along() {
    let Some(slurm) = cluster() else {
        return;
    };
    let text = format!(
        "run {NULL} -- sh -c 'kill -KILL $PPID'\n\
         steps() {{ squeue --steps --noheader --jobs=$SLURM_JOB_ID --format=%j | grep -c towline; }}\n\
         for i in $(seq 300); do test $(steps) = 0 && break; sleep 0.1; done\n\
         echo steps $(steps)"
    );
    expect(&job(&slurm, "-N2", &text), &["steps 0", "status 0"]);
}
