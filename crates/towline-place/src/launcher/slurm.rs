//! Slurm: the hostfile of `--distribution=arbitrary`, which states the order of ranks exactly, and the head of a batch script.

use super::{Files, common_cores, hosts, list, on_core};
use crate::{Cluster, Placement, hostlist};

pub(super) fn write(cluster: &Cluster, placement: &Placement, files: &mut Files) {
    let lines = hosts(cluster, placement)
        .map(|host| format!("{host}\n"))
        .collect();
    files.add("slurm.hosts", Ok(lines));
    // Slurm numbers processors as the system does: cores first, further hardware threads after them, on most machines.
    let cores = common_cores(cluster, placement).map(|cores| list(&cores));
    let binding = |folder: &str| match &cores {
        Some(cores) => format!("--cpu-bind=map_cpu:{cores}"),
        None => format!("--cpu-bind=none {folder}/{}", on_core::NAME),
    };
    let batch = script(cluster, placement, &binding("\"$folder\""));
    files.add("slurm.sbatch", Ok(batch));
    files.commands.push((
        "Slurm, as a batch job",
        "sbatch slurm.sbatch PROGRAM".to_owned(),
    ));
    files.commands.push((
        "Slurm, in an exclusive allocation of these nodes",
        format!(
            "SLURM_HOSTFILE=slurm.hosts srun --ntasks={} --distribution=arbitrary {} PROGRAM",
            placement.ranks(),
            binding(".")
        ),
    ));
}

fn script(cluster: &Cluster, placement: &Placement, binding: &str) -> String {
    let nodes: Vec<String> = placement
        .by_node(cluster)
        .into_iter()
        .map(|(node, _)| cluster.nodes[node].name.clone())
        .collect();
    format!(
        "#!/bin/sh\n\
         #SBATCH --nodes={} --ntasks={}\n\
         #SBATCH --nodelist={}\n\
         #SBATCH --exclusive\n\
         # The order of ranks is in the file beside this one.\n\
         folder=${{TOWLINE_PLACE_DIR:-$SLURM_SUBMIT_DIR}}\n\
         export SLURM_HOSTFILE=\"$folder/slurm.hosts\"\n\
         exec srun --ntasks={} --distribution=arbitrary {binding} \"$@\"\n",
        nodes.len(),
        placement.ranks(),
        hostlist::compress(&nodes),
        placement.ranks(),
    )
}
