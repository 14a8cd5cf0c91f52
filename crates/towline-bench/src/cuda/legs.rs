//! The legs of a run: which driver each sees, and their turns.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use towline_progress::Progress;

use super::leg::{Reading, Task};
use crate::child::{Asked, this_program};
use crate::cpu::{self, CpuSeconds};

/// How long one repetition may take.
const LIMIT: Duration = Duration::from_secs(120);
/// How long new processes are left alone before they are measured: a server gets the next session's worker ready meanwhile.
const REST: Duration = Duration::from_secs(1);
/// The name that programs load the driver by: `towline run` puts ours in its place.
const DRIVER: &str = "libcuda.so.1";

/// What is compared.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, clap::ValueEnum)]
pub(super) enum LegKind {
    /// The vendor's driver
    Native,
    /// Towline's driver library, under `towline run`
    Remote,
}

impl LegKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Remote => "remote",
        }
    }
}

/// The legs that take part, and their processes once they were used.
pub(super) struct Legs {
    /// The vendor's driver, or null.
    pub(super) driver: String,
    /// For clients, separated by commas.
    pub(super) servers: String,
    /// Processes of servers that run here.
    pub(super) server_pids: Vec<u32>,
    /// Number of the device natively, and on servers.
    pub(super) devices: (usize, usize),
    pub(super) wanted: Vec<LegKind>,
    running: BTreeMap<LegKind, Asked>,
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
    fn record(&mut self, leg: LegKind, result: Option<(Reading, CpuSeconds)>) {
        let (reading, cpu) = result.unzip();
        self.readings.entry(leg).or_default().push(reading);
        self.cpu
            .entry(leg)
            .or_default()
            .add(&cpu.unwrap_or_default());
    }
}

impl Legs {
    pub(super) fn new(
        driver: String,
        servers: String,
        server_pids: Vec<u32>,
        devices: (usize, usize),
        wanted: Vec<LegKind>,
        until: Option<Instant>,
    ) -> Self {
        Self {
            driver,
            servers,
            server_pids,
            devices,
            wanted,
            running: BTreeMap::new(),
            until,
            notes: Vec::new(),
            progress: Progress::new(true).or_lines("towline bench"),
        }
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

    fn command(&self, leg: LegKind) -> anyhow::Result<Command> {
        let program = this_program()?;
        let mut command = Command::new(&program);
        let (driver, device) = match leg {
            LegKind::Native => (self.driver.as_str(), self.devices.0),
            LegKind::Remote => {
                command.args(["run", "--server", &self.servers, "--"]);
                command.arg(&program);
                (DRIVER, self.devices.1)
            }
        };
        command.args(["bench", "cuda-leg", "--driver", driver]);
        command.args(["--device", &device.to_string()]);
        // A report at the end of every process would only be in the way.
        command.env_remove("TOWLINE_REPORT");
        Ok(command)
    }

    /// One repetition of a task by a process of its own, including its start and its end.
    pub(super) fn once(
        &mut self,
        leg: LegKind,
        task: Task,
    ) -> anyhow::Result<(Reading, CpuSeconds)> {
        let mut command = self.command(leg)?;
        self.accounted(leg, |_| {
            let start = Instant::now();
            let mut asked = Asked::spawn(&mut command)?;
            let mut reading: Reading = asked.ask(&task, LIMIT)?;
            let answered = start.elapsed().as_secs_f64();
            asked.end(LIMIT)?;
            let ended = start.elapsed().as_secs_f64();
            reading.values.insert("process".into(), answered * 1e6);
            reading.values.insert("whole".into(), ended * 1e6);
            Ok(reading)
        })
    }

    /// One repetition of a task.
    pub(super) fn perform(
        &mut self,
        leg: LegKind,
        task: Task,
    ) -> anyhow::Result<(Reading, CpuSeconds)> {
        if !self.running.contains_key(&leg) {
            let mut asked = Asked::spawn(&mut self.command(leg)?)?;
            begin(&mut asked)?;
            std::thread::sleep(REST);
            self.running.insert(leg, asked);
        }
        let result = self.accounted(leg, |legs| {
            let asked = legs.running.get_mut(&leg).context("it was just started")?;
            asked.ask(&task, LIMIT)
        });
        if result.is_err() {
            // Whatever it still does, it is out of step.
            self.running.remove(&leg);
        }
        result
    }

    /// One repetition of a task by several new processes at once. The reading holds the sum of `name` over them, and their
    /// spread: the largest less the smallest, over the mean.
    pub(super) fn together(
        &mut self,
        leg: LegKind,
        clients: usize,
        task: Task,
        name: &str,
    ) -> anyhow::Result<(Reading, CpuSeconds)> {
        let mut children = (0..clients)
            .map(|_| Asked::spawn(&mut self.command(leg)?))
            .collect::<anyhow::Result<Vec<_>>>()?;
        // All are up, with their images loaded, before the clock starts.
        children.iter_mut().try_for_each(begin)?;
        std::thread::sleep(REST);
        let result = self.accounted(leg, |_| {
            let asked: Vec<anyhow::Result<Reading>> = std::thread::scope(|scope| {
                let threads: Vec<_> = children
                    .iter_mut()
                    .map(|child| scope.spawn(move || child.ask(&task, LIMIT)))
                    .collect();
                let lost = || Err(anyhow::anyhow!("a thread was lost"));
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap_or_else(|_| lost()))
                    .collect()
            });
            summed(asked, name)
        });
        for child in children {
            child.end(LIMIT)?;
        }
        result
    }

