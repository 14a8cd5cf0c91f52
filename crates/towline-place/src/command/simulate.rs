//! `towline simulate`: placements and job mixes, in SimGrid.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use towline_progress::Progress;

use super::place::{print, print_json};
use super::{Choice, Description, Work};
use crate::simulate::mix::{self, Comparison, Impossible, Outcome};
use crate::simulate::{ITERATIONS, Simulator};
use crate::{Matrix, Result, units};

/// Options of `towline simulate`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Args, Clone, Debug)]
struct Engine {
    /// The program towline-sim; else TOWLINE_SIM, else beside towline, else in PATH
    #[arg(long, value_name = "FILE")]
    simulator: Option<PathBuf>,
    /// Seconds after which a simulation is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
}

impl Engine {
    fn find(&self) -> Result<Simulator> {
        Simulator::find(self.simulator.as_deref(), Duration::from_secs(self.limit))
    }
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Play a program under each placement
    Program(ProgramOptions),
    /// Play a mix of jobs with a GPU in every node, and with 1 to k shared GPU servers
    Mix(MixOptions),
}

#[derive(Args, Clone, Debug)]
struct ProgramOptions {
    #[command(flatten)]
    description: Description,
    /// Only these nodes of the cluster
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    choice: Choice,
    /// Iterations of a declared program that are played; the rest is taken from the steady state
    #[arg(long, value_name = "N", default_value_t = ITERATIONS)]
    iterations: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: Engine,
}

#[derive(Args, Clone, Debug)]
struct MixOptions {
    #[command(flatten)]
    description: Description,
    /// The mix: a TOML file
    #[arg(value_name = "FILE")]
    mix: PathBuf,
    /// Most GPU servers to try
    #[arg(long, value_name = "K", default_value_t = 8)]
    servers: usize,
    /// The makespan may be so many times that with a GPU in every node
    #[arg(long, value_name = "FACTOR", default_value_t = 1.1)]
    slowdown: f64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: Engine,
}

/// `towline simulate`.
pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.what {
        What::Program(options) => program(options),
        What::Mix(options) => jobs(options),
    }
}

/// The document that `--json` prints of a program.
#[derive(Serialize)]
struct Report {
    cluster: String,
    program: String,
    ranks: usize,
    placements: Vec<Row>,
}

/// A placement; without times where its simulation failed.
#[derive(Serialize)]
struct Row {
    policy: String,
    seconds: Option<f64>,
    iteration_seconds: Option<f64>,
    /// The score of `towline place`.
    estimate_seconds: f64,
    failure: Option<String>,
}

