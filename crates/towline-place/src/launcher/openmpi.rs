//! Open MPI 4 and 5: a hostfile for room, and the order of ranks by a rankfile (with cores) or a sequential hostfile.

use super::{Files, hosts, on_thread};
use crate::{Cluster, Error, Placement, Result};

pub(super) fn write(cluster: &Cluster, placement: &Placement, files: &mut Files) {
    let ranks = placement.ranks();
    files.add("openmpi.hosts", Ok(hostfile(cluster, placement)));
    files.add("openmpi.seq", Ok(sequence(cluster, placement)));
    if files.add("openmpi.ranks", rankfile(cluster, placement)) {
        files.commands.push((
            "Open MPI 4, ranks on their cores",
            format!("mpirun -np {ranks} --hostfile openmpi.hosts --rankfile openmpi.ranks PROGRAM"),
        ));
        files.commands.push((
            "Open MPI 5, ranks on their cores",
            format!("mpirun -np {ranks} --hostfile openmpi.hosts --map-by rankfile:file=openmpi.ranks PROGRAM"),
        ));
    } else {
        files.commands.push((
            "Open MPI 4, ranks on their hardware threads",
            format!("mpirun -np {ranks} --hostfile openmpi.seq --mca rmaps seq --bind-to none ./on-core PROGRAM"),
        ));
        files.commands.push((
            "Open MPI 5, ranks on their hardware threads",
            format!("mpirun -np {ranks} --hostfile openmpi.hosts --map-by seq:file=openmpi.seq --bind-to none ./on-core PROGRAM"),
        ));
    }
    files.commands.push((
        "Open MPI 4, ranks on their nodes, cores left to the system",
        format!("mpirun -np {ranks} --hostfile openmpi.seq --mca rmaps seq --bind-to none PROGRAM"),
    ));
    files.commands.push((
        "Open MPI 5, ranks on their nodes, cores left to the system",
        format!(
            "mpirun -np {ranks} --hostfile openmpi.hosts --map-by seq:file=openmpi.seq PROGRAM"
        ),
    ));
}

fn hostfile(cluster: &Cluster, placement: &Placement) -> String {
    let line = |(node, ranks): (usize, Vec<usize>)| {
        format!("{} slots={}\n", cluster.nodes[node].name, ranks.len())
    };
    placement.by_node(cluster).into_iter().map(line).collect()
}

fn rankfile(cluster: &Cluster, placement: &Placement) -> Result<String> {
    if let Some(rank) = on_thread(placement) {
        return Err(Error::Launcher {
            name: "Open MPI's rankfile",
            reason: format!(
                "rank {rank} is on a further hardware thread of a core that another rank has"
            ),
        });
    }
    let line = |(rank, (slot, host)): (usize, (&crate::Slot, &str))| {
        let node = &cluster.nodes[slot.node as usize];
        let (socket, core) = node.socket_of(slot.core).expect("placements are checked");
        format!("rank {rank}={host} slot={socket}:{core}\n")
    };
    let slots = placement.slots.iter().zip(hosts(cluster, placement));
    Ok(slots.enumerate().map(line).collect())
}

fn sequence(cluster: &Cluster, placement: &Placement) -> String {
    hosts(cluster, placement)
        .map(|host| format!("{host}\n"))
        .collect()
}
