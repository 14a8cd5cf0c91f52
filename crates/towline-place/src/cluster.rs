//! A cluster: its nodes, their sockets and cores, and the links between them.
//!
//! Made from the TOML that `docs/clusters.md` describes ([`Cluster::from_toml`]), from hwloc's XML of one or more nodes
//! ([`hwloc`]), from what Slurm says about its nodes ([`slurm`]), or from a preset ([`preset`]). However it was made, it has
//! passed [`Cluster::check`]: names are unique, every node has a core, and sizes are within the limits below.

pub mod hwloc;
pub mod preset;
pub mod slurm;
mod text;

use std::collections::HashMap;
use std::path::Path;

use crate::{Error, Result};

/// Cores, sockets or GPUs of one node beyond which a description is taken for a mistake.
pub const MAX_PER_NODE: u32 = 4096;

/// Cores of a whole cluster; what is computed is in proportion to it.
pub const MAX_CORES: usize = 1 << 20;

/// Nodes that compute, servers that lend GPUs, and what joins them.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// A name for reports.
    pub name: String,
    /// The network between nodes.
    pub network: Network,
    /// The memory that messages within a node go through.
    pub memory: Memory,
    /// The nodes that tasks run on.
    pub nodes: Vec<Node>,
    /// Nodes whose GPUs programs use over the network; no tasks go there.
    pub gpu_servers: Vec<Node>,
    /// Its switches; none: one that never blocks.
    pub switches: Vec<Switch>,
    /// The GPUs of nodes and servers.
    pub gpu: Gpu,
}

/// What joins nodes: each has a link to its switch, as fast in one direction as in the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// A name for reports.
    pub name: String,
    /// Of one node's link, in one direction, in bytes per second.
    pub bandwidth: f64,
    /// From a program on one node to one on another, of a message without contents.
    pub latency_s: f64,
    /// What each end's processor is kept busy with a message.
    pub overhead_s: f64,
    /// The largest message that is sent before its receiver asks for it.
    pub eager_bytes: f64,
}

/// What messages within a node go through.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Of all messages within one socket together.
    pub bandwidth: f64,
    /// Of a message without contents, in seconds.
    pub latency_s: f64,
    /// Between the sockets of a node, in one direction.
    pub socket_link: f64,
}

/// One machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The host name.
    pub name: String,
    /// Cores of each socket.
    pub sockets: Vec<u32>,
    /// Hardware threads of a core.
    pub threads: u32,
    /// Of one core that has its socket to itself, in operations per second.
    pub core_speed: f64,
    /// Of one socket's memory, as its cores together draw it.
    pub memory_bandwidth: f64,
    /// How much more two hardware threads do than one; 1 is nothing.
    pub threads_gain: f64,
    /// Its GPUs.
    pub gpus: u32,
    /// Index into [`Cluster::switches`]; without switches all nodes hang on one that never blocks.
    pub switch: Option<usize>,
    /// Power without work, GPUs apart, in watts.
    pub idle_w: f64,
    /// With all cores busy, GPUs apart.
    pub busy_w: f64,
    /// Of the machine without GPUs, in any currency.
    pub price: f64,
}

/// What all GPUs of a cluster have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Between GPU and host memory, in bytes per second.
    pub link: f64,
    /// Power of one without work, in watts.
    pub idle_w: f64,
    /// Power of one at work, in watts.
    pub busy_w: f64,
    /// Of one, in any currency.
    pub price: f64,
}

/// A switch and its link to the rest of the network.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// A name for reports.
    pub name: String,
    /// In one direction, in bytes per second.
    pub uplink: f64,
}

impl Node {
    /// Cores of all its sockets.
    pub fn cores(&self) -> u32 {
        self.sockets.iter().sum()
    }

    /// Which socket a core belongs to, and its number there. Cores count through the sockets.
    pub fn socket_of(&self, core: u32) -> Option<(u32, u32)> {
        let mut first = 0;
        for (socket, &cores) in (0..).zip(&self.sockets) {
            if core < first + cores {
                return Some((socket, core - first));
            }
            first += cores;
        }
        None
    }

    /// The number in the node of a socket's first core.
    pub fn first_core(&self, socket: u32) -> u32 {
        self.sockets.iter().take(socket as usize).sum()
    }
}

impl Cluster {
    /// Reads the project's own description; `what` names it in errors.
    pub fn from_toml(text: &str, what: &str) -> Result<Self> {
        text::parse(text, what)
    }

