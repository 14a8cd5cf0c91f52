//! `towline` and the programs that it runs as tools: they do not outlive it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers as the simulator does when it is asked who it is, and then takes for ever, as a tool that is no simulator does at once.
const TOOL: &str = "#!/bin/sh\n\
    if [ \"$1\" = --version ]; then echo 'towline-sim 1, of a test'; exit; fi\n\
    echo $$ >\"$0.writing\" && mv \"$0.writing\" \"$0.pid\"\n\
    exec sleep 1000\n";

/// Whether a process is there and has not ended. Whoever has to reap it may take time.
fn runs(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let state = stat
        .as_ref()
        .ok()
        .and_then(|stat| stat.rsplit(')').next()?.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

fn holds_within_patience(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Starts `towline` with a tool that does not end, sends it a signal, and says whether the tool still runs in the end.
fn outlived(arguments: impl Fn(&str) -> Vec<String>, signal: Signal) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("tool");
    fs::write(&tool, TOOL).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let mut towline = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(arguments(tool.to_str().unwrap()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = tool.with_extension("pid");
    let is_there = holds_within_patience(|| Path::new(&started).exists());
    kill_process(Pid::from_child(&towline), signal).unwrap();
    towline.wait().unwrap();
    assert!(is_there, "the tool was not started");
    let number: i32 = fs::read_to_string(&started)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let pid = Pid::from_raw(number).unwrap();
    let ended = holds_within_patience(|| !runs(pid));
    if !ended {
        // Nothing of a failed test stays behind.
        let _ = kill_process(pid, Signal::KILL);
    }
    !ended
}

fn simulate(tool: &str) -> Vec<String> {
    let words =
        "simulate program --preset study-qdr --program cg --tasks 16 --policy block --simulator";
    words.split(' ').chain([tool]).map(str::to_owned).collect()
}

fn calibrate(tool: &str) -> Vec<String> {
    ["calibrate", "--copies", "1", "--", tool]
        .map(str::to_owned)
        .into()
}

#[test]
fn a_simulator_ends_with_a_towline_that_is_killed() {
    assert!(!outlived(simulate, Signal::KILL));
    assert!(!outlived(simulate, Signal::TERM));
}

#[test]
fn what_is_calibrated_ends_with_a_towline_that_is_killed() {
    assert!(!outlived(calibrate, Signal::KILL));
    assert!(!outlived(calibrate, Signal::TERM));
}

/// Answers as the simulator does: a time for each iteration. It has no GPU.
const SIMULATOR: &str = "#!/bin/sh\n\
    if [ \"$1\" = --version ]; then echo 'towline-sim 1, of a test'; exit; fi\n\
    grep -c '^program 2' >/dev/null || { echo 'no such program' >&2; exit 1; }\n\
    echo '{\"version\":1,\"end\":3,\"marks\":[1,3],\"socket_busy\":[],\"gpu_busy\":[],\"started\":[],\"ended\":[]}'\n";

fn program(text: &str) -> tempfile::TempPath {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o755)).unwrap();
    file.into_temp_path()
}

fn json(arguments: &[&str], status: i32) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn simulated_placements_are_printed_as_json() {
    let simulator = program(SIMULATOR);
    let mut arguments: Vec<&str> =
        "simulate program --json --preset study-qdr --program cg --tasks 16 --policy block,rr:2"
            .split(' ')
            .collect();
    arguments.extend(["--simulator", simulator.to_str().unwrap()]);
    let report = json(&arguments, 0);
    assert_eq!(report["ranks"], 16);
    let mut policies: Vec<&str> = report["placements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["policy"].as_str().unwrap())
        .collect();
    policies.sort_unstable();
    assert_eq!(policies, ["block", "rr:2"]);
    let first = &report["placements"][0];
    assert_eq!(first["iteration_seconds"], 2.0);
    assert!(first["failure"].is_null() && first["estimate_seconds"].as_f64().unwrap() > 0.0);
    // The simulator refuses to play one iteration.
    arguments.extend(["--iterations", "1"]);
    let report = json(&arguments, 1);
    let failed = &report["placements"][0];
    assert!(failed["seconds"].is_null());
    let failure = failed["failure"].as_str().unwrap();
    assert!(failure.contains("no such program"), "{failure}");
}

#[test]
fn calibration_is_printed_as_json() {
    let report = json(
        &[
            "calibrate",
            "--json",
            "--copies",
            "1",
            "--",
            "sleep",
            "0.01",
        ],
        0,
    );
    assert!(report["seconds"][0].as_f64().unwrap() >= 0.01);
    assert_eq!(report["cores_worth"], serde_json::json!([1.0]));
    assert!(report["saturation"].is_null() && report["error"] == 0.0);
}

/// The display of `calibrate` on a terminal with some value of TERM; its result goes elsewhere.
fn shown(term: &str, more: &str) -> String {
    let towline = env!("CARGO_BIN_EXE_towline");
    let command = format!("{towline} calibrate --copies 1 {more} -- sleep 0.3 >/dev/null");
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", term)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn terminal_shows_progress_and_nothing_else_does() {
    let text = shown("xterm", "");
    assert!(text.contains("measuring 1 to 1 copies"), "{text:?}");
    assert!(!text.contains("\x1b[3"), "no colours: {text:?}");
    assert_eq!(
        [
            shown("dumb", ""),
            shown("xterm", "--json"),
            shown("xterm", "2>/dev/null")
        ],
        [""; 3]
    );
}
