//! The placement in the words of launchers: the files they read, and how to start them with these.
//!
//! A format that cannot say a placement says why ([`Error::Launcher`]) instead of writing something near it.

mod mpich;
mod on_core;
mod openmpi;
mod slurm;

use std::path::Path;

use crate::gpus::Assignment;
use crate::{Cluster, Error, Placement, Result};

/// What a folder for launchers holds.
#[derive(Debug, Default)]
pub struct Files {
    /// Name and contents.
    pub files: Vec<(&'static str, String)>,
    /// Commands that use them, with a line of explanation each.
    pub commands: Vec<(&'static str, String)>,
    /// What could not be said, and why.
    pub missing: Vec<String>,
}

/// Everything that can be written for this placement.
pub fn files(cluster: &Cluster, placement: &Placement, gpus: Option<&Assignment>) -> Files {
    let mut files = Files::default();
    openmpi::write(cluster, placement, &mut files);
    mpich::write(cluster, placement, &mut files);
    slurm::write(cluster, placement, &mut files);
    files
        .files
        .push((on_core::NAME, on_core::script(placement)));
    if let Some(gpus) = gpus {
        files.files.push(("gpus.tsv", gpus.table(cluster)));
        files.files.push(("with-gpu", gpus.script(cluster)));
        files.commands.push((
            "each rank with its virtual GPUs: put this before the program",
            "./with-gpu PROGRAM".to_owned(),
        ));
    }
    files
}

impl Files {
    /// Writes all into a folder, which is made, and a README with the commands.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let cannot = |path: &Path| {
            let path = path.to_owned();
            |source| Error::File {
                action: "write",
                path,
                source,
            }
        };
        std::fs::create_dir_all(folder).map_err(cannot(folder))?;
        let readme = ("README", self.readme());
        for (name, text) in self.files.iter().chain([&readme]) {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(cannot(&path))?;
        }
        for name in [on_core::NAME, "with-gpu"] {
            let script = folder.join(name);
            if script.exists() {
                use std::os::unix::fs::PermissionsExt;
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(&script, mode).map_err(cannot(&script))?;
            }
        }
        Ok(())
    }

    fn readme(&self) -> String {
        let mut text = String::new();
        for (what, command) in &self.commands {
            text += &format!("{what}:\n    {command}\n");
        }
        for missing in &self.missing {
            text += &format!("not written: {missing}\n");
        }
        text
    }

    fn add(&mut self, name: &'static str, text: Result<String>) -> bool {
        match text {
            Ok(text) => {
                self.files.push((name, text));
                true
            }
            Err(error) => {
                self.missing.push(error.to_string());
                false
            }
        }
    }
}

/// The name of each rank's node.
fn hosts<'a>(cluster: &'a Cluster, placement: &'a Placement) -> impl Iterator<Item = &'a str> {
    placement
        .slots
        .iter()
        .map(|slot| cluster.nodes[slot.node as usize].name.as_str())
}

/// The first rank on a further hardware thread of a core that another rank has. Rankfiles and lists of processors name cores; the names
/// of threads differ by machine.
fn on_thread(placement: &Placement) -> Option<usize> {
    placement.slots.iter().position(|slot| slot.thread > 0)
}

/// The cores of ranks by their number on the node, if that is the same on every node; a node with fewer ranks may stop early.
fn common_cores(cluster: &Cluster, placement: &Placement) -> Option<Vec<u32>> {
    if on_thread(placement).is_some() {
        return None;
    }
    let mut common: Vec<u32> = Vec::new();
    for (_, ranks) in placement.by_node(cluster) {
        let cores: Vec<u32> = ranks
            .iter()
            .map(|&rank| placement.slots[rank].core)
            .collect();
        let length = common.len().min(cores.len());
        if common[..length] != cores[..length] {
            return None;
        }
        if cores.len() > common.len() {
            common = cores;
        }
    }
    Some(common)
}

