//! The legs of a run: which OpenCL each sees, and their turns.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use towline_progress::Progress;

use super::leg::{LISTED_AT, Reading, Task, monotonic_us};
use crate::child::{Asked, this_program};
use crate::cpu::{self, CpuSeconds};
use crate::library::Folders;
use crate::peer::{Memory, Peer, Streams};

/// How long one repetition may take.
const LIMIT: Duration = Duration::from_secs(120);
/// The pause before a process of its own is timed.
const REST: Duration = Duration::from_millis(300);
/// Bytes of a TCP round trip.
const PING_BYTES: usize = 64;

/// What is compared.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, clap::ValueEnum)]
pub(super) enum LegKind {
    /// The vendor's library
    Native,
    /// Towline's library with this machine's device (--with-local)
    Local,
    /// Towline's library with a server
    Remote,
    /// The same without overlap of network and device (TOWLINE_PIPELINE=0)
    Unpipelined,
    /// The same without caching of kernel arguments (TOWLINE_ARG_CACHE=0)
    Uncached,
    /// Plain TCP connections between two processes
    Tcp,
}

impl LegKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Local => "local",
            Self::Remote => "remote",
            Self::Unpipelined => "unpipelined",
            Self::Uncached => "uncached",
            Self::Tcp => "tcp",
        }
    }

    fn uses_server(self) -> bool {
        matches!(self, Self::Remote | Self::Unpipelined | Self::Uncached)
    }

    /// What decides which OpenCL a process sees; for a workload under a loader and for our own leg alike.
    pub(super) fn environment(
        self,
        folders: &Folders,
        servers: &str,
    ) -> Vec<(&'static str, OsString)> {
        let loader = match self {
            Self::Native | Self::Tcp => folders.native(),
            _ => folders.towline_only(),
        };
        // With a slash at its end: the loader of NVIDIA's CUDA toolkit puts a file's name behind it as it is.
        let loader = loader.join("");
        let mut variables: Vec<(&'static str, OsString)> = vec![
            ("OCL_ICD_VENDORS", loader.clone().into()),
            ("OPENCL_VENDOR_PATH", loader.into()),
            ("TOWLINE_LOCAL_ICD_VENDORS", folders.native().into()),
        ];
        match self {
            Self::Local => variables.push(("TOWLINE_WITH_LOCAL", "1".into())),
            Self::Unpipelined => variables.push(("TOWLINE_PIPELINE", "0".into())),
            Self::Uncached => variables.push(("TOWLINE_ARG_CACHE", "0".into())),
            Self::Native | Self::Remote | Self::Tcp => {}
        }
        if self.uses_server() {
            variables.push(("TOWLINE_SERVERS", servers.into()));
        }
        variables
    }
}

/// Variables that would make a leg another one.
pub(super) const CLEARED: [&str; 6] = [
    "TOWLINE_ARG_CACHE",
    "TOWLINE_PIPELINE",
    "TOWLINE_REPORT",
    "TOWLINE_SERVERS",
    "TOWLINE_WITH_LOCAL",
    "OCL_ICD_FILENAMES",
];

/// Plain TCP beside the legs.
struct Tcp {
    /// The peer on this machine, if it is.
    peer: Option<Peer>,
    streams: Streams,
}

/// The legs that take part, and their processes once they were used.
pub(super) struct Legs<'a> {
    pub(super) folders: &'a Folders,
    /// For clients, separated by commas.
    pub(super) servers: String,
    /// Processes of servers that run here.
    pub(super) server_pids: Vec<u32>,
    /// Number of the device natively, and on servers.
    pub(super) devices: (usize, usize),
    wanted: Vec<LegKind>,
    running: BTreeMap<LegKind, Asked>,
    tcp: Option<Tcp>,
    /// When measuring stops.
    until: Option<Instant>,
    /// What went wrong.
    pub(super) notes: Vec<String>,
    pub(super) progress: Progress,
}

/// What each leg measured, repetition by repetition.
#[derive(Debug, Default)]
pub(super) struct Turns {
    readings: BTreeMap<LegKind, Vec<Option<Reading>>>,
    cpu: BTreeMap<LegKind, CpuSeconds>,
}

