//! `towline vm`: the virtual machines of a plan, by libvirt.

mod cluster;
mod libvirt;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::node::print_json;

#[derive(Args, Debug)]
pub(crate) struct VmOptions {
    #[command(subcommand)]
    command: VmCommand,
}

#[derive(Debug, Subcommand)]
enum VmCommand {
    /// Write the files of a virtual cluster: domains, cloud-init's files, NCCL topologies, MPI's host file
    Cluster(ClusterOptions),
    /// Define a plan's machines in libvirt
    Define(MachinesOptions),
    /// Write OpenStack's configuration for a plan
    Openstack(OpenstackOptions),
    /// Start machines
    Start(NamesOptions),
    /// Ask machines to shut down
    Stop(NamesOptions),
    /// Remove machines from libvirt; their disks stay
    Undefine(NamesOptions),
    /// Print libvirt's XML of a plan's machines
    Xml(MachinesOptions),
}

/// A plan and the host that it was made for.
#[derive(Args, Debug)]
struct PlanOptions {
    /// TOML file that says what is wanted, as for `towline node plan`
    #[arg(value_name = "REQUEST")]
    request: PathBuf,
    /// Plan for the host that `node inspect --json` wrote to this file
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    host: Option<PathBuf>,
    /// Look below this folder instead of at this host
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

#[derive(Args, Debug)]
struct MachinesOptions {
    #[command(flatten)]
    plan: PlanOptions,
    /// Only this machine
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Folder of the disks: NAME.qcow2 and NAME-seed.iso
    #[arg(long, value_name = "DIR", default_value = "/var/lib/libvirt/images")]
    images: String,
    /// Bridge of the host for management [default: libvirt's network `default`]
    #[arg(long, value_name = "NAME")]
    bridge: Option<String>,
    /// Give machines a BIOS instead of UEFI
    #[arg(long)]
    bios: bool,
    /// Socket of the host's server: `towline serve --listen virtio-serial:SOCKET`
    #[arg(
        long,
        value_name = "SOCKET",
        default_value = "/run/towline/machines.sock"
    )]
    socket: String,
    /// Give machines no vsock device; for hosts without vhost_vsock
    #[arg(long)]
    no_vsock: bool,
    /// libvirt to talk to
    #[arg(long, value_name = "URI", default_value = "qemu:///system")]
    connect: String,
    /// Print JSON instead of text; lines of progress go to standard error
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct NamesOptions {
    /// Which machines
    #[arg(required = true)]
    names: Vec<String>,
    /// libvirt to talk to
    #[arg(long, value_name = "URI", default_value = "qemu:///system")]
    connect: String,
    /// Print JSON instead of text; lines of progress go to standard error
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct OpenstackOptions {
    #[command(flatten)]
    plan: PlanOptions,
    /// The physical network's name in Neutron
    #[arg(long, value_name = "NAME", default_value = "fabric")]
    network: String,
    /// Where to write nova.conf, sriov_agent.ini and commands.sh; made if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the files as JSON, once all are written
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct ClusterOptions {
    /// TOML file that lists the hosts and says who may log in
    #[arg(value_name = "CLUSTER")]
    cluster: PathBuf,
    /// Where to write the files, a folder for each machine; made if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the files as JSON, once all are written
    #[arg(long)]
    json: bool,
}

/// The files that a command writes, as `--json` prints them.
#[derive(Debug, Serialize)]
struct Files {
    files: Vec<PathBuf>,
    #[serde(skip)]
    json: bool,
}

impl Files {
    fn new(json: bool) -> Self {
        Self {
            files: Vec::new(),
            json,
        }
    }

    fn write(&mut self, path: PathBuf, text: &str) -> anyhow::Result<()> {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.add(path);
        Ok(())
    }

    /// Tells of a file that is there now.
    fn add(&mut self, path: PathBuf) {
        if !self.json {
            say!("{}", path.display());
        }
        self.files.push(path);
    }

    /// Prints them, if that was not done one by one.
    fn finish(self) -> anyhow::Result<ExitCode> {
        if self.json {
            print_json(&self)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(crate) fn run(options: VmOptions) -> anyhow::Result<ExitCode> {
    match options.command {
        VmCommand::Cluster(options) => cluster::run(&options),
        VmCommand::Define(options) => libvirt::define(&options),
        VmCommand::Openstack(options) => libvirt::openstack(&options),
        VmCommand::Start(options) => libvirt::on_each(&options, &["start"]),
        VmCommand::Stop(options) => libvirt::on_each(&options, &["shutdown"]),
        // The variables of UEFI go along; a machine without any does not mind.
        VmCommand::Undefine(options) => libvirt::on_each(&options, &["undefine", "--nvram"]),
        VmCommand::Xml(options) => libvirt::xml(&options),
    }
}
