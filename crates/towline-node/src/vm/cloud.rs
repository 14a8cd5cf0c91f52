//! cloud-init's files for the machines of a virtual cluster: who they are, how they find and trust each other, what MPI and NCCL
//! read.
//!
//! The files are JSON, which every reader of YAML reads: so nothing that a name contains can change what they mean.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::layout::TooManyBuses;
use crate::host::Host;
use crate::plan::{Plan, Vm, management_mac};

/// A virtual cluster: machines of one or several hosts. Management goes over Ethernet; MPI and NCCL take the functions that the
/// machines were given.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The account in the machines.
    #[serde(default = "default_user")]
    pub user: String,
    /// Who may log in: lines of `authorized_keys`.
    pub ssh_keys: Vec<String>,
    /// The first machine's address on the management network; the others follow.
    pub first_address: Ipv4Addr,
    /// The length of that network's prefix.
    #[serde(default = "default_prefix")]
    pub prefix: u8,
    /// The way out of it.
    #[serde(default)]
    pub gateway: Option<Ipv4Addr>,
    /// Name servers.
    #[serde(default)]
    pub name_servers: Vec<Ipv4Addr>,
}

fn default_user() -> String {
    "towline".to_owned()
}

fn default_prefix() -> u8 {
    24
}

/// A pair of keys that the machines of a cluster log in to each other with.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// The private half, in OpenSSH's format.
    pub private: String,
    /// The public half, one line.
    pub public: String,
}

/// A machine of a cluster.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// Its host.
    pub host: &'a Host,
    /// Itself.
    pub vm: &'a Vm,
    /// Its address on the management network.
    pub address: Ipv4Addr,
}

/// What cloud-init reads of a `cidata` disk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Seed {
    /// `meta-data`.
    pub meta_data: String,
    /// `network-config`.
    pub network_config: String,
    /// `user-data`.
    pub user_data: String,
}

/// A cluster that cannot be described.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The addresses run out.
    #[error(
        "{count} machines from {first} on leave the network /{prefix}: choose another first_address or prefix"
    )]
    Addresses {
        /// How many machines.
        count: usize,
        /// The first one's address.
        first: Ipv4Addr,
        /// The network's prefix.
        prefix: u8,
    },
    /// Two machines of one name.
    #[error("two machines are called {0}: give each host's request its own `name`")]
    Name(String),
    /// See there.
    #[error(transparent)]
    TooManyBuses(#[from] TooManyBuses),
}

/// The machines of all hosts, with their addresses.
///
/// # Errors
///
/// When two have one name, or the network has too few addresses.
pub fn members<'a>(
    cluster: &Cluster,
    hosts: &'a [(Host, Plan)],
) -> Result<Vec<Member<'a>>, ClusterError> {
    let vms: Vec<(&Host, &Vm)> = hosts
        .iter()
        .flat_map(|(host, plan)| plan.vms.iter().map(move |vm| (host, vm)))
        .collect();
    let out_of_addresses = || ClusterError::Addresses {
        count: vms.len(),
        first: cluster.first_address,
        prefix: cluster.prefix,
    };
    let first = u32::from(cluster.first_address);
    let bits = 32_u32
        .checked_sub(cluster.prefix.into())
        .ok_or_else(out_of_addresses)?;
    let host_part = 1_u64
        .checked_shl(bits)
        .map_or(u32::MAX, |size| u32::try_from(size - 1).unwrap_or(u32::MAX));
    let mut members: Vec<Member<'_>> = Vec::new();
    for (&(host, vm), number) in vms.iter().zip(0_u32..) {
        if members.iter().any(|member| member.vm.name == vm.name) {
            return Err(ClusterError::Name(vm.name.clone()));
        }
        let address = first
            .checked_add(number)
            // Neither the network itself nor everybody in it.
            .filter(|address| {
                address & !host_part == first & !host_part
                    && address & host_part != 0
                    && address & host_part != host_part
            })
            .ok_or_else(out_of_addresses)?;
        members.push(Member {
            host,
            vm,
            address: address.into(),
        });
    }
    Ok(members)
}

