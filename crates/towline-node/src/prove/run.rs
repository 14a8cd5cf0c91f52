//! Runs what is missing, and keeps every result as it comes: `results.jsonl`, a line for each run.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::benchmark::{Kind, command};
use super::facts::{self, Facts};
use super::spec::{Case, Spec};
use super::{Runner, Side};

/// A run that was made.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// What was run.
    pub case: Case,
    /// Where.
    pub side: Side,
    /// Which of the runs, from 0.
    pub number: u32,
    /// Its figure.
    pub figure: Option<f64>,
    /// Why there is none.
    pub failure: Option<String>,
    /// How long it took.
    pub seconds: f64,
}

/// A benchmark that was left out.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Skipped {
    /// Which.
    pub kind: Kind,
    /// Why.
    pub reason: String,
}

/// What the nodes were when the first run was made.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Stage {
    /// The specification.
    pub spec: Option<Spec>,
    /// The native nodes.
    pub native: Vec<Facts>,
    /// The machines.
    pub vm: Vec<Facts>,
    /// What could not be run.
    pub skipped: Vec<Skipped>,
}

/// Everything that is known.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// What the nodes are.
    pub stage: Stage,
    /// The runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// Why it did not go on. What was measured is kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProveError {
    /// The folder has results of something else.
    #[error("{folder} has results of {what}: go on with that, or name another folder")]
    Changed {
        /// Which folder.
        folder: String,
        /// Of what.
        what: &'static str,
    },
    /// A file of the folder.
    #[error("{path}: {cause}")]
    Io {
        /// Which.
        path: String,
        /// What the system said.
        cause: io::Error,
    },
    /// A file of the folder that is none of ours.
    #[error(
        "{path} line {line} is no result: {reason}; take the line out, and its run is made again"
    )]
    Damaged {
        /// Which.
        path: String,
        /// The line, from 1.
        line: usize,
        /// Why.
        reason: String,
    },
    /// A node does not answer.
    #[error("node {node} of [{side}] cannot be asked what it is: {reason}")]
    Node {
        /// Whose.
        side: &'static str,
        /// Which, from 0.
        node: usize,
        /// Why.
        reason: String,
    },
}

/// How long a node may take to say what it is.
const FACTS_LIMIT: Duration = Duration::from_secs(120);

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> ProveError + '_ {
    move |cause| ProveError::Io {
        path: path.display().to_string(),
        cause,
    }
}

fn stage_file(folder: &Path) -> PathBuf {
    folder.join("stage.json")
}

fn results_file(folder: &Path) -> PathBuf {
    folder.join("results.jsonl")
}

/// Reads what a folder has; nothing where there is no folder. A last line that was cut off is as if it were not there.
///
/// # Errors
///
/// When a file cannot be read or is none of ours.
pub fn load(folder: &Path) -> Result<Results, ProveError> {
    let read = |path: PathBuf| match fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(io_error(&path)(error)),
    };
    let damaged = |path: &Path, line, reason: serde_json::Error| ProveError::Damaged {
        path: path.display().to_string(),
        line,
        reason: reason.to_string(),
    };
    let mut results = Results::default();
    let path = stage_file(folder);
    let text = read(path.clone())?;
    if !text.is_empty() {
        results.stage = serde_json::from_str(&text).map_err(|error| damaged(&path, 1, error))?;
    }
    let path = results_file(folder);
    for (line, number) in read(path.clone())?.split_inclusive('\n').zip(1..) {
        match serde_json::from_str(line) {
            Ok(run) => results.runs.push(run),
            Err(_) if !line.ends_with('\n') => {}
            Err(error) => return Err(damaged(&path, number, error)),
        }
    }
    Ok(results)
}

/// Asks every node what it is.
fn look(spec: &Spec, side: Side, runner: &mut dyn Runner) -> Result<Vec<Facts>, ProveError> {
    let nodes = spec.side(side);
    let line = facts::line(&nodes.bind, &nodes.mpirun);
    let mut found = Vec::new();
    for (node, reach) in nodes.reach.iter().enumerate() {
        let failed = |reason| ProveError::Node {
            side: side.name(),
            node,
            reason,
        };
        let output = runner.run(reach, &line, FACTS_LIMIT).map_err(failed)?;
        let facts = Facts::parse(&output.text);
        if facts.get("kernel").is_empty() {
            return Err(failed(format!("it answers {:?}", output.text.trim())));
        }
        found.push(facts);
    }
    Ok(found)
}

