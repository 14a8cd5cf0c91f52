//! `towline slurm`: devices for jobs of Slurm, by `run` from nodes of the job, and by the others from standing servers ([`pool`]).
//!
//! Of `run`: servers are a step of the job: Slurm chooses their nodes and devices, confines and accounts them, and ends them with the job. They have
//! a secret that is the job's own, which they read from the step's input; the end of that input is their end, so none outlives whoever
//! started them. Nothing has to be set up on the cluster, and nobody but the job's user takes part.

mod account;
mod pool;
mod setup;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use towline_sys::process::tie_to_starter;
use towline_sys::signals::BlockedSignals;

use crate::cli::{SlurmCommand, SlurmOptions, SlurmRunOptions};
use crate::table;
use crate::tenants::{random_text, write_new_secret};
use crate::trace::{exit_code, wait};

/// Random bytes of the job's secret.
const SECRET_BYTES: usize = 32;
/// Stands before what a server tells: its node and its port, and at its end what was used of it.
const READY: &str = "towline-ready ";
const USED: &str = "towline-used ";
/// Sessions that are still there when the program has ended get so long.
const DRAIN_S: &str = "5";
/// Servers get so long to end, then they are killed.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks at a server.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Variables about the tasks of a batch script's own allocation: the servers' step is to have others.
const TASKS: [&str; 10] = [
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_DISTRIBUTION",
    "SLURM_CPU_BIND",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_NTASKS_PER_GPU",
];

