//! MPICH's process manager Hydra: a machinefile whose lines `HOST:COUNT` are used up in order.

use super::{Files, common_cores, hosts, list, only_cores};
use crate::{Cluster, Placement};

pub(super) fn write(cluster: &Cluster, placement: &Placement, files: &mut Files) {
    let ranks = placement.ranks();
    files.add("mpich.machines", Ok(machinefile(cluster, placement)));
    let binding = match (
        only_cores(placement, "MPICH's binding"),
        common_cores(cluster, placement),
    ) {
        (Ok(()), Some(cores)) => format!(" -bind-to user:{}", list(&cores)),
        (Err(error), _) => {
            files.missing.push(error.to_string());
            String::new()
        }
        (_, None) => {
            files.missing.push(
                "MPICH's binding: it has one list of cores for all nodes, and here the nodes differ".to_owned(),
            );
            String::new()
        }
    };
    files.commands.push((
        "MPICH",
        format!("mpiexec -n {ranks} -f mpich.machines{binding} PROGRAM"),
    ));
}

/// One line per run of ranks on one node.
fn machinefile(cluster: &Cluster, placement: &Placement) -> String {
    let mut runs: Vec<(&str, usize)> = Vec::new();
    for host in hosts(cluster, placement) {
        match runs.last_mut() {
            Some((last, count)) if *last == host => *count += 1,
            _ => runs.push((host, 1)),
        }
    }
    runs.into_iter()
        .map(|(host, count)| format!("{host}:{count}\n"))
        .collect()
}
