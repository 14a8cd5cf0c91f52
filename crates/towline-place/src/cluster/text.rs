//! The TOML of a cluster. Unknown keys are errors: a misspelt one would otherwise silently keep its default.

use serde::Deserialize;

use super::{Cluster, Gpu, Memory, Network, Node, Switch};
use crate::units::{Bytes, PerSecond, Power, Quantity, Speed, Time};
use crate::{Error, Result, hostlist};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    network: NetworkText,
    #[serde(default)]
    memory: MemoryText,
    nodes: Vec<NodesText>,
    #[serde(default)]
    gpu_servers: Vec<NodesText>,
    #[serde(default)]
    switches: Vec<SwitchText>,
    #[serde(default)]
    gpu: GpuText,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkText {
    name: String,
    bandwidth: Quantity<PerSecond>,
    latency: Quantity<Time>,
    #[serde(default = "overhead")]
    overhead: Quantity<Time>,
    #[serde(default = "eager")]
    eager: Quantity<Bytes>,
}

/// About what an MPI library needs to post a message.
fn overhead() -> Quantity<Time> {
    Quantity::new(0.5e-6)
}

/// Between the defaults of MPI libraries over InfiniBand (12 KiB) and TCP (64 KiB).
fn eager() -> Quantity<Bytes> {
    Quantity::new(16384.0)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MemoryText {
    bandwidth: Quantity<PerSecond>,
    latency: Quantity<Time>,
    socket_link: Quantity<PerSecond>,
}

/// What a server socket of the last decade does: messages through shared memory are copied twice.
impl Default for MemoryText {
    fn default() -> Self {
        Self {
            bandwidth: Quantity::new(6e9),
            latency: Quantity::new(0.5e-6),
            socket_link: Quantity::new(10e9),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodesText {
    names: String,
    #[serde(default = "one")]
    sockets: u32,
    cores: u32,
    #[serde(default = "one")]
    threads: u32,
    #[serde(default = "core_speed")]
    core_speed: Quantity<Speed>,
    #[serde(default = "memory_bandwidth")]
    memory_bandwidth: Quantity<PerSecond>,
    #[serde(default = "threads_gain")]
    threads_gain: f64,
    #[serde(default)]
    gpus: u32,
    switch: Option<String>,
    #[serde(default = "idle")]
    idle: Quantity<Power>,
    #[serde(default = "busy")]
    busy: Quantity<Power>,
    #[serde(default)]
    price: f64,
}

fn one() -> u32 {
    1
}

fn core_speed() -> Quantity<Speed> {
    Quantity::new(super::text::CORE_SPEED)
}

/// What traces count as a second of a core, see `replay.flops_per_second` of a trace.
pub(super) const CORE_SPEED: f64 = 1e9;

pub(super) const MEMORY_BANDWIDTH: f64 = 40e9;

fn memory_bandwidth() -> Quantity<PerSecond> {
    Quantity::new(MEMORY_BANDWIDTH)
}

/// What simultaneous multithreading is commonly worth to a program bound by arithmetic: little.
pub(super) fn threads_gain() -> f64 {
    1.1
}

fn idle() -> Quantity<Power> {
    Quantity::new(100.0)
}

fn busy() -> Quantity<Power> {
    Quantity::new(250.0)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchText {
    name: String,
    uplink: Quantity<PerSecond>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GpuText {
    link: Quantity<PerSecond>,
    idle: Quantity<Power>,
    busy: Quantity<Power>,
    price: f64,
}

impl Default for GpuText {
    fn default() -> Self {
        Self {
            link: Quantity::new(6e9),
            idle: Quantity::new(30.0),
            busy: Quantity::new(225.0),
            price: 0.0,
        }
    }
}

pub(super) fn parse(text: &str, what: &str) -> Result<Cluster> {
    let fail = |reason: String| Error::Cluster {
        what: what.to_owned(),
        reason,
    };
    let file: File =
        toml::from_str(text).map_err(|error| fail(error.to_string().trim().to_owned()))?;
    let switches: Vec<Switch> = file
        .switches
        .into_iter()
        .map(|switch| Switch {
            name: switch.name,
            uplink: switch.uplink.0,
        })
        .collect();
    let cluster = Cluster {
        name: file.name,
        network: Network {
            name: file.network.name,
            bandwidth: file.network.bandwidth.0,
            latency_s: file.network.latency.0,
            overhead_s: file.network.overhead.0,
            eager_bytes: file.network.eager.0,
        },
        memory: file.memory.into(),
        nodes: expand(file.nodes, &switches).map_err(fail)?,
        gpu_servers: expand(file.gpu_servers, &switches).map_err(fail)?,
        switches,
        gpu: file.gpu.into(),
    };
    cluster.check(what)?;
    Ok(cluster)
}

fn expand(groups: Vec<NodesText>, switches: &[Switch]) -> Result<Vec<Node>, String> {
    let mut nodes = Vec::new();
    for group in groups {
        if group.sockets == 0 || group.sockets > super::MAX_PER_NODE {
            return Err(format!(
                "nodes `{}` have {} sockets",
                group.names, group.sockets
            ));
        }
        let switch = group
            .switch
            .as_ref()
            .map(|name| {
                let is_it = |switch: &Switch| switch.name == *name;
                switches.iter().position(is_it).ok_or_else(|| {
                    format!(
                        "nodes `{}` hang on a switch `{name}` that is not described",
                        group.names
                    )
                })
            })
            .transpose()?;
        for name in hostlist::expand(&group.names)? {
            nodes.push(Node {
                name,
                sockets: vec![group.cores; group.sockets as usize],
                threads: group.threads,
                core_speed: group.core_speed.0,
                memory_bandwidth: group.memory_bandwidth.0,
                threads_gain: group.threads_gain,
                gpus: group.gpus,
                switch,
                idle_w: group.idle.0,
                busy_w: group.busy.0,
                price: group.price,
            });
        }
    }
    Ok(nodes)
}

impl From<MemoryText> for Memory {
    fn from(text: MemoryText) -> Self {
        Self {
            bandwidth: text.bandwidth.0,
            latency_s: text.latency.0,
            socket_link: text.socket_link.0,
        }
    }
}

impl From<GpuText> for Gpu {
    fn from(text: GpuText) -> Self {
        Self {
            link: text.link.0,
            idle_w: text.idle.0,
            busy_w: text.busy.0,
            price: text.price,
        }
    }
}

/// What a description that says nothing about it has.
pub(super) fn defaults() -> (Memory, Gpu, Network) {
    let network = Network {
        name: "10 Gigabit Ethernet (assumed)".to_owned(),
        bandwidth: 1.17e9,
        latency_s: 15e-6,
        overhead_s: overhead().0,
        eager_bytes: 65536.0,
    };
    (
        MemoryText::default().into(),
        GpuText::default().into(),
        network,
    )
}

/// A node of which only the cores are known.
pub(super) fn plain_node(name: String, sockets: Vec<u32>, threads: u32, gpus: u32) -> Node {
    Node {
        name,
        sockets,
        threads,
        core_speed: CORE_SPEED,
        memory_bandwidth: MEMORY_BANDWIDTH,
        threads_gain: threads_gain(),
        gpus,
        switch: None,
        idle_w: idle().0,
        busy_w: busy().0,
        price: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "name = \"x\"\n[network]\nname = \"gbe\"\nbandwidth = \"117 MB/s\"\nlatency = \"25 us\"\n";

    fn reason(tail: &str) -> String {
        parse(&format!("{HEAD}{tail}"), "x.toml")
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn switches_are_found_by_name() {
        let tail = "[[nodes]]\nnames = \"a,b\"\ncores = 4\nswitch = \"leaf\"\n\
                    [[switches]]\nname = \"leaf\"\nuplink = \"1 GB/s\"\n";
        let cluster = parse(&format!("{HEAD}{tail}"), "x.toml").unwrap();
        assert_eq!(cluster.nodes[1].switch, Some(0));
    }

    #[test]
    fn wrong_descriptions_say_what_is_wrong() {
        let node = "[[nodes]]\nnames = \"a\"\n";
        assert!(reason(&format!("{node}cores = 0")).contains("without cores"));
        assert!(reason(&format!("{node}cores = 99999")).contains("4096"));
        assert!(reason(&format!("{node}cores = 2\ncoers = 3")).contains("coers"));
        assert!(reason(&format!("{node}cores = 2\nswitch = \"s\"")).contains("`s`"));
        assert!(reason(&format!("{node}cores = 2\n{node}cores = 2")).contains("twice"));
        assert!(reason(&format!("{node}cores = 2\ncore_speed = 3")).contains("with its unit"));
        let none = parse(
            &HEAD.replace("[network]", "nodes = []\n[network]"),
            "x.toml",
        )
        .unwrap_err();
        assert!(none.to_string().contains("no nodes"));
    }
}
