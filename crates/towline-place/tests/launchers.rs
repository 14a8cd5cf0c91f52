//! The files that are written, given to the launchers themselves: real `mpirun` and `mpiexec` put ranks exactly where the
//! placement says.
//!
//! Nodes are emulated on one machine: the launchers reach each through a remote shell, and ours gives it a name of its own (a UTS
//! namespace) and nothing else. Cores are emulated by hwloc's synthetic topologies; that bindings take effect is tested with nodes
//! that have the machine's own two cores each.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use support::{is_root, mpi_program, nodes, nodes_and_cores, require, said};
use towline_place::choose::Wishes;
use towline_place::program::declared::scrambled_halo;
use towline_place::score::Sockets;
use towline_place::{Cluster, Matrix, Placement, Policy, Slot, launcher, search};

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
        let namespaces = if is_root() {
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

    /// Runs a command of the README with more arguments for the launcher.
    fn run(&self, words: &[String], more: &[&str], program: &[&str]) -> String {
        // Open MPI 5's launcher now and then waits for ever, mostly when all that it started has ended.
        let may_hang = words.iter().any(|word| word == "--map-by");
        let (tries, limit) = if may_hang { (5, "40") } else { (1, "120") };
        for _ in 0..tries {
            let (status, text) = self.attempt(limit, words, more, program);
            let hung = may_hang && status.code() == Some(124);
            assert!(status.success() || hung, "{words:?}: {text}");
            if status.success() || said(&text).len() == self.placement.ranks() {
                return text;
            }
        }
        panic!("{words:?} hangs each time");
    }

    fn attempt(
        &self,
        limit: &str,
        words: &[String],
        more: &[&str],
        program: &[&str],
    ) -> (ExitStatus, String) {
        let (name, arguments) = words.split_first().unwrap();
        let output = Command::new("timeout")
            .args(["--kill-after=10", limit])
            .arg(name)
            .args(more)
            .args(arguments)
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
        (output.status, text)
    }

    /// Where the ranks said they were.
    fn check_nodes(&self, text: &str) {
        let expected = nodes(&self.cluster, &self.placement);
        assert_eq!(said(text), expected, "{}: {text}", self.placement.name);
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
    let mapped =
        search::search(&cluster, &matrix, &Sockets::default(), &Wishes::default()).unwrap();
    let fixed = [("rr:2", 12), ("rr:1", 10), ("plane:4", 9)];
    let fixed = fixed.map(|(policy, tasks)| {
        let policy: Policy = policy.parse().unwrap();
        policy.place(&cluster, tasks, false).unwrap()
    });
    let placements = fixed.into_iter().chain([mapped]);
    placements
        .map(|placement| Case::new(cluster.clone(), placement))
        .collect()
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

/// Debian 12 has no Open MPI 5: `scripts/setup test` brings PyPI's; TOWLINE_OPENMPI5 names the folder of another.
fn open_mpi_5() -> Option<String> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/openmpi5");
    let folder = std::env::var_os("TOWLINE_OPENMPI5").map_or(ours, PathBuf::from);
    let mpirun = folder.join("bin/mpirun");
    if !mpirun.exists() {
        eprintln!("skipped: no {}: run `scripts/setup test`", mpirun.display());
        return None;
    }
    Some(mpirun.display().to_string())
}

#[test]
fn open_mpi_5_follows_rankfile_and_sequence() {
    let Some(mpirun) = open_mpi_5() else {
        return;
    };
    for case in cases() {
        for what in [
            "Open MPI 5, ranks on their cores",
            "Open MPI 5, ranks on their nodes, cores left to the system",
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
        let mut words = case.command("MPICH, outside of Slurm's jobs");
        words[0] = "mpiexec.hydra".to_owned();
        // The binding names cores that only the emulated nodes have.
        let binding = words.iter().position(|word| word == "-bind-to").unwrap();
        words.truncate(binding);
        let shell = case.path("shell").display().to_string();
        let more = ["-launcher", "ssh", "-launcher-exec", shell.as_str()];
        case.check_nodes(&case.run(&words, &more, &["sh", "-c", SAY]));
    }
}

/// Nodes that are not filled in order, on cores that are not in order: the two that there are, and real programs of both MPIs.
#[test]
fn ranks_run_on_their_cores_of_their_nodes() {
    require("mpirun.openmpi", "openmpi-bin");
    require("mpiexec.hydra", "mpich");
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("skipped: this machine has one core");
        return;
    }
    let two_cores = NODES.replace("sockets = 2\ncores = 3", "cores = 2");
    let cluster = Cluster::from_toml(&two_cores, "test").unwrap();
    let case = |name: &str, slots: [(u32, u32); 5]| {
        let slot = |(node, core)| Slot {
            node,
            core,
            thread: 0,
        };
        let placement = Placement::new(name, slots.map(slot).into(), &cluster).unwrap();
        Case::new(cluster.clone(), placement)
    };
    let turns = case("turns", [(2, 1), (0, 1), (2, 0), (0, 0), (3, 1)]);
    let blocks = case("blocks", [(2, 1), (2, 0), (0, 1), (0, 0), (3, 1)]);
    let start = |case: &Case, what: &str, launcher: &str, more: &[&str], program: &[&str]| {
        let mut words: Vec<String> = ["env", "-u", "HWLOC_SYNTHETIC", "-u", "HWLOC_THISSYSTEM"]
            .map(str::to_owned)
            .into();
        words.push(launcher.to_owned());
        words.extend(more.iter().map(|&word| word.to_owned()));
        words.extend_from_slice(&case.command(what)[1..]);
        let text = case.run(&words, &[], program);
        let expected = nodes_and_cores(&case.cluster, &case.placement);
        assert_eq!(said(&text), expected, "{launcher}: {text}");
    };
    let check = |case: &Case, what: &str, launcher: &str, more: &[&str], compiler: &str| {
        let program = mpi_program(compiler, "its MPI's -dev package", case.folder.path());
        start(case, what, launcher, more, &[program.to_str().unwrap()]);
    };
    for case in [&turns, &blocks] {
        let what = "Open MPI 4, ranks on their cores";
        check(case, what, "mpirun.openmpi", &[], "mpicc.openmpi");
    }
    let shell = blocks.path("shell").display().to_string();
    let ssh = ["-launcher", "ssh", "-launcher-exec", shell.as_str()];
    let what = "MPICH, outside of Slurm's jobs";
    for (case, binding) in [(&blocks, "user:"), (&turns, "./on-core")] {
        let command = case.command(what).join(" ");
        assert!(command.contains(binding), "{command}");
        check(case, what, "mpiexec.hydra", &ssh, "mpicc.mpich");
    }
    if let Some(mpirun) = open_mpi_5() {
        // There may be no compiler for it.
        let say =
            "echo at $PMIX_RANK $(hostname) $(sed -n 's/^Cpus_allowed_list://p' /proc/self/status)";
        for case in [&turns, &blocks] {
            let what = "Open MPI 5, ranks on their cores";
            start(case, what, &mpirun, &[], &["sh", "-c", say]);
        }
    }
}