pub(crate) fn run(options: &SlurmOptions) -> anyhow::Result<ExitCode> {
    match &options.command {
        SlurmCommand::Account(options) => account::run(options),
        SlurmCommand::Check(options) => setup::check(options),
        SlurmCommand::Epilog(options) => pool::epilog(options),
        SlurmCommand::Prolog(options) => pool::prolog(options),
        SlurmCommand::Run(options) => run_program(options),
        SlurmCommand::Serve(options) => serve(&options.serve),
        SlurmCommand::Setup(options) => setup::run(options),
        SlurmCommand::Sweep(options) => pool::sweep(options),
        SlurmCommand::TaskProlog(options) => pool::task_prolog(&options.folder),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn run_program(options: &SlurmRunOptions) -> anyhow::Result<ExitCode> {
    let job = variable("SLURM_JOB_ID").context(
        "this is no job of Slurm: call `towline slurm run` in a batch script, or in the shell of `salloc`",
    )?;
    let group = group(options.het_group, variable("SLURM_HET_SIZE"))?;
    let list = match group {
        Some(group) => variable(&format!("SLURM_JOB_NODELIST_HET_GROUP_{group}")),
        None => variable("SLURM_JOB_NODELIST"),
    };
    let list = list.context("Slurm does not say which nodes the job has (SLURM_JOB_NODELIST)")?;
    let nodes = nodes(&said("scontrol", &["--oneliner", "show", "node", &list])?);
    if nodes.is_empty() {
        bail!("scontrol knows none of the job's nodes {list}");
    }
    let parent = parent_folder(options.folder.as_deref())?;
    if let Err(error) = tidy(&parent, &job) {
        log::warn!(
            "folders of ended jobs stay in {}: {error:#}",
            parent.display()
        );
    }
    let folder = job_folder(&parent, &job)?;
    let secret = random_text::<SECRET_BYTES>()?;
    let token_file = folder.path().join("token");
    write_new_secret(&token_file, &secret)?;
    // Before any thread or child, so that whoever ends this program ends the one that it runs, and the folder goes.
    let signals = BlockedSignals::of_parent()?;
    let mut servers = Servers::start(group, nodes.len(), &secret, &options.serve)?;
    let addresses = servers.addresses(&nodes, Duration::from_secs(options.start_time))?;
    let mut program = Command::new(this_program()?)
        .args(["run", "--server", &addresses.join(",")])
        .arg("--token-file")
        .arg(&token_file)
        .arg("--known-servers")
        .arg(folder.path().join("known_servers"))
        .arg("--links")
        .arg(folder.path())
        .arg("--")
        .args(&options.program)
        .spawn()
        .context("could not run `towline run`")?;
    let status = wait(&mut program, &signals)?;
    let used = servers.end();
    eprintln!("towline: job {job}, {} server(s): {used}", nodes.len());
    if options.comment {
        let comment = format!("Comment=towline: {used}");
        // The exit status stays the program's.
        if let Err(error) = said("scontrol", &["update", &format!("JobId={job}"), &comment]) {
            eprintln!("towline: the job has no comment: {error:#}");
        }
    }
    Ok(exit_code(status))
}

/// The component of a heterogeneous job that has the devices; none where the job is of one piece.
fn group(wanted: Option<u32>, size: Option<String>) -> anyhow::Result<Option<u32>> {
    let size: Option<u32> = size.and_then(|size| size.parse().ok());
    match (wanted, size) {
        (wanted, Some(size @ 1..)) => {
            let group = wanted.unwrap_or(size - 1);
            if group >= size {
                bail!("--het-group {group}: the job has {size} components, counted from 0");
            }
            Ok(Some(group))
        }
        (Some(group), _) => bail!(
            "--het-group {group}: the job is not heterogeneous; its servers are on all of its nodes without this option"
        ),
        (None, _) => Ok(None),
    }
}

/// Names and addresses of nodes, as `scontrol --oneliner show node` tells them.
fn nodes(shown: &str) -> Vec<(String, String)> {
    let of = |line: &str| {
        let value = |key: &str| {
            let mut words = line.split_whitespace();
            words.find_map(|word| word.strip_prefix(key).map(str::to_owned))
        };
        Some((value("NodeName=")?, value("NodeAddr=")?))
    };
    shown.lines().filter_map(of).collect()
}

/// The output of a program of Slurm.
fn said(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        // Times in seconds since 1970.
        .env("SLURM_TIME_FORMAT", "%s")
        .stdin(Stdio::null())
        .output();
    let output = output.with_context(|| format!("could not run Slurm's {program}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}", arguments.join(" "), why.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The folder in which jobs have theirs.
fn parent_folder(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let parent = match named {
        Some(folder) => std::path::absolute(folder)?,
        None => {
            let state = variable("XDG_STATE_HOME").map(PathBuf::from);
            let home = || Some(PathBuf::from(variable("HOME")?).join(".local/state"));
            let state = state.or_else(home);
            let state = state.context("HOME is not set; name a folder with --folder")?;
            state.join("towline/jobs")
        }
    };
    fs::create_dir_all(&parent).with_context(|| format!("could not make {}", parent.display()))?;
    Ok(parent)
}

/// Stands before the job in the names of folders, so that nobody else's are taken for some.
fn prefix() -> String {
    let cluster = variable("SLURM_CLUSTER_NAME").unwrap_or_default();
    format!("towline-{cluster}-job-")
}

/// Removes folders of jobs that are over: those that were killed could not.
fn tidy(parent: &Path, own: &str) -> anyhow::Result<()> {
    let prefix = prefix();
    let of_job = |path: &Path| {
        let name = path.file_name()?.to_str()?.strip_prefix(&prefix)?;
        Some(name.split_once('-')?.0.to_owned())
    };
    let action = || format!("could not read {}", parent.display());
    let entries = fs::read_dir(parent).with_context(action)?;
    let mut left: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((of_job(&path)?, path)))
        .collect();
    if !left.is_empty() {
        let alive = said("squeue", &["--noheader", "--format=%A"])?;
        let is_alive = |job: &str| alive.lines().any(|line| line.trim() == job);
        // A list without this job is not to be believed.
        left.retain(|(job, _)| is_alive(own) && !is_alive(job));
    }
    for (_, folder) in left {
        if let Err(error) = fs::remove_dir_all(&folder) {
            log::warn!("could not remove {}: {error}", folder.display());
        }
    }
    Ok(())
}

/// A folder of this job alone, which goes with the value.
fn job_folder(parent: &Path, job: &str) -> anyhow::Result<tempfile::TempDir> {
    let prefix = format!("{}{job}-", prefix());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent);
    folder.with_context(|| {
        format!(
            "could not make a folder of the job's in {}",
            parent.display()
        )
    })
}

fn this_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("could not find out where this program lies")
}

/// The step of a job's servers.
struct Servers {
    step: Child,
    /// Its end is theirs.
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Servers {
    fn start(
        group: Option<u32>,
        nodes: usize,
        secret: &str,
        options: &[OsString],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new("srun");
        command.args(group.map(|group| format!("--het-group={group}")));
        command
            .args(["--overlap", "--ntasks-per-node=1", "--cpu-bind=none"])
            .args(["--mpi=none", "--unbuffered", "--quiet"])
            .arg(format!("--nodes={nodes}"))
            .arg(format!("--ntasks={nodes}"))
            .arg("--job-name=towline")
            .arg(this_program()?)
            .args(["slurm", "serve", "--"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A terminal is to interrupt the program alone.
            .process_group(0);
        for name in TASKS {
            command.env_remove(name);
        }
        let step = tie_to_starter(&mut command).spawn();
        let mut step = step.context("could not run Slurm's srun")?;
        let mut input = step.stdin.take().context("srun has no input")?;
        let output = step.stdout.take().context("srun has no output")?;
        // A step that does not start is told of by what it says, below.
        let _ = writeln!(input, "{secret}").and_then(|()| input.flush());
        let (sender, lines) = mpsc::channel();
        std::thread::Builder::new()
            .name("servers".into())
            .spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    match line.starts_with(READY) || line.starts_with(USED) {
                        true => drop(sender.send(line)),
                        false => eprintln!("{line}"),
                    }
                }
            })?;
        Ok(Self {
            step,
            input: Some(input),
            lines,
        })
    }

    /// The servers' addresses, in the order of the nodes.
    fn addresses(
        &self,
        nodes: &[(String, String)],
        patience: Duration,
    ) -> anyhow::Result<Vec<String>> {
        let until = Instant::now() + patience;
        let mut found = vec![None; nodes.len()];
        while found.contains(&None) {
            let line = match self
                .lines
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => bail!(
                    "the job's servers have not started within {} s: see --start-time, and `squeue --steps` for what holds the step up",
                    patience.as_secs()
                ),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!(
                        "the job's servers ended before they listened; what they and srun said stands above"
                    )
                }
            };
            let told = line
                .strip_prefix(READY)
                .and_then(|told| told.split_once(' '));
            let (name, port) = told.with_context(|| format!("a server says {line:?}"))?;
            let at = nodes.iter().position(|(node, _)| node == name);
            let at =
                at.with_context(|| format!("a server is on {name}, which is no node of the job"))?;
            let host = &nodes[at].1;
            found[at] = Some(match host.contains(':') {
                true => format!("tcp://[{host}]:{port}"),
                false => format!("tcp://{host}:{port}"),
            });
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Ends them, and says what was used of them.
    fn end(&mut self) -> Used {
        if let Ok(Some(status)) = self.step.try_wait() {
            eprintln!("towline: the job's servers ended before the program did: srun's {status}");
        }
        drop(self.input.take());
        let until = Instant::now() + END_LIMIT;
        let mut all = Used::default();
        while let Ok(line) = self
            .lines
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            let used = line.strip_prefix(USED);
            if let Some(used) = used.and_then(|text| serde_json::from_str(text).ok()) {
                all.add(&used);
            }
        }
        all
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.input.take());
        let until = Instant::now() + END_LIMIT;
        while matches!(self.step.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK_PERIOD);
        }
        let _ = self.step.kill();
        let _ = self.step.wait();
    }
}

