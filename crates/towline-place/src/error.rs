use std::path::PathBuf;

/// Why there is no placement, no score or no simulation.
///
/// Each text says what to change where that can be known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A description of a cluster, a matrix or a mix is wrong.
    #[error("{what}: {reason}")]
    Cluster {
        /// A name of the text.
        what: String,
        /// The fault.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The attempt, in the infinitive.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A launcher has no words for a placement.
    #[error("{name} cannot say this placement: {reason}")]
    Launcher {
        /// The launcher.
        name: &'static str,
        /// The fault.
        reason: String,
    },
    /// A measurement came to nothing.
    #[error("{0}")]
    Measurement(String),
    /// A placement belongs to a program of another size.
    #[error("the placement is for {placed} ranks, and the program has {ranks}")]
    OtherRanks {
        /// Ranks of the placement.
        placed: usize,
        /// Ranks of the program.
        ranks: usize,
    },
    /// A line of a program is wrong.
    #[error("{what}, line {line}: {reason}")]
    Program {
        /// The file, or a name of the text.
        what: String,
        /// Its number, from 1.
        line: usize,
        /// The fault.
        reason: String,
    },
    /// Ranks send what no rank receives, or the other way round.
    #[error("the program of {ranks} ranks does not fit together: {reason}")]
    Unmatched {
        /// Ranks of the program.
        ranks: usize,
        /// The fault.
        reason: String,
    },
    /// The simulator failed.
    #[error("the simulator failed: {0}")]
    Simulator(String),
    /// A number is out of its range.
    #[error("{0}")]
    Size(String),
    /// A program that this one needs failed.
    #[error("{program}: {reason}")]
    Tool {
        /// The program.
        program: String,
        /// The fault.
        reason: String,
    },
    /// The cluster is too small.
    #[error(
        "{tasks} tasks do not fit on {cores} cores of {nodes} nodes; give more nodes or fewer tasks{hint}"
    )]
    TooFewCores {
        /// Ranks to place.
        tasks: usize,
        /// Cores that there are.
        cores: usize,
        /// Nodes that there are.
        nodes: usize,
        /// Further advice, or nothing.
        hint: &'static str,
    },
    /// There is no node of this name.
    #[error("there is no node `{0}` in the cluster description")]
    UnknownNode(String),
}