/// What is not installed on some node that it would run on.
fn absent(spec: &Spec, runner: &mut dyn Runner) -> Vec<Skipped> {
    let mut skipped = BTreeSet::new();
    // A command of the user's own is taken to be there.
    let usual = spec
        .benchmark
        .iter()
        .filter(|benchmark| benchmark.command.is_none());
    for kind in usual
        .map(|benchmark| benchmark.kind)
        .collect::<BTreeSet<_>>()
    {
        for side in Side::ALL {
            let nodes = spec.side(side);
            for reach in &nodes.reach {
                let probed = runner.run(reach, &kind.probe(&nodes.programs), FACTS_LIMIT);
                if !probed.is_ok_and(|output| output.status == Some(0)) {
                    let needs = kind.needs().unwrap_or_default();
                    let reason = format!(
                        "not on every node of [{}]: {}",
                        side.name(),
                        needs.replace("{programs}", &nodes.programs)
                    );
                    skipped.insert(Skipped { kind, reason });
                    break;
                }
            }
        }
    }
    skipped.into_iter().collect()
}

/// Runs what the folder has no result of yet, and answers all there is then.
///
/// The two sides take turns, and who begins alternates: what drifts meets both alike. A run that failed is made again the next time.
///
/// # Errors
///
/// See [`ProveError`]; what was measured by then is in the folder.
pub fn prove(
    spec: &Spec,
    folder: &Path,
    runner: &mut dyn Runner,
    progress: &mut dyn FnMut(&str),
) -> Result<Results, ProveError> {
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    let mut results = load(folder)?;
    let stage = Stage {
        spec: Some(spec.clone()),
        native: look(spec, Side::Native, runner)?,
        vm: look(spec, Side::Vm, runner)?,
        skipped: absent(spec, runner),
    };
    let changed = |what| ProveError::Changed {
        folder: folder.display().to_string(),
        what,
    };
    match &results.stage.spec {
        Some(before) if before != spec => return Err(changed("another specification")),
        Some(_) if (&results.stage.native, &results.stage.vm) != (&stage.native, &stage.vm) => {
            return Err(changed(
                "nodes that were not what they are now (see stage.json)",
            ));
        }
        _ => {}
    }
    let path = stage_file(folder);
    let text = serde_json::to_string_pretty(&stage).expect("facts have only strings as keys");
    crate::world::replace(&path, Some(&text)).map_err(io_error(&path))?;
    results.stage = stage;
    // What failed, or was cut off, is run again: the file is written anew without it.
    results.runs.retain(|run| run.failure.is_none());
    let path = results_file(folder);
    let text: String = results.runs.iter().map(line).collect();
    crate::world::replace(&path, Some(&text)).map_err(io_error(&path))?;
    let mut file = OpenOptions::new()
        .append(true)
        .open(&path)
        .map_err(io_error(&path))?;
    for (case, benchmark) in spec.cases() {
        if results
            .stage
            .skipped
            .iter()
            .any(|skipped| skipped.kind == case.kind)
        {
            continue;
        }
        for number in 0..spec.runs {
            let mut sides = Side::ALL;
            if number % 2 == 1 {
                sides.reverse();
            }
            for side in sides {
                let is_made = results
                    .runs
                    .iter()
                    .any(|run| (&run.case, run.side, run.number) == (&case, side, number));
                if is_made {
                    continue;
                }
                let begun = Instant::now();
                let measured = command(spec, side, &case, benchmark).and_then(|command| {
                    let reach = spec.side(side).reach.first().cloned().unwrap_or_default();
                    let limit = Duration::from_secs(spec.limit_s);
                    let output = runner.run(&reach, &command, limit)?;
                    match output.status {
                        Some(0) => case.kind.read(&output.text),
                        Some(status) => Err(format!(
                            "ended with status {status}: {}",
                            tail(&output.text)
                        )),
                        None => Err(format!("was killed: {}", tail(&output.text))),
                    }
                });
                let run = Run {
                    case: case.clone(),
                    side,
                    number,
                    figure: measured.as_ref().ok().copied(),
                    failure: measured.err(),
                    seconds: begun.elapsed().as_secs_f64(),
                };
                let told = match (&run.figure, &run.failure) {
                    (Some(figure), _) => format!("{figure:.6} {}", case.kind.figure().unit),
                    (None, failure) => {
                        format!("failed: {}", failure.as_deref().unwrap_or_default())
                    }
                };
                progress(&format!("{case}, {} {}: {told}", side.name(), number + 1));
                file.write_all(line(&run).as_bytes())
                    .and_then(|()| file.sync_data())
                    .map_err(io_error(&path))?;
                results.runs.push(run);
            }
        }
    }
    Ok(results)
}

fn line(run: &Run) -> String {
    serde_json::to_string(run).expect("a run has only strings as keys") + "\n"
}

/// The end of what a program printed: there the reason is.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last: Vec<&str> = lines.iter().rev().take(3).rev().copied().collect();
    last.join(" / ").chars().take(300).collect()
}