impl Turns {
    /// The measurements of this name; `None` where a repetition has none.
    pub(super) fn values(&self, leg: LegKind, name: &str) -> Vec<Option<f64>> {
        let readings = self.readings.get(&leg).map_or(&[][..], Vec::as_slice);
        readings
            .iter()
            .map(|reading| reading.as_ref()?.values.get(name).copied())
            .collect()
    }

    pub(super) fn cpu(&self, leg: LegKind) -> CpuSeconds {
        self.cpu.get(&leg).copied().unwrap_or_default()
    }

    pub(super) fn legs(&self) -> impl Iterator<Item = LegKind> + '_ {
        self.readings.keys().copied()
    }

    /// Adds a repetition of a leg; `None` when it failed.
    pub(super) fn record(&mut self, leg: LegKind, result: Option<(Reading, CpuSeconds)>) {
        let (reading, cpu) = result.unzip();
        self.readings.entry(leg).or_default().push(reading);
        self.cpu
            .entry(leg)
            .or_default()
            .add(&cpu.unwrap_or_default());
    }
}

impl<'a> Legs<'a> {
    pub(super) fn new(
        folders: &'a Folders,
        wanted: &[LegKind],
        servers: String,
        server_pids: Vec<u32>,
        devices: (usize, usize),
        until: Option<Instant>,
    ) -> Self {
        Self {
            folders,
            servers,
            server_pids,
            devices,
            wanted: wanted.to_vec(),
            running: BTreeMap::new(),
            tcp: None,
            until,
            notes: Vec::new(),
            progress: Progress::new(true).or_lines("towline bench"),
        }
    }

    /// Connects the plain TCP leg.
    pub(super) fn connect_tcp(
        &mut self,
        peer: Option<Peer>,
        address: std::net::SocketAddr,
        streams: usize,
    ) -> anyhow::Result<()> {
        let streams = Streams::connect(address, streams)?;
        self.tcp = Some(Tcp { peer, streams });
        Ok(())
    }

    /// Those of `legs` that take part.
    pub(super) fn wanted(&self, legs: &[LegKind]) -> Vec<LegKind> {
        legs.iter()
            .copied()
            .filter(|leg| match leg {
                LegKind::Tcp => self.tcp.is_some(),
                leg => self.wanted.contains(leg),
            })
            .collect()
    }

    /// Whether the time that the run was given has passed.
    pub(super) fn is_over(&mut self) -> bool {
        let over = self.until.is_some_and(|until| Instant::now() >= until);
        if over {
            self.note("the time given by --seconds was over before everything was measured".into());
        }
        over
    }

