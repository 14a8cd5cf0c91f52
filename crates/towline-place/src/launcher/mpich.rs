//! MPICH's process manager Hydra: a machinefile whose lines `HOST:COUNT` are used up in order.

use super::{Files, common_cores, hosts, list, on_core};
use crate::{Cluster, Placement};

pub(super) fn write(cluster: &Cluster, placement: &Placement, files: &mut Files) {
    let ranks = placement.ranks();
    let runs = runs(cluster, placement);
    let lines = runs.iter().map(|(host, count)| format!("{host}:{count}\n"));
    files.add("mpich.machines", Ok(lines.collect()));
    let binding = match cores(cluster, placement, &runs) {
        Some(cores) => format!("-bind-to user:{}", list(&cores)),
        None => format!("-bind-to none ./{}", on_core::NAME),
    };
    // Within a Slurm job Hydra starts by srun, and waits for ever where a machinefile names a node twice.
    files.commands.push((
        "MPICH, outside of Slurm's jobs",
        format!("mpiexec -n {ranks} -f mpich.machines {binding} PROGRAM"),
    ));
}

/// The cores that ranks of a node take one after another, if Hydra can be told: it has one list for all nodes, starts each line of the
/// machinefile by itself, and begins the list anew there.
fn cores(cluster: &Cluster, placement: &Placement, runs: &[(&str, usize)]) -> Option<Vec<u32>> {
    let has_turns = runs.len() > placement.by_node(cluster).len();
    common_cores(cluster, placement).filter(|_| !has_turns)
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
