//! `towline bench energy`: time, average power and energy of a program, as Tables II, III and V of the rCUDA paper have them; and
//! `towline bench power`, which records power on another machine.
//!
//! [`source`] says where power comes from, [`series`] what it adds up to, [`method`] how runs become a result. What cannot be read is
//! unknown, never zero, and a total that lacks a part is marked.

mod method;
mod nvml;
mod outside;
mod series;
mod source;
mod sysfs;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use towline_progress::Progress;

pub use self::method::{Outcome, Repetition, Side, Sides};
pub use self::source::{Of, SourceReport};
use self::source::{Sampler, Source, now_s};
use crate::machine::{self, Machine};
use crate::report::SCHEMA;
use crate::table::{Table, number};

/// Most runs, however short they are.
const MOST_RUNS: usize = 1_000;

/// `towline bench energy`.
#[derive(Args, Debug)]
#[command(
    after_help = "Sources: nvml[:GPU], rapl and hwmon[:CHIP] are parts of this machine; ipmi (by ipmitool), command:COMMAND (prints \
                        watts) and csv:FILE (lines SECONDS,WATTS of a meter, or of `towline bench power` on the machine itself) \
                        are a whole machine; csv-part:FILE is a file of a part. With only --client the program runs on one machine, \
                        as in Table II of the paper; with --server on two, as in Table III."
)]
pub struct Options {
    /// Power of the machine that the program runs on
    #[arg(long, value_name = "SOURCE", value_delimiter = ',')]
    client: Vec<String>,
    /// Power of the machine with the GPU, where that is another one
    #[arg(long, value_name = "SOURCE", value_delimiter = ',')]
    server: Vec<String>,
    /// Seconds for which the program is run before anything counts
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = seconds)]
    warm_up: f64,
    /// Runs, of which the slowest and the fastest do not count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(3..=1000))]
    repetitions: u16,
    /// Samples that every source must have given before the runs end
    #[arg(long, value_name = "N", default_value_t = 30)]
    samples: usize,
    /// Seconds of rest before, for the power of the idle machines
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = seconds)]
    idle: f64,
    /// Milliseconds between samples
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=1000))]
    period: u64,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The program, as in `-- towline run --server gpu1 -- ./simulate`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// `towline bench power`.
#[derive(Args, Debug)]
pub struct PowerOptions {
    /// Source of this machine, as for `towline bench energy`; several add up
    #[arg(
        long = "source",
        value_name = "SOURCE",
        value_delimiter = ',',
        required = true
    )]
    sources: Vec<String>,
    /// Where the samples go [default: standard output]
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Milliseconds between samples
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=1000))]
    period: u64,
    /// Stop after so many seconds
    #[arg(long, value_name = "N", value_parser = seconds)]
    seconds: Option<f64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("from 0 to 86400 seconds".into()),
    }
}

/// What a run leaves behind.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct EnergyReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `energy`.
    pub kind: String,
    /// When it began, UTC.
    pub started: String,
    /// Version of Towline.
    pub version: String,
    /// Where the program ran.
    pub machine: Machine,
    /// The program.
    pub command: Vec<String>,
    /// Where power came from.
    pub sources: Vec<SourceReport>,
    /// Power of the idle machines; null when no time was given for it.
    pub idle_w: Option<Sides>,
    /// Every run after the warm-up.
    pub repetitions: Vec<Repetition>,
    /// The result.
    pub outcome: Outcome,
    /// What to keep in mind.
    pub notes: Vec<String>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let started = machine::now_utc();
    let sources = open(&options.client, &options.server)?;
    for report in sources.iter().map(Source::report) {
        if let Some(error) = &report.error {
            eprintln!("towline bench: {} is unknown: {error}", report.name);
        }
    }
    let progress = Progress::new(true).or_lines("towline bench");
    let sampler = Sampler::start(sources, Duration::from_millis(options.period));
    let idle = (options.idle > 0.0).then(|| {
        progress.tell(format!("idle for {} s", options.idle));
        let from_s = now_s();
        std::thread::sleep(Duration::from_secs_f64(options.idle));
        (from_s, now_s())
    });
    let intervals = run_program(options, &sampler, &progress)?;
    let sources = sampler.end()?;
    let two = !options.server.is_empty();
    let mut repetitions: Vec<Repetition> = intervals
        .iter()
        .map(|&(from_s, to_s)| Repetition {
            time_s: to_s - from_s,
            power_w: power(&sources, two, from_s, to_s),
            kept: false,
        })
        .collect();
    let outcome = method::outcome(&mut repetitions).context("too few runs")?;
    let mut notes = Vec::new();
    if outcome.time_s < options.period as f64 * 5e-3 {
        notes.push(format!(
            "a run is shorter than five samples ({:.2} s): a longer one, or a smaller --period, says more",
            outcome.time_s
        ));
    }
    let report = EnergyReport {
        schema: SCHEMA,
        kind: "energy".into(),
        started,
        version: env!("CARGO_PKG_VERSION").into(),
        machine: Machine::here(),
        command: options.command.clone(),
        sources: sources.iter().map(Source::report).collect(),
        idle_w: idle.map(|(from_s, to_s)| power(&sources, two, from_s, to_s)),
        repetitions,
        outcome,
        notes,
    };
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(file, text + "\n")
            .with_context(|| format!("could not write {}", file.display()))?;
    }
    progress.clear();
    print!("{}", report.render());
    Ok(ExitCode::SUCCESS)
}

