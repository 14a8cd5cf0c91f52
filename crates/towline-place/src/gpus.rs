//! Which rank uses which virtual GPU: of its own node, or of a server that lends them.

use std::fmt::Write;

use crate::{Cluster, Error, Matrix, Placement, Result};

/// One GPU of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuSlot {
    /// The machine that it is in.
    pub home: Home,
    /// Its number there.
    pub index: u32,
}

/// The machine that a GPU is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Home {
    /// Index into [`Cluster::nodes`].
    Node(usize),
    /// Index into [`Cluster::gpu_servers`].
    Server(usize),
}

/// A GPU for each rank that uses one.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// Of each rank: its GPU, if it uses one.
    pub gpus: Vec<Option<GpuSlot>>,
    /// The busiest GPU's seconds, kernels and copies.
    pub busiest_gpu_s: f64,
    /// The busiest server's link's seconds.
    pub busiest_link_s: f64,
}

/// Where a rank's GPU may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pool {
    /// In its own node.
    Local,
    /// In servers only.
    Servers,
    /// Wherever it is done first.
    #[default]
    Any,
}

/// Gives each rank that uses a GPU the one that would be done first: ranks in order of what they ask, largest first; GPUs and the
/// links of servers and nodes count what they were given already.
pub fn assign(
    cluster: &Cluster,
    matrix: &Matrix,
    placement: &Placement,
    pool: Pool,
) -> Result<Assignment> {
    let mut slots: Vec<GpuSlot> = Vec::new();
    let local = cluster
        .nodes
        .iter()
        .enumerate()
        .map(|(node, of)| (Home::Node(node), of.gpus));
    let remote = cluster
        .gpu_servers
        .iter()
        .enumerate()
        .map(|(server, of)| (Home::Server(server), of.gpus));
    for (home, gpus) in local.chain(remote) {
        slots.extend((0..gpus).map(|index| GpuSlot { home, index }));
    }
    let mut gpu_s = vec![0.0; slots.len()];
    let mut server_s = vec![0.0; cluster.gpu_servers.len()];
    let mut node_s = vec![0.0; cluster.nodes.len()];
    let mut order: Vec<usize> = (0..matrix.ranks())
        .filter(|&rank| !matrix.gpu[rank].is_none())
        .collect();
    order.sort_by(|&a, &b| {
        matrix.gpu[b]
            .seconds
            .total_cmp(&matrix.gpu[a].seconds)
            .then(a.cmp(&b))
    });
    let mut gpus = vec![None; matrix.ranks()];
    for rank in order {
        let (wanted, node) = (matrix.gpu[rank], placement.slots[rank].node as usize);
        let moved = wanted.up.max(wanted.down);
        let copies = (wanted.up + wanted.down) / cluster.gpu.link;
        let wire = moved / cluster.network.bandwidth + wanted.calls * cluster.network.latency_s;
        let done = |index: usize| {
            let gpu = gpu_s[index] + wanted.seconds + copies;
            match slots[index].home {
                Home::Node(home) => (home == node && pool != Pool::Servers).then_some(gpu),
                Home::Server(_) if pool == Pool::Local => None,
                Home::Server(server) => Some(f64::max(
                    gpu,
                    f64::max(server_s[server], node_s[node]) + wire,
                )),
            }
        };
        let best = (0..slots.len())
            .filter_map(|index| done(index).map(|time| (index, time)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((index, _)) = best else {
            let node = &cluster.nodes[node].name;
            return Err(Error::Size(match pool {
                Pool::Local => format!("rank {rank} needs a GPU, and its node {node} has none"),
                _ => {
                    format!("rank {rank} needs a GPU, and the cluster has no GPU that it could use")
                }
            }));
        };
        gpu_s[index] += wanted.seconds + copies;
        if let Home::Server(server) = slots[index].home {
            server_s[server] += wire;
            node_s[node] += wire;
        }
        gpus[rank] = Some(slots[index]);
    }
    let max = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    Ok(Assignment {
        gpus,
        busiest_gpu_s: max(&gpu_s),
        busiest_link_s: max(&server_s),
    })
}

/// [`assign`] for programs that use GPUs; none for others.
pub fn assign_if_used(
    cluster: &Cluster,
    matrix: &Matrix,
    placement: &Placement,
    pool: Pool,
) -> Result<Option<Assignment>> {
    let uses = matrix.gpu.iter().any(|used| !used.is_none());
    uses.then(|| assign(cluster, matrix, placement, pool))
        .transpose()
}

impl Assignment {
    fn machine<'a>(&self, cluster: &'a Cluster, slot: GpuSlot) -> &'a str {
        match slot.home {
            Home::Node(node) => &cluster.nodes[node].name,
            Home::Server(server) => &cluster.gpu_servers[server].name,
        }
    }

    /// A line per rank with a GPU: rank, machine, number.
    pub fn table(&self, cluster: &Cluster) -> String {
        let mut text = String::from("rank\tmachine\tgpu\n");
        for (rank, slot) in self.gpus.iter().enumerate() {
            if let Some(slot) = slot {
                let _ = writeln!(
                    text,
                    "{rank}\t{}\t{}",
                    self.machine(cluster, *slot),
                    slot.index
                );
            }
        }
        text
    }

    /// A shell script that gives its program the GPU of the rank it runs as: a local one by CUDA_VISIBLE_DEVICES, a server's by
    /// TOWLINE_SERVERS as well, for `towline run`.
    pub fn script(&self, cluster: &Cluster) -> String {
        let mut text = String::from(
            "#!/bin/sh\n\
             # Runs a program with the virtual GPU that `towline place` gave to this rank.\n\
             case ${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:?no launcher says which rank this is}}}} in\n",
        );
        for (rank, slot) in self.gpus.iter().enumerate() {
            let Some(slot) = slot else { continue };
            let index = slot.index;
            let _ = match slot.home {
                Home::Node(_) => writeln!(text, "{rank}) export CUDA_VISIBLE_DEVICES={index} ;;"),
                Home::Server(_) => writeln!(
                    text,
                    "{rank}) export TOWLINE_SERVERS={} CUDA_VISIBLE_DEVICES={index}; exec towline run -- \"$@\" ;;",
                    self.machine(cluster, *slot)
                ),
            };
        }
        text + "esac\nexec \"$@\"\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use crate::cluster::{preset, sample};
    use crate::program::declared::Kernel;

    #[test]
    fn ranks_of_a_node_share_its_gpus_evenly() {
        let cluster = preset::cluster("study-qdr").unwrap();
        let matrix = Matrix::of(&Kernel::StmvGpu.program(64).unwrap());
        let placement = Policy::Block.place(&cluster, 64, false).unwrap();
        let assignment = assign(&cluster, &matrix, &placement, Pool::Local).unwrap();
        for index in 0..2 {
            let slot = Some(GpuSlot {
                home: Home::Node(0),
                index,
            });
            assert_eq!(
                assignment.gpus.iter().filter(|gpu| **gpu == slot).count(),
                6
            );
        }
    }

    #[test]
    fn ranks_of_servers_spread_over_their_gpus_and_links() {
        let cluster = preset::cluster("two-leaves").unwrap();
        let matrix = Matrix::of(&Kernel::StmvGpu.program(16).unwrap());
        let placement = Policy::RoundRobin(1).place(&cluster, 16, false).unwrap();
        let assignment = assign(&cluster, &matrix, &placement, Pool::Any).unwrap();
        let mut used: Vec<_> = assignment
            .gpus
            .iter()
            .flatten()
            .map(|slot| format!("{slot:?}"))
            .collect();
        used.sort();
        used.dedup();
        assert_eq!(used.len(), 16, "16 ranks and 16 GPUs");
        assert!(assignment.script(&cluster).contains("TOWLINE_SERVERS=gpu"));
        assert!(assign(&cluster, &matrix, &placement, Pool::Local).is_err());
    }

    #[test]
    fn programs_without_gpus_get_none() {
        let (cluster, matrix) = (sample(2, 1, 2), Matrix::of(&Kernel::Cg.program(4).unwrap()));
        let placement = Policy::Block.place(&cluster, 4, false).unwrap();
        let assignment = assign(&cluster, &matrix, &placement, Pool::Any).unwrap();
        assert!(assignment.gpus.iter().all(Option::is_none));
    }
}
