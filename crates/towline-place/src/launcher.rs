//! The placement in the words of launchers: the files they read, and how to start them with these.
//!
//! A format that cannot say a placement says why ([`Error::Launcher`]) instead of writing something near it.

mod mpich;
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
        let script = folder.join("with-gpu");
        if script.exists() {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&script, mode).map_err(cannot(&script))?;
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

/// Rankfiles and CPU lists name cores; two ranks on one core would need names of hardware threads, which differ by machine.
fn only_cores(placement: &Placement, name: &'static str) -> Result<()> {
    match placement.slots.iter().position(|slot| slot.thread > 0) {
        None => Ok(()),
        Some(rank) => Err(Error::Launcher {
            name,
            reason: format!(
                "rank {rank} is on a further hardware thread of a core that another rank has"
            ),
        }),
    }
}

/// The name of each rank's node.
fn hosts<'a>(cluster: &'a Cluster, placement: &'a Placement) -> impl Iterator<Item = &'a str> {
    placement
        .slots
        .iter()
        .map(|slot| cluster.nodes[slot.node as usize].name.as_str())
}

/// The cores of ranks by their number on the node, if that is the same on every node; a node with fewer ranks may stop early.
fn common_cores(cluster: &Cluster, placement: &Placement) -> Option<Vec<u32>> {
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
        let missing: Vec<&String> = files.missing.iter().collect();
        assert!(
            missing.len() == 1 && missing[0].contains("MPICH's binding"),
            "{missing:?}"
        );
    }

    #[test]
    fn mpich_binds_where_a_node_s_ranks_follow_each_other() {
        let command = |policy| {
            let files = written(policy, 6, false);
            let mut commands = files.commands.iter();
            let command = commands.find(|(what, _)| what.starts_with("MPICH"));
            (command.unwrap().1.clone(), files.missing)
        };
        let (block, missing) = command(Policy::Block);
        assert!(block.contains(" -bind-to user:0,1,2,3 "), "{block}");
        assert!(missing.is_empty(), "{missing:?}");
        let (turns, missing) = command(Policy::RoundRobin(2));
        assert!(!turns.contains("-bind-to"), "{turns}");
        assert!(missing[0].contains("several turns"), "{missing:?}");
    }

    #[test]
    fn what_a_format_cannot_say_is_not_written() {
        let files = written(Policy::RoundRobin(1), 12, true);
        assert_eq!(text(&files, "openmpi.ranks"), "");
        assert!(
            files
                .missing
                .iter()
                .any(|missing| missing.contains("hardware thread"))
        );
        assert_eq!(text(&files, "openmpi.seq").lines().count(), 12);
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