fn open(client: &[String], server: &[String]) -> anyhow::Result<Vec<Source>> {
    if client.is_empty() && server.is_empty() {
        bail!(
            "no source of power: name some with --client (this machine) and --server (the one with the GPU), as in `--client rapl \
             --server nvml`; see --help"
        );
    }
    let mut sources = Vec::new();
    for (of, names) in [(Of::Client, client), (Of::Server, server)] {
        let opened = names.iter().map(|name| Source::open(of, name));
        let opened: Vec<Source> = opened.collect::<anyhow::Result<_>>()?;
        if opened.len() > 1 && opened.iter().any(Source::is_whole) {
            bail!(
                "{} would count twice: a source of a whole machine leaves no room for another one of it",
                names.join(", ")
            );
        }
        sources.extend(opened);
    }
    Ok(sources)
}

/// Warms up, and runs the program often enough; when each run began and ended.
fn run_program(
    options: &Options,
    sampler: &Sampler,
    progress: &Progress,
) -> anyhow::Result<Vec<(f64, f64)>> {
    let (program, arguments) = options.command.split_first().context("no program")?;
    let once = || -> anyhow::Result<(f64, f64)> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let from_s = now_s();
        let start = Instant::now();
        let status = command
            .status()
            .with_context(|| format!("could not run {program}"))?;
        ensure!(status.success(), "{program} ended with {status}");
        Ok((from_s, from_s + start.elapsed().as_secs_f64()))
    };
    let warm_up = Duration::from_secs_f64(options.warm_up);
    progress.tell(format!("warm-up for {} s", options.warm_up));
    let start = Instant::now();
    while start.elapsed() < warm_up {
        once()?;
    }
    progress.tell(format!("{} runs or more", options.repetitions));
    let before = sampler.samples();
    let mut intervals = Vec::new();
    loop {
        intervals.push(once()?);
        let enough = sampler.samples().saturating_sub(before) >= options.samples
            || sampler.samples() == usize::MAX;
        if intervals.len() >= MOST_RUNS
            || enough && intervals.len() >= usize::from(options.repetitions)
        {
            return Ok(intervals);
        }
    }
}

/// Average power of an interval. With `two` there is a server beside the client, known or not.
fn power(sources: &[Source], two: bool, from_s: f64, to_s: f64) -> Sides {
    let side = |of: Of| {
        let own: Vec<&Source> = sources.iter().filter(|source| source.of == of).collect();
        let watts = |source: &&Source| Some(source.series.joules(from_s, to_s)? / (to_s - from_s));
        let known: Vec<f64> = own.iter().filter_map(watts).collect();
        Side {
            value: (!known.is_empty()).then(|| known.iter().sum()),
            // Parts are never a whole machine: there is always a fan that nobody counts.
            partial: known.len() < own.len() || !own.iter().any(|source| source.is_whole()),
        }
    };
    Sides::new(Some(side(Of::Client)), two.then(|| side(Of::Server)))
}

