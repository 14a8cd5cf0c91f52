//! What a placement is worth: an estimate of the time that the slowest part of the cluster needs.
//!
//! Two terms matter and pull in opposite ways. Ranks on one socket share its memory, so that programs bound by memory want to be
//! spread; bytes between nodes share the nodes' links, so that neighbours want to be together. The estimate is
//!
//! - of the busiest socket: its computation, slowed down by what its memory cannot feed ([`Sockets`]), plus
//! - of the busiest link: its bytes over its bandwidth, plus
//! - of the busiest rank: the latencies of its messages, plus
//! - of the busiest GPU or GPU server's link, for programs that use any.
//!
//! It knows no order of events: it ranks placements, it predicts no times. The simulator does know.

use crate::cluster::Node;
use crate::gpus::{self, Assignment, Pool};
use crate::{Cluster, Error, Matrix, Placement, Result, Slot};

/// How a socket slows its cores down.
///
/// With n ranks it does the work of [`Self::capacity`] cores. Either a rank's demand of memory bandwidth says how many that are,
/// or the curve that was measured with 1 to n copies of the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sockets {
    /// Cores' worth of work that a socket does at most, as fitted by `towline calibrate`; none: from the demand.
    pub saturation: Option<f64>,
}

impl Sockets {
    /// Cores' worth of work that a socket of `cores` cores does with `n` ranks.
    pub fn capacity(&self, node: &Node, cores: u32, n: u32, demand: f64) -> f64 {
        let memory = match (self.saturation, demand > 0.0) {
            (Some(cores), _) => cores.max(1.0),
            // One rank alone is never slowed down: what it draws alone is what it can draw.
            (None, true) => (node.memory_bandwidth / demand).max(1.0),
            (None, false) => f64::INFINITY,
        };
        let threads = match n > cores {
            true => f64::from(cores) * node.threads_gain,
            false => f64::from(n),
        };
        threads.min(memory)
    }
}

/// The estimate and what it is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The sum of the four: what placements are compared by.
    pub total_s: f64,
    /// Time of the slowest rank's computing.
    pub compute_s: f64,
    /// Time of the busiest link.
    pub link_s: f64,
    /// Time of the messages' latencies.
    pub latency_s: f64,
    /// Of the busiest GPU, or of the link to the busiest GPU server; 0 until [`Score::add_gpus`].
    pub gpu_s: f64,
    /// Bytes between nodes.
    pub cross_bytes: f64,
    /// Bytes of all messages.
    pub all_bytes: f64,
    /// The link that takes longest, with its bytes.
    pub busiest_link: Option<(String, f64)>,
    /// Most ranks on a socket.
    pub socket_ranks: u32,
    /// Time of computing there against that alone.
    pub slowdown: f64,
}

impl Score {
    /// Counts the GPUs that ranks were given.
    pub fn add_gpus(&mut self, gpus: &Assignment) {
        self.gpu_s = gpus.busiest_gpu_s.max(gpus.busiest_link_s);
        self.total_s += self.gpu_s;
    }

    /// The share of bytes that crosses nodes.
    pub fn cross_share(&self) -> f64 {
        if self.all_bytes > 0.0 {
            self.cross_bytes / self.all_bytes
        } else {
            0.0
        }
    }
}

/// Scores a placement.
pub fn score(
    cluster: &Cluster,
    matrix: &Matrix,
    sockets: &Sockets,
    placement: &Placement,
) -> Result<Score> {
    if placement.ranks() != matrix.ranks() {
        return Err(Error::OtherRanks {
            placed: placement.ranks(),
            ranks: matrix.ranks(),
        });
    }
    Ok(Loads::new(cluster, matrix, sockets, &placement.slots).score())
}

/// Scores a placement together with the GPUs that its ranks are given; an error if a rank finds none.
pub fn score_with_gpus(
    cluster: &Cluster,
    matrix: &Matrix,
    sockets: &Sockets,
    placement: &Placement,
    pool: Pool,
) -> Result<(Score, Option<Assignment>)> {
    let mut score = score(cluster, matrix, sockets, placement)?;
    let gpus = gpus::assign_if_used(cluster, matrix, placement, pool)?;
    if let Some(gpus) = &gpus {
        score.add_gpus(gpus);
    }
    Ok((score, gpus))
}

/// A rank's traffic with a peer, both ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) peer: u32,
    pub(crate) out: f64,
    pub(crate) back: f64,
    /// Half of the messages both ways.
    messages: f64,
}

