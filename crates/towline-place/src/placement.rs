//! Which rank runs where.

use crate::{Cluster, Error, Result};

/// One hardware thread of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// Index into [`Cluster::nodes`].
    pub node: u32,
    /// Number of the core in its node, through all sockets.
    pub core: u32,
    /// 0, or 1 and up when more tasks than cores are placed.
    pub thread: u32,
}

/// A slot for each rank; no slot twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// What it is called in tables: `rr:1`, `mapped`.
    pub name: String,
    /// Of each rank: its place.
    pub slots: Vec<Slot>,
}

impl Placement {
    /// Checks that every slot exists and is given once.
    pub fn new(name: impl Into<String>, slots: Vec<Slot>, cluster: &Cluster) -> Result<Self> {
        let name = name.into();
        let mut seen = std::collections::HashSet::new();
        for (rank, slot) in slots.iter().enumerate() {
            let node = cluster.nodes.get(slot.node as usize);
            if !node.is_some_and(|node| slot.core < node.cores() && slot.thread < node.threads) {
                return Err(Error::Size(format!(
                    "{name}: rank {rank} is on a core that does not exist"
                )));
            }
            if !seen.insert(*slot) {
                return Err(Error::Size(format!(
                    "{name}: rank {rank} is on a core that is taken"
                )));
            }
        }
        Ok(Self { name, slots })
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.slots.len()
    }

    /// Ranks of each node that has any, in the order of the cluster's nodes.
    pub fn by_node(&self, cluster: &Cluster) -> Vec<(usize, Vec<usize>)> {
        let mut nodes = vec![Vec::new(); cluster.nodes.len()];
        for (rank, slot) in self.slots.iter().enumerate() {
            nodes[slot.node as usize].push(rank);
        }
        let used = nodes.into_iter().enumerate();
        used.filter(|(_, ranks)| !ranks.is_empty()).collect()
    }

    /// One line per node: its name and ranks.
    pub fn table(&self, cluster: &Cluster) -> String {
        let mut text = String::new();
        for (node, ranks) in self.by_node(cluster) {
            let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
            text += &format!("{}: {}\n", cluster.nodes[node].name, ranks.join(" "));
        }
        text
    }
}