    pub(super) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.progress.aside(|| eprintln!("towline bench: {text}"));
            self.notes.push(text);
        }
    }

    /// The library or folder that a leg loads.
    fn icd(&self, leg: LegKind) -> anyhow::Result<PathBuf> {
        match leg {
            LegKind::Native => Ok(self.folders.native()),
            _ => Ok(self.folders.towline_library()?.to_owned()),
        }
    }

    fn command(&self, leg: LegKind) -> anyhow::Result<Command> {
        let device = if leg.uses_server() {
            self.devices.1
        } else {
            self.devices.0
        };
        let mut command = Command::new(this_program()?);
        command.args(["bench", "leg", "--icd"]);
        command.arg(self.icd(leg)?);
        command.args(["--device", &device.to_string()]);
        for name in CLEARED {
            command.env_remove(name);
        }
        command.envs(leg.environment(self.folders, &self.servers));
        Ok(command)
    }

    fn start(&self, leg: LegKind) -> anyhow::Result<Asked> {
        Asked::spawn(&mut self.command(leg)?)
    }

    /// One repetition of a task by a process of its own, including its start.
    pub(super) fn once(
        &mut self,
        leg: LegKind,
        task: &Task,
    ) -> anyhow::Result<(Reading, CpuSeconds)> {
        let mut command = self.command(leg)?;
        // What the turn before left to be done, a worker made ahead say, belongs to neither.
        std::thread::sleep(REST);
        self.accounted(leg, |_| {
            let started_us = monotonic_us();
            let mut asked = Asked::spawn(&mut command)?;
            let mut reading: Reading = asked.ask(task, LIMIT)?;
            if let Some(listed_us) = reading.values.remove(LISTED_AT) {
                reading
                    .values
                    .insert("listed".into(), listed_us - started_us);
            }
            asked.end(LIMIT)?;
            Ok(reading)
        })
    }

    /// One repetition of a task.
    pub(super) fn perform(
        &mut self,
        leg: LegKind,
        task: &Task,
    ) -> anyhow::Result<(Reading, CpuSeconds)> {
        if leg == LegKind::Tcp {
            return self.perform_tcp(task);
        }
        if !self.running.contains_key(&leg) {
            let asked = self.start(leg)?;
            self.running.insert(leg, asked);
        }
        let result = self.accounted(leg, |legs| {
            let asked = legs.running.get_mut(&leg).context("it was just started")?;
            asked.ask(task, LIMIT)
        });
        if result.is_err() {
            // Whatever it still does, it is out of step.
            self.running.remove(&leg);
        }
        result
    }

    /// Runs `work` and says what CPU time went by.
    fn accounted(
        &mut self,
        leg: LegKind,
        work: impl FnOnce(&mut Self) -> anyhow::Result<Reading>,
    ) -> anyhow::Result<(Reading, CpuSeconds)> {
        let pids = if leg.uses_server() {
            self.server_pids.clone()
        } else {
            Vec::new()
        };
        let server = || (!pids.is_empty()).then(|| cpu::of_trees(&pids));
        let (server_before, machine_before) = (server(), cpu::of_machine());
        let start = Instant::now();
        let reading = work(self)?;
        let wall_s = start.elapsed().as_secs_f64();
        let (server_after, machine_after) = (server(), cpu::of_machine());
        if let Some(error) = &reading.error {
            bail!("{error}");
        }
        let cpu = CpuSeconds {
            wall_s,
            client_s: reading.client_s,
            // A worker that ended in between is counted by ticks from then on, so a small difference may be negative.
            server_s: server_after
                .zip(server_before)
                .map(|(after, before)| (after - before).max(0.0)),
            system_s: machine_after - machine_before,
        };
        Ok((reading, cpu))
    }

    fn perform_tcp(&mut self, task: &Task) -> anyhow::Result<(Reading, CpuSeconds)> {
        let tcp = self.tcp.as_mut().context("no TCP peer")?;
        let peer_pid = tcp.peer.as_ref().map(Peer::pid);
        let peer_cpu = || peer_pid.and_then(cpu::of_process);
        let before = (cpu::of_self(), peer_cpu(), cpu::of_machine());
        let start = Instant::now();
        let mut reading = Reading::default();
        match *task {
            Task::RoundTrip { repeats } => {
                let times: Vec<f64> = (0..repeats)
                    .map(|_| tcp.streams.round_trip_us(PING_BYTES))
                    .collect::<Result<_, _>>()?;
                let median = crate::stats::median(&times).context("nothing measured")?;
                reading.values.insert("ping".into(), median);
            }
            Task::Transfer {
                bytes,
                window,
                direction,
                ..
            } => {
                let total = (bytes * window) as u64;
                let seconds = tcp.streams.transfer_s(direction, Memory::Payload, total)?;
                reading
                    .values
                    .insert("gbytes_per_s".into(), total as f64 / seconds * 1e-9);
            }
            Task::Cached { bytes, direction } => {
                let seconds = tcp
                    .streams
                    .transfer_s(direction, Memory::Cached, bytes as u64)?;
                reading
                    .values
                    .insert("gbytes_per_s".into(), bytes as f64 / seconds * 1e-9);
            }
            _ => bail!("plain TCP has no such task"),
        }
        let wall_s = start.elapsed().as_secs_f64();
        reading.client_s = cpu::of_self() - before.0;
        let cpu = CpuSeconds {
            wall_s,
            client_s: reading.client_s,
            server_s: peer_cpu()
                .zip(before.1)
                .map(|(after, before)| after - before),
            system_s: cpu::of_machine() - before.2,
        };
        Ok((reading, cpu))
    }

    /// Every leg once as a warm-up, then `repetitions` rounds in which each has its turn; who begins changes from round to round.
    ///
    /// A leg that fails is noted and left out from then on.
    pub(super) fn take_turns(
        &mut self,
        what: &str,
        legs: &[LegKind],
        repetitions: usize,
        mut turn: impl FnMut(&mut Self, LegKind) -> anyhow::Result<(Reading, CpuSeconds)>,
    ) -> Turns {
        let mut legs = self.wanted(legs);
        let mut turns = Turns::default();
        for round in 0..=repetitions {
            if self.is_over() {
                break;
            }
            let order: Vec<LegKind> = (0..legs.len())
                .map(|index| legs[(index + round) % legs.len()])
                .collect();
            for leg in order {
                let result = turn(self, leg);
                if let Err(error) = &result {
                    self.note(format!("{what}, {}: {error:#}", leg.name()));
                    legs.retain(|other| *other != leg);
                }
                if round > 0 {
                    turns.record(leg, result.ok());
                }
            }
        }
        turns
    }

    /// Turns of one task that is the same for all legs.
    pub(super) fn turns_of(
        &mut self,
        what: &str,
        legs: &[LegKind],
        repetitions: usize,
        task: &Task,
    ) -> Turns {
        self.take_turns(what, legs, repetitions, |legs, leg| legs.perform(leg, task))
    }

    /// CPU seconds of a leg's process and of the servers, as of now.
    pub(super) fn cpu_now(&self, leg: LegKind) -> (Option<f64>, Option<f64>) {
        let client = self
            .running
            .get(&leg)
            .and_then(|asked| cpu::of_process(asked.pid()));
        let servers = (leg.uses_server() && !self.server_pids.is_empty())
            .then(|| cpu::of_trees(&self.server_pids));
        (client, servers)
    }

    /// Ends all processes, so that their memory and sessions are free.
    pub(super) fn rest(&mut self) {
        for (leg, asked) in std::mem::take(&mut self.running) {
            if let Err(error) = asked.end(Duration::from_secs(10)) {
                self.note(format!("{}: {error:#}", leg.name()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(value: f64) -> Option<(Reading, CpuSeconds)> {
        let mut reading = Reading::default();
        reading.values.insert("x".into(), value);
        Some((reading, CpuSeconds::default()))
    }

    #[test]
    fn failed_repetition_keeps_its_place() {
        let mut turns = Turns::default();
        for value in [Some(1.0), None, Some(3.0)] {
            turns.record(LegKind::Remote, value.and_then(reading));
        }
        assert_eq!(
            turns.values(LegKind::Remote, "x"),
            [Some(1.0), None, Some(3.0)]
        );
        assert_eq!(turns.values(LegKind::Native, "x"), []);
    }

    #[test]
    fn legs_take_turns_and_a_failing_one_drops_out() {
        let folders = Folders::prepare(&["libnone.so".into()]).unwrap();
        let all = [LegKind::Native, LegKind::Local, LegKind::Remote];
        let mut legs = Legs::new(&folders, &all, String::new(), Vec::new(), (0, 0), None);
        let mut order = String::new();
        let turns = legs.take_turns("test", &all, 2, |_, leg| {
            order.push_str(&leg.name()[..1]);
            match leg {
                LegKind::Local => bail!("no device"),
                _ => Ok(reading(1.0).unwrap()),
            }
        });
        // The warm-up, then rounds that begin with another leg each.
        assert_eq!(order, "nlrrnnr");
        assert_eq!(turns.legs().count(), 2);
        assert_eq!(legs.notes, ["test, local: no device"]);
    }

    #[test]
    fn environment_decides_what_a_leg_sees() {
        let folders = Folders::prepare(&["libnone.so".into()]).unwrap();
        let names = |leg: LegKind| {
            let variables = leg.environment(&folders, "tcp://a:1");
            variables
                .into_iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        assert!(!names(LegKind::Native).contains(&"TOWLINE_SERVERS"));
        assert!(!names(LegKind::Local).contains(&"TOWLINE_SERVERS"));
        assert!(names(LegKind::Unpipelined).contains(&"TOWLINE_SERVERS"));
        assert!(names(LegKind::Unpipelined).contains(&"TOWLINE_PIPELINE"));
    }
}
