//! The files that are written, given to the launchers themselves: real `mpirun` and `mpiexec` put ranks exactly where the
//! placement says.
//!
//! Nodes are emulated on one machine: the launchers reach each through a remote shell, and ours gives it a name of its own (a UTS
//! namespace) and nothing else. Cores are emulated by hwloc's synthetic topologies; that bindings take effect is tested on the
//! machine's own two cores.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use towline_place::program::declared::scrambled_halo;
use towline_place::score::Sockets;
use towline_place::{Cluster, Matrix, Placement, Policy, launcher, search};

/// Emulated nodes: more cores than any machine that runs this has, ranks do nothing.
const NODES: &str = "name = \"t\"\n[network]\nname = \"x\"\nbandwidth = \"1 GB/s\"\nlatency = \"5 us\"\n\
    [[nodes]]\nnames = \"alpha,beta,gamma,delta\"\nsockets = 2\ncores = 3\n";
const SYNTHETIC: &str = "pack:2 core:3 pu:1";

const SHELL: &str = "#!/bin/sh\n# MPICH passes ssh's -x.\n[ \"$1\" = -x ] && shift\nhost=$1; shift\n\
    exec unshare NAMESPACES sh -c 'hostname \"$0\"; exec sh -c \"$*\"' \"$host\" \"$@\"\n";

const SAY: &str = "echo \"at ${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-$PMI_RANK}} $(hostname)\"";

struct Case {
    folder: tempfile::TempDir,
    cluster: Cluster,
    placement: Placement,
}

