//! Placements that do not know the program.

use std::fmt;
use std::str::FromStr;

use crate::cluster::Node;
use crate::{Cluster, Error, Placement, Result, Slot};

/// A rule that any launcher can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Node after node, each filled before the next.
    Block,
    /// One rank to each node in turn, cores of a node in order.
    Cyclic,
    /// n ranks to each node in turn, cores of a node in order: Slurm's `-m plane=n`.
    Plane(u32),
    /// n ranks to each node in turn, those n on one socket if it has room, turns spread over the sockets: the study's n-core
    /// round robin.
    RoundRobin(u32),
}

impl Policy {
    /// What is tried when nobody says what to try.
    pub fn usual(cluster: &Cluster) -> Vec<Self> {
        let node = cluster.nodes.iter().map(Node::cores).max().unwrap_or(1);
        let socket = cluster
            .nodes
            .iter()
            .flat_map(|node| &node.sockets)
            .copied()
            .max();
        let mut sizes = vec![1, 2, socket.unwrap_or(1), node];
        sizes.sort_unstable();
        sizes.dedup();
        let turns = sizes.iter().map(|&size| Self::RoundRobin(size));
        let planes = sizes
            .iter()
            .filter(|&&size| size > 1 && size < node)
            .map(|&size| Self::Plane(size));
        turns
            .chain([Self::Block, Self::Cyclic])
            .chain(planes)
            .collect()
    }

    /// Places `tasks` ranks. More ranks than cores go on the cores' further hardware threads where `threads` allows it.
    pub fn place(self, cluster: &Cluster, tasks: usize, threads: bool) -> Result<Placement> {
        check_room(cluster, tasks, threads)?;
        let mut nodes: Vec<Free> = cluster
            .nodes
            .iter()
            .map(|node| Free::new(node, threads))
            .collect();
        let mut slots = Vec::with_capacity(tasks);
        let mut turn = 0;
        while slots.len() < tasks {
            let index = turn % nodes.len();
            turn += 1;
            let (free, node) = (&mut nodes[index], &cluster.nodes[index]);
            let size = match self {
                Self::Block => node.cores(),
                Self::Cyclic => 1,
                Self::Plane(size) | Self::RoundRobin(size) => size.max(1),
            };
            let size = (size as usize).min(tasks - slots.len());
            let cores = match self {
                Self::RoundRobin(_) => free.together(size),
                _ => free.in_order(size),
            };
            slots.extend(cores.into_iter().map(|(core, thread)| Slot {
                node: index as u32,
                core,
                thread,
            }));
        }
        Placement::new(self.to_string(), slots, cluster)
    }
}

/// Whether so many ranks have a place at all.
pub(crate) fn check_room(cluster: &Cluster, tasks: usize, threads: bool) -> Result<()> {
    if tasks == 0 {
        return Err(Error::Size("there are no tasks to place".to_owned()));
    }
    let (cores, all) = (cluster.cores(), cluster.threads());
    let room = if threads { all } else { cores };
    if tasks <= room {
        return Ok(());
    }
    Err(Error::TooFewCores {
        tasks,
        cores,
        nodes: cluster.nodes.len(),
        hint: match tasks <= all {
            true => ", or allow the cores' further hardware threads with --threads",
            false => "",
        },
    })
}

/// What of a node is not yet given away. Further hardware threads open up when all cores are taken.
struct Free {
    /// Of each socket: its first core, how many cores are free, how many it has.
    sockets: Vec<(u32, u32, u32)>,
    thread: u32,
    threads: u32,
}

impl Free {
    fn new(node: &Node, threads: bool) -> Self {
        let mut first = 0;
        let sockets = node.sockets.iter().map(|&cores| {
            let socket = (first, cores, cores);
            first += cores;
            socket
        });
        Self {
            sockets: sockets.collect(),
            thread: 0,
            threads: if threads { node.threads } else { 1 },
        }
    }

    fn take(&mut self, socket: usize) -> (u32, u32) {
        let (first, free, cores) = &mut self.sockets[socket];
        let slot = (*first + (*cores - *free), self.thread);
        *free -= 1;
        if self.sockets.iter().all(|(_, free, _)| *free == 0) && self.thread + 1 < self.threads {
            self.thread += 1;
            for (_, free, cores) in &mut self.sockets {
                *free = *cores;
            }
        }
        slot
    }