fn program(options: &ProgramOptions) -> Result<ExitCode> {
    let simulator = options.engine.find()?;
    let cluster = options.description.read(options.nodes.as_deref())?;
    let program = options.work.program()?;
    let matrix = Matrix::of(&program);
    let sockets = options.choice.sockets()?;
    let progress = Progress::new(!options.json);
    let mut placements = Vec::new();
    let candidates = options.choice.candidates(&cluster, &matrix, &progress)?;
    let count = candidates.len();
    for candidate in candidates {
        let name = &candidate.placement.name;
        progress.tell(format!(
            "simulating {name}, {} of {count}",
            placements.len() + 1
        ));
        let gpus = candidate.gpus.as_ref();
        let ran = simulator.run(
            &cluster,
            &program,
            &sockets,
            &candidate.placement,
            gpus,
            options.iterations,
        );
        placements.push(Row {
            policy: candidate.placement.name,
            seconds: ran.as_ref().ok().map(|ran| ran.seconds),
            iteration_seconds: ran.as_ref().ok().map(|ran| ran.iteration_s),
            estimate_seconds: candidate.score.total_s,
            failure: ran.err().map(|error| error.to_string()),
        });
    }
    let report = Report {
        cluster: cluster.name,
        ranks: program.ranks(),
        program: program.name,
        placements,
    };
    progress.clear();
    match options.json {
        true => print_json(&report)?,
        false => print(&table(&report))?,
    };
    let failed = report.placements.iter().any(|row| row.failure.is_some());
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn table(report: &Report) -> String {
    let mut text = format!(
        "{} on {}, {} ranks\n\n{:<10} {:>12} {:>14} {:>12}\n",
        report.program,
        report.cluster,
        report.ranks,
        "PLACEMENT",
        "SIMULATED",
        "AN ITERATION",
        "ESTIMATE"
    );
    for row in &report.placements {
        let name = &row.policy;
        text += &match (row.seconds, row.iteration_seconds, &row.failure) {
            (Some(seconds), Some(iteration), _) => format!(
                "{name:<10} {:>12} {:>14} {:>12}\n",
                units::seconds(seconds),
                units::seconds(iteration),
                units::seconds(row.estimate_seconds)
            ),
            (.., failure) => format!(
                "{name:<10} failed: {}\n",
                failure.as_deref().unwrap_or_default()
            ),
        };
    }
    text
}

fn jobs(options: &MixOptions) -> Result<ExitCode> {
    let simulator = options.engine.find()?;
    let cluster = options.description.read(None)?;
    let what = options.mix.display().to_string();
    let mix = mix::Mix::from_toml(&crate::read_text(&options.mix)?, &what)?;
    let progress = Progress::new(!options.json);
    progress.tell(format!(
        "simulating {} with up to {} servers",
        mix.name, options.servers
    ));
    let compared = mix::compare(&simulator, &cluster, &mix, options.servers)?;
    progress.clear();
    if options.json {
        for Impossible {
            servers, reason, ..
        } in &compared.impossible
        {
            eprintln!("towline: impossible with {servers} servers: {reason}");
        }
        print_json(&compared.outcomes)?;
    } else {
        let nodes = cluster.nodes.len();
        let title = format!("{} on {nodes} nodes of {}", mix.name, cluster.name);
        print(&mix_table(
            &title,
            &compared,
            options.servers,
            options.slowdown,
        ))?;
    }
    match compared.error {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(error),
    }
}

/// The outcomes, and the cheapest of them; no verdict after a failure, as not all were played.
fn mix_table(title: &str, compared: &Comparison, most: usize, slowdown: f64) -> String {
    let mut text = format!(
        "{title}\n\n{:<22} {:>12} {:>9} {:>12} {:>9} {:>12} {:>12}\n",
        "GPUS", "MAKESPAN", "SLOWDOWN", "TURNAROUND", "GPU BUSY", "ENERGY", "PRICE"
    );
    let lent = |servers: usize, gpus: usize| format!("{servers} servers, {gpus} GPUs");
    let row = |outcome: &Outcome| {
        let what = match outcome.servers {
            None => "one in every node".to_owned(),
            Some(servers) => lent(servers, outcome.gpus),
        };
        format!(
            "{what:<22} {:>12} {:>9.3} {:>12} {:>7.1} % {:>8.3} kWh {:>12.0}\n",
            units::seconds(outcome.makespan_s),
            outcome.slowdown,
            units::seconds(outcome.turnaround_s),
            100.0 * outcome.gpu_utilisation,
            outcome.energy_j / 3.6e6,
            outcome.price
        )
    };
    let local = &compared.outcomes[0];
    text += &row(local);
    // More servers have more places: all that are impossible come before those that were played.
    for Impossible {
        servers,
        gpus,
        reason,
    } in &compared.impossible
    {
        let what = lent(*servers, *gpus);
        text += &format!("{what:<22} impossible: {reason}\n");
    }
    for outcome in &compared.outcomes[1..] {
        text += &row(outcome);
    }
    if compared.error.is_some() {
        return text;
    }
    text + &match mix::cheapest(&compared.outcomes, slowdown) {
        Some(best) => format!(
            "\nThe cheapest within {slowdown:.2} times the makespan: {} servers, {:.0} against {:.0} with a GPU in every node.\n",
            best.servers.unwrap_or_default(),
            best.price,
            local.price
        ),
        None => format!(
            "\nNo number of servers up to {most} stays within {slowdown:.2} times the makespan.\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn a_failed_simulation_gives_no_verdict() {
        let local = Outcome {
            servers: None,
            gpus: 4,
            makespan_s: 1.0,
            turnaround_s: 1.0,
            gpu_utilisation: 0.5,
            energy_j: 1.0,
            price: 9.0,
            slowdown: 1.0,
        };
        let mut compared = Comparison {
            outcomes: vec![local],
            impossible: vec![Impossible {
                servers: 1,
                gpus: 1,
                reason: "too few".to_owned(),
            }],
            error: None,
        };
        let text = mix_table("m", &compared, 4, 1.5);
        assert!(text.contains("1 servers, 1 GPUs      impossible: too few\n"));
        assert!(text.contains("No number of servers up to 4"), "{text}");
        compared.error = Some(Error::Simulator("it crashed".to_owned()));
        let text = mix_table("m", &compared, 4, 1.5);
        assert!(!text.contains("No number"), "{text}");
    }
}