fn list(cores: &[u32]) -> String {
    let cores: Vec<String> = cores.iter().map(u32::to_string).collect();
    cores.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::sample;
    use crate::{Policy, Slot};

    fn written(policy: Policy, tasks: usize, threads: bool) -> Files {
        let cluster = sample(2, 2, 2);
        files(
            &cluster,
            &policy.place(&cluster, tasks, threads).unwrap(),
            None,
        )
    }

    fn text<'a>(files: &'a Files, name: &str) -> &'a str {
        let file = files.files.iter().find(|(known, _)| *known == name);
        file.map_or("", |(_, text)| text)
    }

    #[test]
    fn every_format_states_the_order_of_ranks() {
        let files = written(Policy::RoundRobin(2), 6, false);
        assert_eq!(text(&files, "openmpi.hosts"), "n0 slots=4\nn1 slots=2\n");
        let ranks = "rank 0=n0 slot=0:0\nrank 1=n0 slot=0:1\nrank 2=n1 slot=0:0\nrank 3=n1 slot=0:1\n\
                     rank 4=n0 slot=1:0\nrank 5=n0 slot=1:1\n";
        assert_eq!(text(&files, "openmpi.ranks"), ranks);
        assert_eq!(text(&files, "openmpi.seq"), "n0\nn0\nn1\nn1\nn0\nn0\n");
        assert_eq!(text(&files, "slurm.hosts"), text(&files, "openmpi.seq"));
        assert!(text(&files, "slurm.sbatch").contains("--nodelist=n[0-1]"));
        assert!(files.missing.is_empty(), "{:?}", files.missing);
    }

    /// Of each launcher, the command that says where ranks run to the core.
    fn commands(policy: Policy, tasks: usize, threads: bool) -> Vec<String> {
        let files = written(policy, tasks, threads);
        let exact = |what: &str| !what.contains("left to the system");
        let commands = files.commands.into_iter();
        let commands = commands.filter(|(what, _)| exact(what));
        commands.map(|(_, command)| command).collect()
    }

    #[test]
    fn mpich_binds_where_a_node_s_ranks_follow_each_other() {
        let mpich = |policy| {
            let commands = commands(policy, 6, false).into_iter();
            commands
                .filter(|command| command.starts_with("mpiexec"))
                .collect::<Vec<_>>()
        };
        let expected = "mpiexec -n 6 -f mpich.machines -bind-to user:0,1,2,3 PROGRAM";
        assert_eq!(mpich(Policy::Block), [expected]);
        let expected = "mpiexec -n 6 -f mpich.machines -bind-to none ./on-core PROGRAM";
        assert_eq!(mpich(Policy::RoundRobin(2)), [expected]);
    }

    #[test]
    fn hardware_threads_are_bound_by_the_script() {
        let files = written(Policy::RoundRobin(1), 12, true);
        assert_eq!(text(&files, "openmpi.ranks"), "");
        let reason = "hardware thread";
        assert!(files.missing.iter().any(|missing| missing.contains(reason)));
        assert_eq!(text(&files, "openmpi.seq").lines().count(), 12);
        assert!(text(&files, "on-core").contains(") core=3 thread=0 ;;\n"));
        assert!(text(&files, "on-core").contains(") core=0 thread=1 ;;\n"));
        assert!(text(&files, "slurm.sbatch").contains("--cpu-bind=none"));
        for command in commands(Policy::RoundRobin(1), 12, true) {
            let is_script = command.starts_with("sbatch");
            assert!(
                is_script || command.ends_with("./on-core PROGRAM"),
                "{command}"
            );
        }
    }

    #[test]
    fn cores_are_common_if_every_node_starts_alike() {
        let cluster = sample(2, 1, 4);
        let slot = |node, core| Slot {
            node,
            core,
            thread: 0,
        };
        let common = |slots: Vec<Slot>| {
            common_cores(&cluster, &Placement::new("x", slots, &cluster).unwrap())
        };
        assert_eq!(
            common(vec![slot(0, 0), slot(1, 0), slot(0, 2)]),
            Some(vec![0, 2])
        );
        assert_eq!(common(vec![slot(0, 0), slot(1, 1)]), None);
    }
}