    /// Reads a description from a file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = crate::read_text(path)?;
        Self::from_toml(&text, &path.display().to_string())
    }

    /// Cores of all nodes.
    pub fn cores(&self) -> usize {
        self.nodes.iter().map(|node| node.cores() as usize).sum()
    }

    /// Cores times hardware threads.
    pub fn threads(&self) -> usize {
        let of = |node: &Node| node.cores() as usize * node.threads as usize;
        self.nodes.iter().map(of).sum()
    }

    /// Index of a node.
    pub fn node_named(&self, name: &str) -> Result<usize> {
        self.nodes
            .iter()
            .position(|node| node.name == name)
            .ok_or_else(|| Error::UnknownNode(name.to_owned()))
    }

    /// The same cluster with only these nodes, in this order.
    pub fn only(&self, names: &[String]) -> Result<Self> {
        let by_name: HashMap<&str, &Node> = self
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node))
            .collect();
        let mut nodes = Vec::new();
        for name in names {
            let node = by_name
                .get(name.as_str())
                .ok_or_else(|| Error::UnknownNode(name.clone()))?;
            nodes.push((*node).clone());
        }
        let cluster = Self {
            nodes,
            ..self.clone()
        };
        cluster.check("--nodes")?;
        Ok(cluster)
    }

    /// What every description must keep to.
    fn check(&self, what: &str) -> Result<()> {
        let fail = |reason: String| {
            Err(Error::Cluster {
                what: what.to_owned(),
                reason,
            })
        };
        if self.nodes.is_empty() {
            return fail("it has no nodes".to_owned());
        }
        let mut names = HashMap::new();
        for node in self.nodes.iter().chain(&self.gpu_servers) {
            if names.insert(node.name.as_str(), ()).is_some() {
                return fail(format!("node `{}` is there twice", node.name));
            }
            let within = |n: u32| n <= MAX_PER_NODE;
            let cores = node
                .sockets
                .iter()
                .map(|&cores| u64::from(cores))
                .sum::<u64>();
            if node.sockets.contains(&0) || cores == 0 {
                return fail(format!("node `{}` has a socket without cores", node.name));
            }
            if cores > u64::from(MAX_PER_NODE)
                || !within(node.gpus)
                || !(1..=8).contains(&node.threads)
            {
                return fail(format!(
                    "node `{}` has more than {MAX_PER_NODE} cores or GPUs, or not 1 to 8 threads a core",
                    node.name
                ));
            }
            let positive = [node.core_speed, node.memory_bandwidth, node.threads_gain];
            if !positive
                .iter()
                .all(|value| value.is_finite() && *value > 0.0)
            {
                return fail(format!(
                    "core_speed, memory_bandwidth and threads_gain of node `{}` must be more than 0",
                    node.name
                ));
            }
        }
        if self.cores() > MAX_CORES {
            return fail(format!("it has more than {MAX_CORES} cores"));
        }
        let rates = [
            self.network.bandwidth,
            self.memory.bandwidth,
            self.memory.socket_link,
            self.gpu.link,
        ];
        let uplinks = self.switches.iter().map(|switch| switch.uplink);
        if rates.into_iter().chain(uplinks).any(|rate| rate <= 0.0) {
            return fail("every bandwidth must be more than 0".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) fn sample(nodes: u32, sockets: u32, cores: u32) -> Cluster {
    let text = format!(
        "name = \"sample\"\n[network]\nname = \"ib\"\nbandwidth = \"3.2 GB/s\"\nlatency = \"1.3 us\"\n\
         [[nodes]]\nnames = \"n[0-{}]\"\nsockets = {sockets}\ncores = {cores}\nthreads = 2\n\
         core_speed = \"1 Gflop/s\"\nmemory_bandwidth = \"20 GB/s\"\n",
        nodes - 1
    );
    Cluster::from_toml(&text, "sample").expect("the sample is right")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_count_through_the_sockets() {
        let cluster = sample(4, 2, 6);
        let node = &cluster.nodes[0];
        assert_eq!((cluster.cores(), cluster.threads()), (48, 96));
        assert_eq!(node.socket_of(7), Some((1, 1)));
        assert_eq!(node.socket_of(12), None);
        assert_eq!(node.first_core(1), 6);
    }

    #[test]
    fn a_choice_of_nodes_keeps_its_order_and_refuses_strangers() {
        let cluster = sample(4, 1, 2);
        let chosen = cluster.only(&["n2".to_owned(), "n0".to_owned()]).unwrap();
        assert_eq!(chosen.nodes[0].name, "n2");
        let error = cluster.only(&["n9".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`n9`"), "{error}");
        assert!(cluster.only(&["n1".to_owned(), "n1".to_owned()]).is_err());
    }
}