    fn in_order(&mut self, size: usize) -> Vec<(u32, u32)> {
        let mut taken = Vec::new();
        while taken.len() < size {
            match self.sockets.iter().position(|(_, free, _)| *free > 0) {
                Some(socket) => taken.push(self.take(socket)),
                None => break,
            }
        }
        taken
    }

    /// On the socket with the most room if it has enough of it, else socket after socket.
    fn together(&mut self, size: usize) -> Vec<(u32, u32)> {
        let roomiest =
            (0..self.sockets.len()).min_by_key(|&socket| u32::MAX - self.sockets[socket].1);
        match roomiest {
            Some(socket) if self.sockets[socket].1 as usize >= size => {
                (0..size).map(|_| self.take(socket)).collect()
            }
            _ => self.in_order(size),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("block"),
            Self::Cyclic => f.write_str("cyclic"),
            Self::Plane(size) => write!(f, "plane:{size}"),
            Self::RoundRobin(size) => write!(f, "rr:{size}"),
        }
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::Size(format!(
                "`{text}` is no policy; there are block, cyclic, plane:N, rr:N and mapped"
            ))
        };
        let size = |size: &str| match size.parse() {
            Ok(size) if (1..=crate::cluster::MAX_PER_NODE).contains(&size) => Ok(size),
            _ => Err(wrong()),
        };
        match text.split_once(':') {
            None if text == "block" => Ok(Self::Block),
            None if text == "cyclic" => Ok(Self::Cyclic),
            Some(("plane", n)) => size(n).map(Self::Plane),
            Some(("rr", n)) => size(n).map(Self::RoundRobin),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::sample;

    fn nodes(policy: &str, tasks: usize) -> Vec<u32> {
        let policy: Policy = policy.parse().unwrap();
        let placement = policy.place(&sample(3, 2, 2), tasks, false).unwrap();
        placement.slots.iter().map(|slot| slot.node).collect()
    }

    #[test]
    fn ranks_go_to_nodes_in_turns() {
        assert_eq!(nodes("rr:1", 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(nodes("cyclic", 4), [0, 1, 2, 0]);
        assert_eq!(nodes("rr:2", 8), [0, 0, 1, 1, 2, 2, 0, 0]);
        assert_eq!(nodes("plane:3", 12), [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 1, 2]);
        assert_eq!(nodes("block", 6), [0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn turns_of_a_round_robin_spread_over_sockets_and_planes_do_not() {
        let cores = |policy: Policy| -> Vec<u32> {
            let placement = policy.place(&sample(1, 2, 4), 4, false).unwrap();
            placement.slots.iter().map(|slot| slot.core).collect()
        };
        assert_eq!(cores(Policy::RoundRobin(1)), [0, 4, 1, 5]);
        assert_eq!(cores(Policy::RoundRobin(2)), [0, 1, 4, 5]);
        assert_eq!(cores(Policy::Plane(2)), [0, 1, 2, 3]);
    }

    #[test]
    fn more_tasks_than_cores_need_leave_to_share_them() {
        let cluster = sample(1, 2, 2);
        let error = Policy::Block
            .place(&cluster, 5, false)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("4 cores") && error.contains("--threads"),
            "{error}"
        );
        let placement = Policy::Block.place(&cluster, 8, true).unwrap();
        assert_eq!(
            placement.slots[4],
            Slot {
                node: 0,
                core: 0,
                thread: 1
            }
        );
        assert!(Policy::Block.place(&cluster, 9, true).is_err());
        assert!(Policy::Block.place(&cluster, 0, true).is_err());
    }

    #[test]
    fn names_read_back() {
        for policy in Policy::usual(&sample(2, 2, 6)) {
            assert_eq!(policy.to_string().parse::<Policy>().unwrap(), policy);
        }
        for text in ["rr", "rr:0", "rr:x", "plane:-1", "best", "rr:99999999999"] {
            assert!(text.parse::<Policy>().is_err(), "{text}");
        }
    }
}
