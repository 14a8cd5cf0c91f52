//! `towline node`: from a bare host to a virtualized GPU node, and back.

mod inspect;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

#[derive(Args, Debug)]
pub(crate) struct NodeOptions {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// Show what this host has for virtual machines: IOMMU, devices and how they hang together, memory, processors
    Inspect(InspectOptions),
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

pub(crate) fn run(options: NodeOptions) -> anyhow::Result<ExitCode> {
    match options.command {
        NodeCommand::Inspect(options) => inspect::run(&options),
    }
}
