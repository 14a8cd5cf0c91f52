//! Makes the files of a trace out of what `pmpi/` wrote while an MPI program ran: docs/placement.md, "Trace files".
//!
//! [`collect`] reads `raw/` of a trace's folder and writes the rest. It takes what there is: ranks that died or left no
//! file are named in the result, and the others are complete. The raw files may come from anywhere, so every number in
//! them is checked before it is used.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod collective;
mod error;
mod events;
mod matrix;
mod pairs;
mod raw;
mod replay;
mod write;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

pub use crate::error::TraceError;
pub use crate::matrix::{CollectiveTotal, Communicator, Matrix};
pub use crate::pairs::Pair;
use crate::raw::{Communicators, Counts, Notes};

/// Subfolder of a trace for what the library writes.
pub const RAW_FOLDER: &str = "raw";
/// Subfolder of a trace for the replay's files.
pub const REPLAY_FOLDER: &str = "replay";
/// Names the files of the replay.
pub const REPLAY_LIST: &str = "replay.txt";

/// What the caller knows about the run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The command with its arguments; empty when it is not known.
    pub command: Vec<String>,
    /// The launcher's exit status; none when a signal ended it, or when it is not known.
    pub exit_status: Option<i32>,
}

/// How to make the replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// Whether to write one.
    pub wanted: bool,
    /// Compute amounts are seconds times this.
    pub flops_per_second: u64,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            wanted: true,
            flops_per_second: 1_000_000_000,
        }
    }
}

/// `trace.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    format: &'static str,
    version: u32,
    /// The command with its arguments.
    pub command: Vec<String>,
    /// The launcher's exit status.
    pub exit_status: Option<i32>,
    /// What the MPI library calls itself.
    pub mpi: String,
    /// Size of `MPI_COMM_WORLD`.
    pub ranks: u32,
    /// Whether every rank reached `MPI_Finalize`.
    pub complete: bool,
    /// Ranks without a file, or with a damaged one.
    pub missing: Vec<u32>,
    /// Ranks that did not reach `MPI_Finalize`.
    pub unfinished: Vec<u32>,
    /// Time of the slowest rank.
    pub seconds: f64,
    /// One per rank that left a file.
    pub processes: Vec<Process>,
    /// Whether the replay is the whole program.
    pub replay: Replay,
    /// What was wrong with files of ranks, for people.
    #[serde(skip)]
    pub damaged: Vec<String>,
}

/// One rank.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Its number.
    pub rank: u32,
    /// Where it ran.
    pub host: String,
    /// Path of its program.
    pub program: String,
    /// Whether it reached `MPI_Finalize`.
    pub finished: bool,
    /// From the end of `MPI_Init`.
    pub seconds: f64,
    /// Outside of MPI.
    pub compute_seconds: f64,
    /// Within MPI.
    pub mpi_seconds: f64,
    /// Calls that were seen.
    pub calls: u64,
    /// Events that were written.
    pub events: u64,
    /// Events that were not.
    pub events_lost: u64,
}

/// What can be said about the replay.
#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    /// Whether it is the whole program.
    pub usable: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// Compute amounts are seconds times this.
    pub flops_per_second: u64,
}