    /// Runs `work` and says what CPU time went by.
    fn accounted(
        &mut self,
        leg: LegKind,
        work: impl FnOnce(&mut Self) -> anyhow::Result<Reading>,
    ) -> anyhow::Result<(Reading, CpuSeconds)> {
        let pids = match leg {
            LegKind::Remote => self.server_pids.clone(),
            LegKind::Native => Vec::new(),
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

    /// Every leg once as a warm-up, then `repetitions` rounds in which each has its turn; who begins changes from round to round.
    ///
    /// A leg that fails is noted and left out from then on.
    pub(super) fn take_turns(
        &mut self,
        what: &str,
        repetitions: usize,
        mut turn: impl FnMut(&mut Self, LegKind) -> anyhow::Result<(Reading, CpuSeconds)>,
    ) -> Turns {
        let mut legs = self.wanted.clone();
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

    /// Ends all processes, so that their memory and sessions are free.
    pub(super) fn rest(&mut self) {
        for (leg, asked) in std::mem::take(&mut self.running) {
            if let Err(error) = asked.end(Duration::from_secs(10)) {
                self.note(format!("{}: {error:#}", leg.name()));
            }
        }
    }
}

/// Has a new process do what it needs done once: it connects, and loads its image.
fn begin(child: &mut Asked) -> anyhow::Result<()> {
    let reading: Reading = child.ask(&Task::Burst { launches: 10 }, LIMIT)?;
    match reading.error {
        Some(error) => bail!("{error}"),
        None => Ok(()),
    }
}

/// One reading of several clients' readings.
fn summed(asked: Vec<anyhow::Result<Reading>>, name: &str) -> anyhow::Result<Reading> {
    let mut total = Reading::default();
    let mut rates = Vec::new();
    for reading in asked {
        let reading = reading?;
        if let Some(error) = reading.error {
            bail!("{error}");
        }
        rates.push(
            *reading
                .values
                .get(name)
                .context("a client measured nothing")?,
        );
        total.client_s += reading.client_s;
    }
    let sum: f64 = rates.iter().sum();
    let largest = rates.iter().copied().fold(f64::MIN, f64::max);
    let smallest = rates.iter().copied().fold(f64::MAX, f64::min);
    let spread = (largest - smallest) / (sum / rates.len() as f64);
    total.values.insert("sum".into(), sum);
    total.values.insert("spread".into(), spread);
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(value: f64) -> Reading {
        let mut reading = Reading::default();
        reading.values.insert("x".into(), value);
        reading.client_s = 0.5;
        reading
    }

    #[test]
    fn clients_are_summed_and_their_spread_is_of_the_mean() {
        let total = summed(vec![Ok(reading(9.0)), Ok(reading(11.0))], "x").unwrap();
        assert_eq!((total.values["sum"], total.values["spread"]), (20.0, 0.2));
        assert_eq!(total.client_s, 1.0);
    }

    #[test]
    fn one_failed_client_fails_all() {
        let failed = Reading {
            error: Some("no memory".into()),
            ..Reading::default()
        };
        let error = summed(vec![Ok(reading(9.0)), Ok(failed)], "x").unwrap_err();
        assert!(error.to_string().contains("no memory"));
    }

    #[test]
    fn failed_repetition_keeps_its_place() {
        let mut turns = Turns::default();
        for value in [Some(1.0), None, Some(3.0)] {
            let result = value.map(|value| (reading(value), CpuSeconds::default()));
            turns.record(LegKind::Remote, result);
        }
        let values = turns.values(LegKind::Remote, "x");
        assert_eq!(values, [Some(1.0), None, Some(3.0)]);
    }
}