/// The loads of links and sockets under a placement that is being changed.
pub(crate) struct Loads<'a> {
    cluster: &'a Cluster,
    matrix: &'a Matrix,
    sockets: &'a Sockets,
    pub(crate) edges: Vec<Vec<Edge>>,
    pub(crate) slots: Vec<Slot>,
    /// Bytes over each link; see [`Self::path`] for which are which.
    links: Vec<f64>,
    rates: Vec<f64>,
    /// The first socket of each node among all.
    first_socket: Vec<usize>,
    /// Of each socket: its ranks and the seconds they compute.
    busy: Vec<(u32, f64)>,
    latency: Vec<f64>,
}

impl<'a> Loads<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        matrix: &'a Matrix,
        sockets: &'a Sockets,
        slots: &[Slot],
    ) -> Self {
        let nodes = cluster.nodes.len();
        let mut first_socket = Vec::with_capacity(nodes);
        let mut total = 0;
        for node in &cluster.nodes {
            first_socket.push(total);
            total += node.sockets.len();
        }
        let (network, memory) = (&cluster.network, &cluster.memory);
        let rates = std::iter::repeat_n(network.bandwidth, 2 * nodes)
            .chain(
                cluster
                    .switches
                    .iter()
                    .flat_map(|switch| [switch.uplink; 2]),
            )
            .chain(std::iter::repeat_n(memory.socket_link, 2 * total))
            .chain(std::iter::repeat_n(memory.bandwidth, total));
        let rates: Vec<f64> = rates.collect();
        let mut loads = Self {
            cluster,
            matrix,
            sockets,
            edges: edges(matrix),
            slots: slots.to_vec(),
            links: vec![0.0; rates.len()],
            rates,
            first_socket,
            busy: vec![(0, 0.0); total],
            latency: vec![0.0; slots.len()],
        };
        for rank in 0..slots.len() {
            loads.occupy(rank, 1.0);
            for index in 0..loads.edges[rank].len() {
                let edge = loads.edges[rank][index];
                // Each pair is in two lists: its bytes count at the sender.
                loads.carry(
                    loads.slots[rank],
                    loads.slots[edge.peer as usize],
                    edge.out,
                    1.0,
                );
                loads.latency[rank] += edge.messages * loads.delay(rank, edge.peer as usize);
            }
        }
        loads
    }

    fn socket(&self, slot: Slot) -> usize {
        let node = &self.cluster.nodes[slot.node as usize];
        let (socket, _) = node.socket_of(slot.core).expect("placements are checked");
        self.first_socket[slot.node as usize] + socket as usize
    }

    pub(crate) fn is_one_socket(&self, a: Slot, b: Slot) -> bool {
        a.node == b.node && self.socket(a) == self.socket(b)
    }

    fn occupy(&mut self, rank: usize, sign: f64) {
        let slot = self.slots[rank];
        let socket = self.socket(slot);
        let speed = self.cluster.nodes[slot.node as usize].core_speed;
        let (ranks, seconds) = &mut self.busy[socket];
        *ranks = if sign > 0.0 { *ranks + 1 } else { *ranks - 1 };
        *seconds += sign * self.matrix.compute_s(rank, speed);
    }

    /// Which links bytes from one slot to another go over: out of the node, its switch's uplink, down again and into the
    /// node; or out of a socket and into another; or the memory of one socket.
    fn path(&self, from: Slot, to: Slot) -> ([usize; 4], usize) {
        let nodes = self.cluster.nodes.len();
        let switches = 2 * nodes;
        let sockets = switches + 2 * self.cluster.switches.len();
        let memory = sockets + 2 * self.busy.len();
        let (a, b) = (from.node as usize, to.node as usize);
        if a != b {
            return match (self.cluster.nodes[a].switch, self.cluster.nodes[b].switch) {
                (Some(x), Some(y)) if x != y => (
                    [2 * a, switches + 2 * x, switches + 2 * y + 1, 2 * b + 1],
                    4,
                ),
                _ => ([2 * a, 2 * b + 1, 0, 0], 2),
            };
        }
        let (a, b) = (self.socket(from), self.socket(to));
        match a == b {
            true => ([memory + a, 0, 0, 0], 1),
            false => ([sockets + 2 * a, sockets + 2 * b + 1, 0, 0], 2),
        }
    }

    fn carry(&mut self, from: Slot, to: Slot, bytes: f64, sign: f64) {
        let (path, length) = self.path(from, to);
        for &link in &path[..length] {
            self.links[link] += sign * bytes;
        }
    }

    fn delay(&self, rank: usize, peer: usize) -> f64 {
        let network = &self.cluster.network;
        match self.slots[rank].node == self.slots[peer].node {
            true => self.cluster.memory.latency_s + network.overhead_s,
            false => network.latency_s + 2.0 * network.overhead_s,
        }
    }

    /// Takes a rank's traffic away (-1) or puts it back (1), at both ends.
    fn touch(&mut self, rank: usize, sign: f64) {
        self.occupy(rank, sign);
        for index in 0..self.edges[rank].len() {
            let Edge {
                peer,
                out,
                back,
                messages,
            } = self.edges[rank][index];
            let (mine, theirs) = (self.slots[rank], self.slots[peer as usize]);
            self.carry(mine, theirs, out, sign);
            self.carry(theirs, mine, back, sign);
            let delay = sign * messages * self.delay(rank, peer as usize);
            self.latency[rank] += delay;
            self.latency[peer as usize] += delay;
        }
    }

    pub(crate) fn shift(&mut self, rank: usize, to: Slot) {
        self.touch(rank, -1.0);
        self.slots[rank] = to;
        self.touch(rank, 1.0);
    }

    pub(crate) fn swap(&mut self, a: usize, b: usize) {
        let (from, to) = (self.slots[a], self.slots[b]);
        self.shift(a, to);
        self.shift(b, from);
    }

    fn slowest_socket(&self) -> (f64, u32, f64) {
        let mut worst = (0.0, 0, 1.0);
        for (node, &first) in self.cluster.nodes.iter().zip(&self.first_socket) {
            for (socket, &cores) in node.sockets.iter().enumerate() {
                let (ranks, seconds) = self.busy[first + socket];
                if ranks == 0 {
                    continue;
                }
                let capacity =
                    self.sockets
                        .capacity(node, cores, ranks, self.matrix.demand(node.core_speed));
                let time = seconds / capacity;
                let slowdown = f64::from(ranks) / capacity;
                if time > worst.0 || (time == worst.0 && slowdown > worst.2) || worst.1 == 0 {
                    worst = (time, ranks, slowdown);
                }
            }
        }
        worst
    }

    fn slowest_link(&self) -> (usize, f64) {
        let mut worst = (0, 0.0);
        for (index, (bytes, rate)) in self.links.iter().zip(&self.rates).enumerate() {
            if bytes / rate > worst.1 {
                worst = (index, bytes / rate);
            }
        }
        worst
    }

    fn slowest_rank(&self) -> f64 {
        self.latency.iter().copied().fold(0.0, f64::max)
    }

    /// What a search descends: the estimate, and a little of the sum over all links, which still falls where the busiest link
    /// does not change.
    pub(crate) fn objective(&self) -> f64 {
        let total = self.slowest_socket().0 + self.slowest_link().1 + self.slowest_rank();
        let used: f64 = self
            .links
            .iter()
            .zip(&self.rates)
            .map(|(bytes, rate)| bytes / rate)
            .sum();
        let waits: f64 = self.latency.iter().sum();
        total
            + 0.2
                * (used / self.cluster.nodes.len() as f64
                    + waits / self.latency.len().max(1) as f64)
    }

    pub(crate) fn score(&self) -> Score {
        let (compute_s, socket_ranks, slowdown) = self.slowest_socket();
        let (link, link_s) = self.slowest_link();
        let latency_s = self.slowest_rank();
        let out = self
            .links
            .iter()
            .take(2 * self.cluster.nodes.len())
            .step_by(2);
        Score {
            total_s: compute_s + link_s + latency_s,
            compute_s,
            link_s,
            latency_s,
            gpu_s: 0.0,
            cross_bytes: out.sum(),
            all_bytes: self.matrix.bytes(),
            busiest_link: (link_s > 0.0).then(|| (self.link_name(link), self.links[link])),
            socket_ranks,
            slowdown,
        }
    }

    fn link_name(&self, link: usize) -> String {
        let nodes = 2 * self.cluster.nodes.len();
        let switches = nodes + 2 * self.cluster.switches.len();
        let sockets = switches + 2 * self.busy.len();
        let way = |index: usize| {
            if index.is_multiple_of(2) {
                "out of"
            } else {
                "into"
            }
        };
        let place = |socket: usize| {
            let node = self.first_socket.partition_point(|&first| first <= socket) - 1;
            format!(
                "socket {} of {}",
                socket - self.first_socket[node],
                self.cluster.nodes[node].name
            )
        };
        match link {
            link if link < nodes => format!("{} {}", way(link), self.cluster.nodes[link / 2].name),
            link if link < switches => {
                format!(
                    "{} switch {}",
                    way(link - nodes),
                    self.cluster.switches[(link - nodes) / 2].name
                )
            }
            link if link < sockets => {
                format!("{} {}", way(link - switches), place((link - switches) / 2))
            }
            link => format!("within {}", place(link - sockets)),
        }
    }
}