/// Reads `folder/raw` and writes `trace.json`, `matrix.json`, `matrix.csv`, `replay.txt` and `replay/` beside it.
pub fn collect(folder: &Path, run: Run, options: ReplayOptions) -> Result<Summary, TraceError> {
    let raw = folder.join(RAW_FOLDER);
    let mut damaged = Vec::new();
    let counts = raw::read_all(&raw, &mut damaged)?;
    let ranks = counts
        .values()
        .map(|counts| counts.ranks)
        .max()
        .unwrap_or(0);
    let mut communicators = Communicators::default();
    for &rank in counts.keys() {
        if let Err(error) = communicators.read(&raw, rank, ranks) {
            damaged.push(error.to_string());
        }
    }
    let matrix = matrix::build(ranks, &counts, &communicators);
    write::matrix(folder, &matrix)?;

    let mut reasons = reasons(&matrix, &counts);
    if !damaged.is_empty() {
        reasons.push("files of ranks are damaged".to_owned());
    }
    if options.wanted {
        reasons.extend(replay::write(
            folder,
            &counts,
            &communicators,
            ranks,
            options.flops_per_second,
        )?);
    } else {
        reasons.push("no replay was wanted".to_owned());
    }
    let summary = Summary {
        format: "towline-trace",
        version: 1,
        command: run.command,
        exit_status: run.exit_status,
        mpi: counts
            .values()
            .next()
            .map(|first| first.mpi.clone())
            .unwrap_or_default(),
        ranks,
        complete: matrix.complete,
        missing: matrix.missing.clone(),
        unfinished: matrix.unfinished.clone(),
        seconds: counts
            .values()
            .map(|counts| seconds(counts.seconds_ns))
            .fold(0.0, f64::max),
        processes: counts.values().map(process).collect(),
        replay: Replay {
            usable: reasons.is_empty(),
            reasons,
            flops_per_second: options.flops_per_second,
        },
        damaged,
    };
    write::summary(folder, &summary)?;
    Ok(summary)
}

/// What the library writes, by the ends of the files' names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RawFile {
    /// `.counts`
    Counts,
    /// `.comms`
    Communicators,
    /// `.events`
    Events,
}

/// Reads such a file of rank 0 and answers how many entries it has: pairs, communicators, events. For tests of what any bytes do.
pub fn check_raw(kind: RawFile, bytes: &[u8]) -> Result<usize, String> {
    match kind {
        RawFile::Counts => raw::parse_counts(bytes, 0)
            .map(|counts| counts.pairs.len())
            .map_err(str::to_owned),
        RawFile::Communicators => {
            let mut communicators = Communicators::default();
            communicators
                .read_from(bytes, Path::new("rank-0.comms"), 0, 1 << 16)
                .map_err(|error| error.to_string())?;
            Ok(communicators.groups.len())
        }
        RawFile::Events => {
            let read: Result<Vec<_>, _> = events::Events::new(bytes).collect();
            read.map(|events| events.len()).map_err(str::to_owned)
        }
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn process(counts: &Counts) -> Process {
    Process {
        rank: counts.rank,
        host: counts.host.clone(),
        program: counts.program.clone(),
        finished: counts.finished,
        seconds: seconds(counts.seconds_ns),
        compute_seconds: seconds(counts.compute_ns),
        mpi_seconds: seconds(counts.mpi_ns),
        calls: counts.calls,
        events: counts.events,
        events_lost: counts.events_lost,
    }
}

/// Why a replay would not be the whole program, as far as the counters tell.
fn reasons(matrix: &Matrix, counts: &BTreeMap<u32, Counts>) -> Vec<String> {
    let mut reasons = Vec::new();
    if !matrix.missing.is_empty() {
        reasons.push(format!("{} left nothing", ranks_as_text(&matrix.missing)));
    }
    if !matrix.unfinished.is_empty() {
        reasons.push(format!(
            "{} did not finish",
            ranks_as_text(&matrix.unfinished)
        ));
    }
    for (note, reason) in Notes::REASONS {
        let ranks: Vec<u32> = counts
            .values()
            .filter(|counts| counts.notes.has(note))
            .map(|counts| counts.rank)
            .collect();
        if !ranks.is_empty() {
            reasons.push(format!("{reason} ({})", ranks_as_text(&ranks)));
        }
    }
    reasons
}

/// "rank 3", "ranks 1, 2 and 7", "ranks 1, 2, 3 and 9 more".
pub fn ranks_as_text(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    match (ranks.len(), names.split_last()) {
        (_, None) => "no rank".to_owned(),
        (1, Some((only, _))) => format!("rank {only}"),
        (count, _) if count > SHOWN => {
            format!("ranks {} and {} more", names.join(", "), count - SHOWN)
        }
        (_, Some((last, first))) => format!("ranks {} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ranks_read_well() {
        assert_eq!(ranks_as_text(&[3]), "rank 3");
        assert_eq!(ranks_as_text(&[1, 2, 7]), "ranks 1, 2 and 7");
        let many: Vec<u32> = (0..11).collect();
        assert_eq!(
            ranks_as_text(&many),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 3 more"
        );
    }
}