impl EnergyReport {
    fn render(&self) -> String {
        let two = self.sources.iter().any(|source| source.of == Of::Server);
        let sides: &[&str] = if two {
            &["client", "server", "total"]
        } else {
            &["total"]
        };
        let heading = |unit: &str| {
            sides
                .iter()
                .map(|side| format!(">{side} {unit}"))
                .collect::<Vec<_>>()
        };
        let cells = |of: &Sides| -> Vec<String> {
            let all = [of.client, of.server, of.total].map(cell);
            if two {
                all.into()
            } else {
                vec![all[2].clone()]
            }
        };
        let mut names = vec![String::new(), ">time (s)".into()];
        names.extend(heading("(W)"));
        names.extend(heading("(J)"));
        let mut table = Table::new(names);
        let mut row = vec!["a run".into(), number(self.outcome.time_s)];
        row.extend(cells(&self.outcome.power_w));
        row.extend(cells(&self.outcome.energy_j));
        table.add(row);
        if let Some(idle) = &self.idle_w {
            let mut row = vec!["idle".into(), String::new()];
            row.extend(cells(idle));
            table.add(row);
        }
        let kept = self.repetitions.iter().filter(|run| run.kept).count();
        let mut text = format!(
            "{}\n{} runs, of which {kept} count. partial: something that belongs to it was not measured.\n{}",
            self.command.join(" "),
            self.repetitions.len(),
            table.render()
        );
        for source in &self.sources {
            let side = if source.of == Of::Client {
                "client"
            } else {
                "server"
            };
            let extent = if source.whole {
                "the whole machine"
            } else {
                "a part"
            };
            text.push_str(&format!(
                "{side}: {}, {extent}, {} samples",
                source.name, source.samples
            ));
            if let Some(error) = &source.error {
                text.push_str(&format!("; {error}"));
            }
            text.push('\n');
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }
}

fn cell(side: Side) -> String {
    match (side.value, side.partial) {
        (None, _) => "unknown".into(),
        (Some(value), false) => number(value),
        (Some(value), true) => format!("{} (partial)", number(value)),
    }
}

/// Writes the power of this machine down, for `csv:` of another one.
pub(crate) fn record(options: &PowerOptions) -> anyhow::Result<ExitCode> {
    let mut sources = open(&options.sources, &[])?;
    if let Some(report) = sources
        .iter()
        .map(Source::report)
        .find(|report| report.error.is_some())
    {
        // A sum without one of its parts would look like the whole.
        bail!("{}: {}", report.name, report.error.unwrap_or_default());
    }
    let mut out: Box<dyn Write> = match &options.csv {
        Some(file) => Box::new(
            std::fs::File::create(file)
                .with_context(|| format!("could not write {}", file.display()))?,
        ),
        None => Box::new(std::io::stdout()),
    };
    writeln!(out, "unix_s,watts")?;
    let period = Duration::from_millis(options.period);
    let limit = options.seconds.map(Duration::from_secs_f64);
    let start = Instant::now();
    while limit.is_none_or(|limit| start.elapsed() < limit) {
        let sampler = Sampler::start(sources, period);
        let from_s = now_s();
        std::thread::sleep(period);
        let to_s = now_s();
        sources = sampler.end()?;
        if let Some(watts) = power(&sources, false, from_s, to_s).total.value {
            writeln!(out, "{:.3},{watts:.3}", (from_s + to_s) / 2.0)?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            options: Options,
        }
        let line = ["bench"].iter().chain(arguments);
        <Cli as clap::Parser>::try_parse_from(line).unwrap().options
    }

    #[test]
    fn program_is_measured_on_both_machines() {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("energy.json");
        let json_name = json.to_str().unwrap();
        let quick = [
            "--warm-up",
            "0",
            "--idle",
            "0.1",
            "--period",
            "10",
            "--samples",
            "3",
        ];
        let sources = [
            "--client",
            "command:echo 30",
            "--server",
            "csv:/nonexistent",
        ];
        let mut arguments = [&quick[..], &sources, &["--json", json_name, "--"]].concat();
        arguments.extend(["sleep", "0.05"]);
        run(&options(&arguments)).unwrap();
        let text = std::fs::read_to_string(&json).unwrap();
        let report: EnergyReport = serde_json::from_str(&text).unwrap();
        let outcome = report.outcome;
        assert!(outcome.time_s >= 0.05, "{outcome:?}");
        assert!(
            (outcome.power_w.client.value.unwrap() - 30.0).abs() < 1e-3,
            "{text}"
        );
        assert_eq!(outcome.power_w.server.value, None);
        assert!(outcome.energy_j.total.partial);
        assert_eq!(report.repetitions.iter().filter(|run| !run.kept).count(), 2);
        let table = report.render();
        assert!(
            table.contains("unknown") && table.contains("(partial)"),
            "{table}"
        );
        assert!(table.contains("/nonexistent"), "{table}");
    }

    #[test]
    fn parts_of_a_machine_never_make_a_whole() {
        let source = |name| Source::open(Of::Client, name).unwrap();
        let sampler = Sampler::start(vec![source("command:echo 5")], Duration::from_millis(1));
        let from_s = now_s();
        while sampler.samples() < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let to_s = now_s();
        let sources = sampler.end().unwrap();
        assert!(!power(&sources, false, from_s, to_s).total.partial);
        let two = power(&sources, true, from_s, to_s);
        assert!(two.total.partial && two.server.value.is_none());
    }

    #[test]
    fn nothing_is_counted_twice() {
        let names =
            |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).into()).collect() };
        let error = open(&names(&["command:echo 1", "rapl"]), &[])
            .err()
            .unwrap();
        assert!(error.to_string().contains("twice"), "{error}");
        let error = open(&[], &[]).err().unwrap();
        assert!(error.to_string().contains("--client"), "{error}");
    }

    #[test]
    fn failing_program_is_no_result() {
        let arguments = [
            "--client",
            "command:echo 1",
            "--idle",
            "0",
            "--warm-up",
            "0",
            "--",
            "false",
        ];
        let error = run(&options(&arguments)).unwrap_err();
        assert!(error.to_string().contains("false ended with"), "{error}");
    }

    #[test]
    fn recording_can_be_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("power.csv");
        record(&PowerOptions {
            sources: vec!["command:echo 40".into()],
            csv: Some(file.clone()),
            period: 10,
            seconds: Some(0.2),
        })
        .unwrap();
        let series = outside::read_csv(&file).unwrap();
        assert!(series.len() >= 2);
    }
}