/// The use that sessions made of a server.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
struct Used {
    sessions: u64,
    device_seconds: f64,
    received_bytes: u64,
    sent_bytes: u64,
    /// Of the session that had most.
    device_memory_peak: u64,
}

impl Used {
    fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.device_seconds += other.device_seconds;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.device_memory_peak = self.device_memory_peak.max(other.device_memory_peak);
    }

    /// Of the sessions that a server's audit log says have ended.
    fn of_audit(log: &str) -> Self {
        let mut all = Self::default();
        for line in log.lines() {
            let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else {
                continue;
            };
            if let Some(used) = Self::of_event(&event) {
                all.add(&used);
            }
        }
        all
    }

    /// Of a line of a server's audit log, if it tells of a session's end.
    fn of_event(event: &serde_json::Value) -> Option<Self> {
        let number = |key: &str| event[key].as_u64().unwrap_or_default();
        (event["event"] == "session_ended").then(|| Self {
            sessions: 1,
            device_seconds: event["device_seconds"].as_f64().unwrap_or_default(),
            received_bytes: number("received_bytes"),
            sent_bytes: number("sent_bytes"),
            device_memory_peak: number("device_memory_peak"),
        })
    }
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} session(s), {:.1} s of device time, {} to devices, {} from them, {} of device memory at most",
            self.sessions,
            self.device_seconds,
            table::bytes(self.received_bytes),
            table::bytes(self.sent_bytes),
            table::bytes(self.device_memory_peak),
        )
    }
}

