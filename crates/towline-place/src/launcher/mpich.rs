//! MPICH's process manager Hydra: a machinefile whose lines `HOST:COUNT` are used up in order.

use super::{Files, common_cores, hosts, list, only_cores};
use crate::{Cluster, Error, Placement, Result};

pub(super) fn write(cluster: &Cluster, placement: &Placement, files: &mut Files) {
    let ranks = placement.ranks();
    let runs = runs(cluster, placement);
    let lines = runs.iter().map(|(host, count)| format!("{host}:{count}\n"));
    files.add("mpich.machines", Ok(lines.collect()));
    let binding = match binding(cluster, placement, &runs) {
        Ok(cores) => format!(" -bind-to user:{}", list(&cores)),
        Err(error) => {
            files.missing.push(error.to_string());
            String::new()
        }
    };
    // Within a Slurm job Hydra starts by srun, and waits for ever where a machinefile names a node twice.
    files.commands.push((
        "MPICH, outside of Slurm's jobs",
        format!("mpiexec -n {ranks} -f mpich.machines{binding} PROGRAM"),
    ));
}

/// The list of cores that ranks of a node take one after another. Hydra starts each line of the machinefile by itself, and begins the
/// list anew there.
fn binding(cluster: &Cluster, placement: &Placement, runs: &[(&str, usize)]) -> Result<Vec<u32>> {
    const NAME: &str = "MPICH's binding";
    let cannot = |reason: &str| Error::Launcher {
        name: NAME,
        reason: reason.to_owned(),
    };
    only_cores(placement, NAME)?;
    if runs.len() > placement.by_node(cluster).len() {
        return Err(cannot(
            "it counts a node's cores anew at each turn, and here nodes have several turns",
        ));
    }
    common_cores(cluster, placement)
        .ok_or_else(|| cannot("it has one list of cores for all nodes, and here the nodes differ"))
}

/// The ranks in order, as runs on one node.
fn runs<'a>(cluster: &'a Cluster, placement: &'a Placement) -> Vec<(&'a str, usize)> {
    let mut runs: Vec<(&str, usize)> = Vec::new();
    for host in hosts(cluster, placement) {
        match runs.last_mut() {
            Some((last, count)) if *last == host => *count += 1,
            _ => runs.push((host, 1)),
        }
    }
    runs
}
