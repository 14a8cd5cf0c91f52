//! Where the tasks of a GPU-cluster job should go.
//!
//! - [`cluster`]: nodes, sockets, links, GPU servers; from TOML, hwloc, Slurm or a preset.
//! - [`program`]: what each rank does, in order: read from a trace, or declared. [`matrix`]: who sends how much to whom.
//! - [`policy`] places ranks without knowing the program, [`search`] by what it communicates.
//! - [`score`]: one estimate for every placement, however it was made; [`choose`] ranks them and says why.
//! - [`launcher`]: the placement in the words of Open MPI, MPICH and Slurm. [`picture`]: the same as SVG.
//! - [`simulate`]: programs under placements, and job mixes on shared GPU servers, in SimGrid. [`calibrate`]: what a socket of
//!   this machine is worth to n copies of a program.
//!
//! All input comes from somebody else: descriptions, traces and matrices are checked before use, and what is wrong is said with
//! its place. What is computed is the same on every machine and at every run.
//!
//! ```
//! use towline_place::cluster::preset;
//! use towline_place::program::declared::Kernel;
//! use towline_place::score::{Sockets, score};
//! use towline_place::{Matrix, Policy};
//!
//! let cluster = preset::cluster("two-leaves")?;
//! let matrix = Matrix::of(&Kernel::named("cg")?.program(64)?);
//! let seconds = |policy: Policy| {
//!     let placement = policy.place(&cluster, 64, false)?;
//!     score(&cluster, &matrix, &Sockets::default(), &placement).map(|score| score.total_s)
//! };
//! assert!(seconds(Policy::RoundRobin(1))? > 0.0);
//! # Ok::<(), towline_place::Error>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod calibrate;
mod child;
pub mod choose;
pub mod cluster;
pub mod command;
mod error;
pub mod gpus;
pub mod hostlist;
pub mod launcher;
pub mod matrix;
pub mod picture;
pub mod placement;
pub mod policy;
pub mod program;
pub mod score;
pub mod scotch;
pub mod search;
pub mod simulate;
pub mod units;

use std::path::Path;

pub use cluster::Cluster;
pub use error::Error;
pub use matrix::Matrix;
pub use placement::{Placement, Slot};
pub use policy::Policy;
pub use program::Program;

/// An outcome of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|source| Error::File {
        action: "read",
        path: path.to_owned(),
        source,
    })
}
