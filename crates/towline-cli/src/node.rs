//! `towline node`: from a bare host to a virtualized GPU node, and back.

mod apply;
mod inspect;
mod plan;
mod prove;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
pub(crate) use plan::{host, request};
use towline_node::PciAddress;

#[derive(Args, Debug)]
pub(crate) struct NodeOptions {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// Show what this host has for virtual machines: IOMMU, devices and how they hang together, memory, processors
    Inspect(InspectOptions),
    /// Show the steps from this host to the virtual machines that a request asks for; changes nothing
    Plan(PlanOptions),
    /// Make a plan's changes; goes on where an earlier run was cut off
    Apply(ApplyOptions),
    /// Measure what virtual machines cost: the same benchmarks natively and in them, in turns; goes on where it was cut off
    ///
    /// Exit status: 0 when every benchmark reaches the goal, 1 when one does not or the sides cannot be compared.
    Prove(ProveOptions),
    /// Take back everything that was applied
    Undo(UndoOptions),
    /// Write standard input to a file in one go; started by `apply` and `undo`
    #[command(hide = true)]
    Write(WriteOptions),
}

#[derive(Args, Debug)]
struct InspectOptions {
    /// Print everything as JSON
    #[arg(long, conflicts_with = "table")]
    json: bool,
    /// Print a table of devices instead of the tree
    #[arg(long)]
    table: bool,
    /// Also show devices that nobody gives to a virtual machine
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    root: RootOptions,
}

#[derive(Args, Debug)]
struct PlanOptions {
    /// TOML file that says what is wanted
    #[arg(value_name = "REQUEST")]
    request: PathBuf,
    /// Plan for the host that `inspect --json` wrote to this file
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    host: Option<PathBuf>,
    /// Print the plan as JSON, as `apply --plan` reads it
    #[arg(long)]
    json: bool,
    /// Print only what would change
    #[arg(long, conflicts_with = "json")]
    diff: bool,
    #[command(flatten)]
    root: RootOptions,
}

#[derive(Args, Debug)]
struct ApplyOptions {
    /// TOML file that says what is wanted
    #[arg(value_name = "REQUEST", required_unless_present = "plan")]
    request: Option<PathBuf>,
    /// Apply this plan, which `plan --json` wrote, instead of making one; refused when the host has changed since
    #[arg(long, value_name = "FILE", conflicts_with = "request")]
    plan: Option<PathBuf>,
    /// Device to take although somebody needs it; the request has to name it in take_in_use as well
    #[arg(long, value_name = "ADDRESS")]
    take: Vec<PciAddress>,
    /// Print what was done as JSON in the end; lines of progress go to standard error
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    world: WorldOptions,
}

#[derive(Args, Debug)]
struct UndoOptions {
    /// Leave what somebody else has changed since as it is
    #[arg(long)]
    skip_drifted: bool,
    /// Print what was taken back as JSON in the end; lines of progress go to standard error
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    world: WorldOptions,
}

#[derive(Args, Debug)]
struct ProveOptions {
    /// TOML file that says what is run, and how the nodes of both sides are reached
    #[arg(value_name = "FILE")]
    spec: PathBuf,
    /// Where results are kept and the report is written; made if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Run nothing; only draw up the report of what is there
    #[arg(long)]
    report: bool,
    /// Print the report as JSON, as in report.json; lines of progress go to standard error
    #[arg(long)]
    json: bool,
}

/// How a host is changed.
#[derive(Args, Debug)]
struct WorldOptions {
    /// Seconds that the kernel or a command may take for one change
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    limit: u64,
    /// End as if killed before the change of this number: for tests
    #[arg(long, value_name = "N", hide = true)]
    die_at: Option<u64>,
    #[command(flatten)]
    root: RootOptions,
}

#[derive(Args, Debug)]
struct WriteOptions {
    /// The file
    path: PathBuf,
    /// Where in it; all of it when not said
    at: Option<u16>,
}

/// Which tree is looked at.
#[derive(Args, Debug)]
struct RootOptions {
    /// Look below this folder, which has a `/sys` and a `/proc` of some host, instead of at this host
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl RootOptions {
    fn root(&self) -> towline_node::Root {
        towline_node::Root::new(&self.root)
    }
}

/// Prints a line of progress: on standard output, unless that is for JSON.
pub(crate) fn tell(json: bool, line: &str) {
    match json {
        true => eprintln!("{line}"),
        false => say!("{line}"),
    }
}

/// Prints what `--json` asks for.
pub(crate) fn print_json(report: &impl serde::Serialize) -> anyhow::Result<()> {
    say!("{}", serde_json::to_string_pretty(report)?);
    Ok(())
}

pub(crate) fn run(options: NodeOptions) -> anyhow::Result<ExitCode> {
    match options.command {
        NodeCommand::Inspect(options) => inspect::run(&options),
        NodeCommand::Plan(options) => plan::run(&options),
        NodeCommand::Apply(options) => apply::run(&options),
        NodeCommand::Prove(options) => prove::run(&options),
        NodeCommand::Undo(options) => apply::undo(&options),
        NodeCommand::Write(options) => Ok(apply::write(&options.path, options.at)),
    }
}