/// Each rank's traffic with each peer, both ways.
fn edges(matrix: &Matrix) -> Vec<Vec<Edge>> {
    let mut edges: Vec<Vec<Edge>> = vec![Vec::new(); matrix.ranks()];
    for (rank, sent) in (0..).zip(&matrix.sent) {
        for traffic in sent {
            let edge = |peer, out, back| Edge {
                peer,
                out,
                back,
                messages: traffic.messages / 2.0,
            };
            edges[rank as usize].push(edge(traffic.peer, traffic.bytes, 0.0));
            edges[traffic.peer as usize].push(edge(rank, 0.0, traffic.bytes));
        }
    }
    for list in &mut edges {
        list.sort_by_key(|edge| edge.peer);
        list.dedup_by(|from, into| {
            let same = from.peer == into.peer;
            if same {
                into.out += from.out;
                into.back += from.back;
                into.messages += from.messages;
            }
            same
        });
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use crate::cluster::sample;
    use crate::program::declared::{Kernel, scrambled_halo};

    fn cross(policy: Policy) -> f64 {
        let matrix = Matrix::of(&scrambled_halo(6, 4, 1000));
        let cluster = sample(4, 1, 6);
        let placement = policy.place(&cluster, 24, false).unwrap();
        let score = score(&cluster, &matrix, &Sockets::default(), &placement).unwrap();
        score.cross_share()
    }

    #[test]
    fn scrambled_numbers_make_every_fixed_policy_cross_nodes() {
        // Of 48 edges; the last of the study's policies would need twelve cores.
        let edges = |policy| (48.0 * cross(policy)).round();
        let policies = [
            Policy::RoundRobin(1),
            Policy::RoundRobin(2),
            Policy::RoundRobin(6),
        ];
        assert_eq!(policies.map(edges), [37.0, 40.0, 37.0]);
    }

    #[test]
    fn moves_keep_the_loads_true() {
        let (cluster, matrix) = (
            sample(4, 2, 6),
            Matrix::of(&Kernel::Cg.program(32).unwrap()),
        );
        let sockets = Sockets::default();
        let placement = Policy::RoundRobin(2).place(&cluster, 32, false).unwrap();
        let mut loads = Loads::new(&cluster, &matrix, &sockets, &placement.slots);
        loads.swap(3, 17);
        loads.shift(
            5,
            Slot {
                node: 3,
                core: 11,
                thread: 0,
            },
        );
        let fresh = Loads::new(&cluster, &matrix, &sockets, &loads.slots);
        assert!((loads.objective() / fresh.objective() - 1.0).abs() < 1e-9);
        assert!((loads.score().cross_bytes / fresh.score().cross_bytes - 1.0).abs() < 1e-9);
    }

    #[test]
    fn memory_bound_ranks_want_to_be_spread_and_chatty_ones_together() {
        let cluster = sample(4, 2, 6);
        let total = |kernel: Kernel, policy: Policy, demand: f64, bytes: f64| {
            let mut matrix = Matrix::of(&kernel.program(16).unwrap());
            matrix.memory_demand = demand;
            matrix
                .sent
                .iter_mut()
                .flatten()
                .for_each(|traffic| traffic.bytes *= bytes);
            let placement = policy.place(&cluster, 16, false).unwrap();
            score(&cluster, &matrix, &Sockets::default(), &placement)
                .unwrap()
                .total_s
        };
        let (spread, together) = (Policy::RoundRobin(1), Policy::RoundRobin(12));
        assert!(total(Kernel::Cg, spread, 10e9, 1.0) < total(Kernel::Cg, together, 10e9, 1.0));
        assert!(total(Kernel::Lu, spread, 0.0, 1e3) > total(Kernel::Lu, together, 0.0, 1e3));
    }

    #[test]
    fn a_socket_gives_what_its_memory_can_feed() {
        let cluster = sample(1, 1, 6);
        let node = &cluster.nodes[0];
        let by_demand = |n| Sockets::default().capacity(node, 6, n, 8e9);
        assert_eq!([by_demand(1), by_demand(2), by_demand(6)], [1.0, 2.0, 2.5]);
        let fitted = Sockets {
            saturation: Some(3.5),
        };
        assert_eq!(fitted.capacity(node, 6, 6, 8e9), 3.5);
        assert_eq!(
            Sockets::default().capacity(node, 6, 12, 0.0),
            6.0 * node.threads_gain
        );
    }

    #[test]
    fn links_between_switches_carry_what_crosses_them() {
        let mut cluster = sample(2, 1, 2);
        let uplink = crate::cluster::Switch {
            name: "s".to_owned(),
            uplink: 1e6,
        };
        cluster.switches = vec![uplink.clone(), uplink];
        cluster.nodes[0].switch = Some(0);
        cluster.nodes[1].switch = Some(1);
        let matrix = Matrix::of(&scrambled_halo(2, 2, 1000));
        let placement = Policy::Block.place(&cluster, 4, false).unwrap();
        let score = score(&cluster, &matrix, &Sockets::default(), &placement).unwrap();
        assert!(score.busiest_link.unwrap().0.contains("switch"));
    }
}