/// A server on this node, for as long as the input lasts.
fn serve(options: &[OsString]) -> anyhow::Result<ExitCode> {
    let node = variable("SLURMD_NODENAME")
        .context("this is started by `towline slurm run`, not by hand (SLURMD_NODENAME)")?;
    let mut input = BufReader::new(std::io::stdin());
    let mut secret = String::new();
    input
        .read_line(&mut secret)
        .context("could not read the job's secret")?;
    // Not where all nodes see it: this node's own, and gone with the server.
    let folder = tempfile::Builder::new().prefix("towline-job-").tempdir()?;
    let path = |name: &str| folder.path().join(name);
    write_new_secret(&path("token"), secret.trim_end())?;
    let mut command = Command::new(this_program()?);
    command.args([
        "serve",
        "--listen",
        "tcp://0.0.0.0:0",
        "--drain-time",
        DRAIN_S,
    ]);
    for (option, name) in [
        ("--token-file", "token"),
        ("--key-file", "key"),
        ("--ready-file", "ready"),
        ("--audit-log", "audit"),
    ] {
        command.arg(option).arg(path(name));
    }
    // The output is for whoever started this; of the server they see its log.
    command
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut server = tie_to_starter(&mut command)
        .spawn()
        .context("could not run `towline serve`")?;
    let (ended, end) = mpsc::channel::<()>();
    std::thread::Builder::new()
        .name("input".into())
        .spawn(move || {
            let _ = input.read_to_end(&mut Vec::new());
            drop(ended);
        })?;
    let mut told = false;
    loop {
        if let Some(status) = server.try_wait()? {
            bail!("the server on {node} has ended: {status}");
        }
        if let Some(port) = port(&path("ready")).filter(|_| !told) {
            say!("{READY}{node} {port}");
            told = true;
        }
        match end.recv_timeout(LOOK_PERIOD) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
    }
    let pid = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
    pid.map(|pid| kill_process(pid, Signal::TERM)).transpose()?;
    server.wait()?;
    let used = Used::of_audit(&fs::read_to_string(path("audit")).unwrap_or_default());
    say!("{USED}{}", serde_json::to_string(&used)?);
    Ok(ExitCode::SUCCESS)
}

/// The port in a server's ready file, once that is there.
fn port(ready: &Path) -> Option<u16> {
    let text = fs::read_to_string(ready).ok()?;
    let (_, port) = text.lines().next()?.rsplit_once(':')?;
    port.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_with_the_last_component() {
        let size = |size: &str| Some(size.to_owned());
        assert_eq!(group(None, size("3")).unwrap(), Some(2));
        assert_eq!(group(Some(0), size("3")).unwrap(), Some(0));
        assert_eq!(group(None, None).unwrap(), None);
        assert!(group(Some(3), size("3")).is_err());
        assert!(group(Some(0), None).is_err());
    }

    #[test]
    fn nodes_are_read_with_their_addresses() {
        let shown = "NodeName=g0 Arch=x86_64 NodeAddr=10.0.0.7 NodeHostName=g0\nNodeName=g1 NodeAddr=g1.lab\n";
        let expected = [("g0", "10.0.0.7"), ("g1", "g1.lab")];
        assert_eq!(
            nodes(shown),
            expected.map(|(name, at)| (name.into(), at.into()))
        );
    }

    #[test]
    fn use_is_added_up_over_sessions() {
        let ended = |seconds: f64, peak: u64| {
            format!(
                "{{\"event\":\"session_ended\",\"device_seconds\":{seconds},\"received_bytes\":10,\"sent_bytes\":1,\"device_memory_peak\":{peak}}}\n"
            )
        };
        let log = [
            &ended(1.5, 7),
            "{\"event\":\"session_started\"}\nno JSON\n",
            &ended(0.5, 9),
        ]
        .concat();
        let expected = Used {
            sessions: 2,
            device_seconds: 2.0,
            received_bytes: 20,
            sent_bytes: 2,
            device_memory_peak: 9,
        };
        assert_eq!(Used::of_audit(&log), expected);
    }
}