impl Case {
    fn new(cluster: Cluster, placement: Placement) -> Self {
        let folder = tempfile::tempdir().unwrap();
        launcher::files(&cluster, &placement, None)
            .write(folder.path())
            .unwrap();
        let shell = folder.path().join("shell");
        let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        let namespaces = if root {
            "--uts"
        } else {
            "--map-root-user --uts"
        };
        fs::write(&shell, SHELL.replace("NAMESPACES", namespaces)).unwrap();
        fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            folder,
            cluster,
            placement,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ranks(&self) -> String {
        self.placement.ranks().to_string()
    }

    /// What the launcher's README says for it, with its program put in.
    fn command(&self, what: &str) -> Vec<String> {
        let readme = fs::read_to_string(self.path("README")).unwrap();
        let (_, rest) = readme
            .split_once(&format!("{what}:\n"))
            .unwrap_or_else(|| panic!("{what} in {readme}"));
        let line = rest.lines().next().unwrap();
        let words = line.split_whitespace().filter(|word| *word != "PROGRAM");
        words.map(str::to_owned).collect()
    }

    /// Runs a command of the README with more arguments before the program.
    fn run(&self, words: &[String], more: &[&str], program: &[&str]) -> String {
        let (name, arguments) = words.split_first().unwrap();
        let output = Command::new("timeout")
            .arg("120")
            .arg(name)
            .args(arguments)
            .args(more)
            .args(program)
            .current_dir(self.folder.path())
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("PRTE_ALLOW_RUN_AS_ROOT", "1")
            .env("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_plm_rsh_agent", self.path("shell"))
            .env("OMPI_MCA_plm", "rsh")
            .env("PRTE_MCA_plm_ssh_agent", self.path("shell"))
            .env("HWLOC_SYNTHETIC", SYNTHETIC)
            .env("HWLOC_THISSYSTEM", "0")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {text}");
        text
    }

    /// Where the ranks said they were.
    fn check_nodes(&self, text: &str) {
        let mut found = BTreeMap::new();
        for line in text.lines() {
            if let Some(("at", rest)) = line.split_once(' ') {
                let (rank, host) = rest.split_once(' ').unwrap();
                found.insert(rank.parse::<usize>().unwrap(), host.to_owned());
            }
        }
        let slots = self.placement.slots.iter().enumerate();
        let expected: BTreeMap<usize, String> = slots
            .map(|(rank, slot)| (rank, self.cluster.nodes[slot.node as usize].name.clone()))
            .collect();
        assert_eq!(found, expected, "{}: {text}", self.placement.name);
    }

    /// Where Open MPI's map binds the ranks: `[./B/.][././.]` after `App rank: N`.
    fn check_cores(&self, map: &str) {
        let mut found = BTreeMap::new();
        let mut rank = None;
        for line in map.lines() {
            if let Some((_, number)) = line.split_once("App rank: ") {
                rank = number.trim().parse::<usize>().ok();
            }
            if let Some((_, mask)) = line.split_once("Binding: ") {
                let cores: String = mask.chars().filter(|c| matches!(c, '.' | 'B')).collect();
                let bound: Vec<usize> = cores.match_indices('B').map(|(index, _)| index).collect();
                assert_eq!((cores.len(), bound.len()), (6, 1), "{line}");
                found.insert(rank.unwrap(), bound[0] as u32);
            }
        }
        let expected: BTreeMap<usize, u32> = self
            .placement
            .slots
            .iter()
            .map(|slot| slot.core)
            .enumerate()
            .collect();
        assert_eq!(found, expected, "{}: {map}", self.placement.name);
    }
}

fn cluster() -> Cluster {
    Cluster::from_toml(NODES, "test").unwrap()
}

/// The fixed policies, one that leaves cores free, and one that no rule describes.
fn cases() -> Vec<Case> {
    let cluster = cluster();
    let matrix = Matrix::of(&scrambled_halo(6, 4, 100_000));
    let mapped = search::search(&cluster, &matrix, &Sockets::default(), false).unwrap();
    let fixed = [("rr:2", 24), ("rr:1", 10), ("plane:4", 17), ("block", 9)];
    let fixed = fixed.map(|(policy, tasks)| {
        let policy: Policy = policy.parse().unwrap();
        policy.place(&cluster, tasks, false).unwrap()
    });
    let placements = fixed.into_iter().chain([mapped]);
    placements
        .map(|placement| Case::new(cluster.clone(), placement))
        .collect()
}

fn require(program: &str, package: &str) {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .unwrap();
    assert!(
        found.status.success(),
        "{program} is missing: install {package}, or run `scripts/setup test`"
    );
}

#[test]
fn open_mpi_4_follows_the_rankfile_to_nodes_and_cores() {
    require("mpirun.openmpi", "openmpi-bin");
    for case in cases() {
        let mut words = case.command("Open MPI 4, ranks on their cores");
        words[0] = "mpirun.openmpi".to_owned();
        let text = case.run(&words, &["--display-devel-map"], &["sh", "-c", SAY]);
        case.check_nodes(&text);
        case.check_cores(&text);
    }
}

#[test]
fn open_mpi_4_follows_the_sequence() {
    require("mpirun.openmpi", "openmpi-bin");
    for case in cases() {
        let mut words = case.command("Open MPI 4, ranks on their nodes, cores left to the system");
        words[0] = "mpirun.openmpi".to_owned();
        case.check_nodes(&case.run(&words, &[], &["sh", "-c", SAY]));
    }
}

/// Debian has no Open MPI 5: TOWLINE_OPENMPI5 names the folder of one, such as that of the wheel of PyPI.
#[test]
fn open_mpi_5_follows_rankfile_and_sequence() {
    let Some(folder) = std::env::var_os("TOWLINE_OPENMPI5") else {
        eprintln!("skipped: TOWLINE_OPENMPI5 names no Open MPI 5");
        return;
    };
    let mpirun = Path::new(&folder).join("bin/mpirun").display().to_string();
    for case in cases() {
        for what in [
            "Open MPI 5, ranks on their cores",
            "Open MPI 5, ranks on their nodes",
        ] {
            let mut words = case.command(what);
            words[0].clone_from(&mpirun);
            case.check_nodes(&case.run(&words, &[], &["sh", "-c", SAY]));
        }
    }
}

#[test]
fn mpich_follows_the_machinefile() {
    require("mpiexec.hydra", "mpich");
    for case in cases() {
        let mut words = case.command("MPICH");
        words[0] = "mpiexec.hydra".to_owned();
        // The binding names cores that only the emulated nodes have.
        if let Some(at) = words.iter().position(|word| word == "-bind-to") {
            words.drain(at..at + 2);
        }
        let shell = case.path("shell").display().to_string();
        let more = ["-launcher", "ssh", "-launcher-exec", shell.as_str()];
        case.check_nodes(&case.run(&words, &more, &["sh", "-c", SAY]));
    }
}

/// A placement that is not the order of cores, on the cores that there are.
#[test]
fn ranks_run_on_their_cores_of_this_machine() {
    require("mpirun.openmpi", "openmpi-bin");
    require("mpiexec.hydra", "mpich");
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("skipped: this machine has one core");
        return;
    }
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let text = NODES
        .replace("alpha,beta,gamma,delta", name.trim())
        .replace("sockets = 2\ncores = 3", "cores = 2");
    let cluster = Cluster::from_toml(&text, "test").unwrap();
    let slot = |core| towline_place::Slot {
        node: 0,
        core,
        thread: 0,
    };
    let placement = Placement::new("turned", vec![slot(1), slot(0)], &cluster).unwrap();
    let case = Case::new(cluster, placement);
    let say = "echo \"at ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} $(taskset -pc $$ | sed 's/.*: //')\"";
    for (what, program) in [
        ("Open MPI 4, ranks on their cores", "mpirun.openmpi"),
        ("MPICH", "mpiexec.hydra"),
    ] {
        let mut words: Vec<String> = ["env", "-u", "HWLOC_SYNTHETIC", "-u", "HWLOC_THISSYSTEM"]
            .map(str::to_owned)
            .into();
        let mut command = case.command(what);
        command[0] = program.to_owned();
        words.extend(command);
        let text = case.run(&words, &[], &["sh", "-c", say]);
        let mut lines: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("at "))
            .collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            ["at 0 1", "at 1 0"],
            "{program} of {} ranks: {text}",
            case.ranks()
        );
    }
}