/// MPI's list of machines: a slot for each GPU, or for each core of a machine without any.
#[must_use]
pub fn hostfile(members: &[Member<'_>]) -> String {
    members
        .iter()
        .map(|member| {
            let cores: usize = member
                .vm
                .cells
                .iter()
                .map(|cell| cell.cpus.len() / cell.threads.max(1) as usize)
                .sum();
            let slots = match member.vm.gpus.len() {
                0 => cores,
                gpus => gpus,
            };
            format!("{} slots={slots}\n", member.vm.name)
        })
        .collect()
}

/// The files for one machine of a cluster.
///
/// # Errors
///
/// When the machine has more devices than PCI can number.
pub fn seed(
    cluster: &Cluster,
    members: &[Member<'_>],
    member: &Member<'_>,
    keys: &KeyPair,
) -> Result<Seed, ClusterError> {
    let name = &member.vm.name;
    let meta_data = json!({ "instance-id": format!("{}-{name}", member.host.system.name), "local-hostname": name });
    let known: String = members
        .iter()
        .map(|member| format!("{} {}\n", member.address, member.vm.name))
        .collect();
    let mut authorized = cluster.ssh_keys.clone();
    authorized.push(keys.public.trim().to_owned());
    let home = format!("/home/{}", cluster.user);
    let file = |path: String, content: String, mode: &str, owner: &str| {
        // Accounts are made after files are written, unless these wait.
        json!({ "path": path, "content": content, "permissions": mode, "owner": owner, "defer": true })
    };
    let owner = format!("{0}:{0}", cluster.user);
    let fabric = fabric(member);
    let mut files = vec![
        file(
            "/etc/towline/hostfile".to_owned(),
            hostfile(members),
            "0644",
            "root:root",
        ),
        file(
            "/etc/towline/nccl-topology.xml".to_owned(),
            super::topology(member.host, member.vm)?,
            "0644",
            "root:root",
        ),
        file(
            "/etc/towline/host-nodes".to_owned(),
            host_nodes(member),
            "0644",
            "root:root",
        ),
        file(
            "/etc/nccl.conf".to_owned(),
            "NCCL_TOPO_FILE=/etc/towline/nccl-topology.xml\n".to_owned(),
            "0644",
            "root:root",
        ),
        file(
            format!("{home}/.ssh/id_ed25519"),
            keys.private.clone(),
            "0600",
            &owner,
        ),
        file(
            format!("{home}/.ssh/config"),
            format!(
                "Host {}\n  StrictHostKeyChecking accept-new\n",
                names(members)
            ),
            "0600",
            &owner,
        ),
    ];
    if !fabric.is_empty() {
        files.push(file(
            "/etc/modules-load.d/towline.conf".to_owned(),
            fabric,
            "0644",
            "root:root",
        ));
    }
    let user_data = json!({
        "hostname": name,
        "manage_etc_hosts": false,
        "users": [{
            "name": cluster.user,
            "shell": "/bin/bash",
            "sudo": "ALL=(ALL) NOPASSWD:ALL",
            "lock_passwd": true,
            "ssh_authorized_keys": authorized,
        }],
        "write_files": files,
        // cloud-init can only write whole files.
        "runcmd": [["sh", "-c", "printf %s \"$1\" >> /etc/hosts", "hosts", known]],
    });
    Ok(Seed {
        meta_data: pretty(&meta_data),
        network_config: pretty(&network(cluster, member)),
        user_data: format!("#cloud-config\n{}", pretty(&user_data)),
    })
}

/// The host's nodes that the machine lies on: `towline node prove` compares them with those of native runs.
fn host_nodes(member: &Member<'_>) -> String {
    let mut nodes: Vec<u32> = member.vm.cells.iter().map(|cell| cell.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.iter().map(|node| format!("{node}\n")).collect()
}

fn names(members: &[Member<'_>]) -> String {
    let names: Vec<&str> = members
        .iter()
        .map(|member| member.vm.name.as_str())
        .collect();
    names.join(" ")
}

/// Modules that a machine with functions on InfiniBand loads: IP over it, and GPUDirect where there is a GPU as well.
fn fabric(member: &Member<'_>) -> String {
    let mut modules = String::new();
    if member.vm.vfs.iter().any(|function| function.is_infiniband) {
        modules.push_str("ib_ipoib\nib_umad\n");
    }
    if !member.vm.vfs.is_empty() && !member.vm.gpus.is_empty() {
        modules.push_str("nvidia_peermem\n");
    }
    modules
}

/// Only the interface for management; by its hardware address, since names depend on where devices lie.
fn network(cluster: &Cluster, member: &Member<'_>) -> Value {
    let mut interface = json!({
        "match": { "macaddress": management_mac(&member.host.system.name, &member.vm.name) },
        "set-name": "mgmt0",
        "dhcp4": false,
        "addresses": [format!("{}/{}", member.address, cluster.prefix)],
    });
    if let Some(gateway) = cluster.gateway {
        interface["routes"] = json!([{ "to": "0.0.0.0/0", "via": gateway.to_string() }]);
    }
    if !cluster.name_servers.is_empty() {
        let servers: Vec<String> = cluster
            .name_servers
            .iter()
            .map(ToString::to_string)
            .collect();
        interface["nameservers"] = json!({ "addresses": servers });
    }
    json!({ "version": 2, "ethernets": { "mgmt0": interface } })
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON values have only strings as keys") + "\n"
}
