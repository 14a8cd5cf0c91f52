use std::path::PathBuf;

/// Why there is no placement, no score or no simulation.
///
/// Each text says what to change where that can be known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{what}: {reason}")]
    Cluster { what: String, reason: String },
    #[error("cannot {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{name} cannot say this placement: {reason}")]
    Launcher { name: &'static str, reason: String },
    #[error("{0}")]
    Measurement(String),
    #[error("the placement is for {placed} ranks, and the program has {ranks}")]
    OtherRanks { placed: usize, ranks: usize },
    #[error("{what}, line {line}: {reason}")]
    Program {
        what: String,
        line: usize,
        reason: String,
    },
    #[error("the program of {ranks} ranks does not fit together: {reason}")]
    Unmatched { ranks: usize, reason: String },
    #[error("the simulator failed: {0}")]
    Simulator(String),
    #[error("{0}")]
    Size(String),
    #[error("{program}: {reason}")]
    Tool { program: String, reason: String },
    #[error(
        "{tasks} tasks do not fit on {cores} cores of {nodes} nodes; give more nodes or fewer tasks{hint}"
    )]
    TooFewCores {
        tasks: usize,
        cores: usize,
        nodes: usize,
        hint: &'static str,
    },
    #[error("there is no node `{0}` in the cluster description")]
    UnknownNode(String),
}
