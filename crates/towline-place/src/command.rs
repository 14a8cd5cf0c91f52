//! The subcommands `place`, `simulate` and `calibrate` of `towline`.

pub mod calibrate;
pub mod place;
pub mod simulate;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use towline_progress::Progress;

use crate::choose::{self, Candidate, Wishes};
use crate::cluster::{hwloc, preset, slurm};
use crate::gpus::Pool;
use crate::program::declared::Kernel;
use crate::{Cluster, Error, Matrix, Policy, Program, Result, child, hostlist};

/// Slurm's clients wait for minutes for a controller that is gone.
const SCONTROL_LIMIT: Duration = Duration::from_secs(20);

/// Which cluster.
#[derive(Args, Clone, Debug, Default)]
#[group(required = true, multiple = false, id = "description")]
pub struct Description {
    /// Its description: a TOML file
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<PathBuf>,
    /// One that comes with towline: study-qdr, study-gbe, two-leaves
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// hwloc's XML (`lstopo --of xml`) of each node, or of one node that --nodes are like
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub hwloc: Vec<PathBuf>,
    /// What `scontrol` says here; within a job only its nodes
    #[arg(long)]
    pub slurm: bool,
    /// What `scontrol --oneliner show nodes` said, or a slurm.conf
    #[arg(long, value_name = "FILE")]
    pub slurm_file: Option<PathBuf>,
}

impl Description {
    /// Reads it; `nodes` chooses from it, or names the nodes that one hwloc file stands for.
    pub fn read(&self, nodes: Option<&str>) -> Result<Cluster> {
        let names = nodes
            .map(|list| hostlist::expand(list).map_err(Error::Size))
            .transpose()?;
        if !self.hwloc.is_empty() {
            return hwloc::from_files(&self.hwloc, &names.unwrap_or_default());
        }
        let cluster = if let Some(path) = &self.cluster {
            Cluster::from_file(path)?
        } else if let Some(name) = &self.preset {
            preset::cluster(name)?
        } else if let Some(path) = &self.slurm_file {
            slurm::cluster(&crate::read_text(path)?, None, &path.display().to_string())?
        } else {
            from_scontrol()?
        };
        match names {
            Some(names) => cluster.only(&names),
            None => Ok(cluster),
        }
    }
}

fn from_scontrol() -> Result<Cluster> {
    let mut command = Command::new("scontrol");
    command.args(["--oneliner", "show", "nodes"]);
    let ended = child::run(&mut command, Vec::new(), SCONTROL_LIMIT)?;
    if !ended.status.success() {
        return Err(Error::Tool {
            program: "scontrol".to_owned(),
            reason: ended.complaint(),
        });
    }
    let job = std::env::var("SLURM_JOB_NODELIST").ok();
    slurm::cluster(&ended.output, job.as_deref(), "scontrol")
}

/// Which program.
#[derive(Args, Clone, Debug, Default)]
pub struct Work {
    /// A program with declared costs: cg, ft, is, lu (class C), himeno, himeno-intel (XL), atpase, stmv, atpase-gpu, stmv-gpu
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "trace",
        requires = "tasks"
    )]
    pub program: Option<String>,
    /// The folder that `towline trace` wrote
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// How many tasks
    #[arg(long, short = 'n', value_name = "N")]
    pub tasks: Option<usize>,
}

impl Work {
    /// The program's traffic, and what there is to say about it.
    pub fn matrix(&self) -> Result<(Matrix, Option<String>)> {
        let (matrix, remark) = match (&self.program, &self.trace, self.tasks) {
            (Some(_), _, _) => (Matrix::of(&self.program()?), None),
            (None, Some(path), _) => Matrix::from_file(path)?,
            (None, None, Some(tasks)) => (Matrix::silent(tasks)?, None),
            (None, None, None) => {
                return Err(Error::Size(
                    "give --trace, or --program and --tasks, or --tasks alone".to_owned(),
                ));
            }
        };
        match self.tasks {
            Some(tasks) if tasks != matrix.ranks() => Err(Error::OtherRanks {
                placed: tasks,
                ranks: matrix.ranks(),
            }),
            _ => Ok((matrix, remark)),
        }
    }

    /// The program itself, for those who replay it.
    pub fn program(&self) -> Result<Program> {
        match (&self.program, &self.trace, self.tasks) {
            (Some(name), _, Some(tasks)) => Kernel::named(name)?.program(tasks),
            (None, Some(path), _) => Program::from_trace(path),
            _ => Err(Error::Size(
                "give --trace, or --program and --tasks".to_owned(),
            )),
        }
    }
}

/// Which placements.
#[derive(Args, Clone, Debug, Default)]
pub struct Choice {
    /// Only these, separated by commas: rr:N, plane:N, block, cyclic, mapped; all by default
    #[arg(long = "policy", value_name = "NAME", value_delimiter = ',')]
    pub policies: Vec<String>,
    /// More tasks than cores may go on the cores' further hardware threads
    #[arg(long)]
    pub threads: bool,
    /// Cores' worth of work that a socket's memory can feed, as `towline calibrate` fits it
    #[arg(long, value_name = "CORES")]
    pub saturation: Option<f64>,
    /// Where virtual GPUs may be
    #[arg(long = "gpus", value_name = "WHERE", default_value = "any")]
    pub pool: GpuPool,
}

/// The GPUs that a rank may use.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub enum GpuPool {
    /// In the rank's own node or a server
    #[default]
    Any,
    /// In the rank's own node only
    Local,
    /// In servers only
    Servers,
}

impl Choice {
    /// The placements to try on this cluster.
    pub fn wishes(&self, cluster: &Cluster) -> Result<Wishes> {
        let mapped = self.policies.is_empty() || self.policies.iter().any(|name| name == "mapped");
        let named = self.policies.iter().filter(|name| *name != "mapped");
        Ok(Wishes {
            policies: match self.policies.is_empty() {
                true => Policy::usual(cluster),
                false => named.map(|name| name.parse()).collect::<Result<_>>()?,
            },
            mapped,
            threads: self.threads,
            pool: match self.pool {
                GpuPool::Any => Pool::Any,
                GpuPool::Local => Pool::Local,
                GpuPool::Servers => Pool::Servers,
            },
        })
    }

    /// The placements, best first; names on standard error those that are impossible.
    fn candidates(
        &self,
        cluster: &Cluster,
        matrix: &Matrix,
        progress: &Progress,
    ) -> Result<Vec<Candidate>> {
        progress.tell("placing");
        let wishes = self.wishes(cluster)?;
        let found = choose::candidates(cluster, matrix, &self.sockets()?, &wishes)?;
        progress.aside(|| {
            for (name, error) in &found.left_out {
                eprintln!("towline: {name} is left out: {error}");
            }
        });
        Ok(found.ranked)
    }

    /// The model of a socket that this chooses.
    pub fn sockets(&self) -> Result<crate::score::Sockets> {
        match self.saturation {
            Some(cores) if !cores.is_finite() || cores < 1.0 => Err(Error::Size(format!(
                "a saturation of {cores} cores: it is 1 or more"
            ))),
            saturation => Ok(crate::score::Sockets { saturation }),
        }
    }
}
