//! From what a host is and what is asked for to the steps that lie between. Pure: no file is read and nothing is changed.

mod boot;
mod choose;
mod drives;
mod network;
mod runtime;
mod text;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::address::PciAddress;
use crate::host::{Host, Locality};
use crate::request::Request;
use crate::step::{Class, Step};

/// What is to be done, and what it is for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Plan {
    /// Which host it was made for.
    pub host: String,
    /// The start of the host that it was made for: device names and numbers may differ after another.
    pub boot_id: String,
    /// What was asked for.
    pub request: Request,
    /// The machines. Fewer than asked for only if there are obstacles.
    pub vms: Vec<Vm>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Why it cannot be done. A plan with any is not applied.
    pub obstacles: Vec<Obstacle>,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

/// A virtual machine and what it gets.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Its NUMA nodes: a host node each.
    pub cells: Vec<Cell>,
    /// The page size of its memory.
    pub page_kib: u64,
    /// Its GPUs.
    pub gpus: Vec<PciAddress>,
    /// The other functions of its GPUs, and what is in their groups.
    pub companions: Vec<PciAddress>,
    /// Its network functions.
    pub vfs: Vec<Vf>,
    /// Its functions of NVMe drives.
    #[serde(default)]
    pub drives: Vec<Vf>,
    /// How near each GPU has a network function, at worst; `None` without one of them.
    pub locality: Option<Locality>,
}

impl Vm {
    /// All of its virtual functions.
    pub fn functions(&self) -> impl Iterator<Item = &Vf> {
        self.vfs.iter().chain(&self.drives)
    }

    /// Whether it gets any device.
    #[must_use]
    pub fn has_devices(&self) -> bool {
        !self.gpus.is_empty() || self.functions().next().is_some()
    }
}

/// A part of a machine on one host node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Cell {
    /// The host node.
    pub node: u32,
    /// Its processors, core by core: thread siblings follow each other.
    pub cpus: Vec<u32>,
    /// How many threads each core has.
    pub threads: u32,
    /// Where the hypervisor's own threads run.
    pub host_cpus: Vec<u32>,
    /// Its memory.
    pub memory_kib: u64,
}

/// A virtual function that a machine gets.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Vf {
    /// Where it is or will be.
    pub address: PciAddress,
    /// Its physical function.
    pub physical: PciAddress,
    /// Its number.
    pub index: u32,
    /// Whether it speaks InfiniBand.
    pub is_infiniband: bool,
    /// Its hardware address, on Ethernet.
    pub mac: Option<String>,
    /// Its GUIDs, on InfiniBand: of the node and of the port.
    pub guids: Option<(String, String)>,
}

/// Why something cannot be done, and what would help.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Obstacle {
    /// What is in the way.
    pub what: String,
    /// What would get it out of the way.
    pub remedy: String,
}

impl Obstacle {
    fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

/// The hardware address of a machine's interface for management.
#[must_use]
pub fn management_mac(host: &str, vm: &str) -> String {
    network::mac(network::identity(host, &format!("{vm}/management")))
}

/// What is gathered on the way.
#[derive(Default)]
struct Draft {
    steps: Vec<Step>,
    obstacles: Vec<Obstacle>,
    notes: Vec<String>,
}

/// Plans what has to be done to `host` for `request`.
#[must_use]
pub fn plan(host: &Host, request: &Request) -> Plan {
    let mut draft = Draft::default();
    boot::basics(host, &mut draft);
    let vms = choose::vms(host, request, &mut draft);
    if draft.obstacles.is_empty() {
        boot::steps(host, request, &vms, &mut draft);
        runtime::before_devices(host, &vms, &mut draft);
        network::steps(host, request, &vms, &mut draft);
        drives::steps(host, &vms, &mut draft);
        runtime::devices(host, request, &vms, &mut draft);
    }
    draft.obstacles.sort();
    draft.obstacles.dedup();
    let seen: BTreeSet<String> = draft.notes.iter().cloned().collect();
    draft.notes = seen.into_iter().collect();
    Plan {
        host: host.system.name.clone(),
        boot_id: host.system.boot_id.clone(),
        request: request.clone(),
        vms,
        steps: draft.steps,
        obstacles: draft.obstacles,
        notes: draft.notes,
    }
}

impl Plan {
    /// Whether some of it counts from the next start only.
    #[must_use]
    pub fn needs_reboot(&self) -> bool {
        self.steps
            .iter()
            .any(|step| step.class == Class::NeedsReboot)
    }

    /// A mark by which plans are told apart.
    #[must_use]
    pub fn digest(&self) -> String {
        let text = serde_json::to_string(self).expect("a plan has only strings as keys");
        Sha256::digest(text)
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Everything that it gives to machines.
    #[must_use]
    pub fn devices(&self) -> Vec<PciAddress> {
        self.vms
            .iter()
            .flat_map(|vm| {
                let functions = vm.functions().map(|function| function.address);
                vm.gpus
                    .iter()
                    .chain(&vm.companions)
                    .copied()
                    .chain(functions)
            })
            .collect()
    }
}
