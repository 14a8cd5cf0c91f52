//! The files for Slurm, given to a real controller with four nodes' daemons on this machine.
//!
//! It needs root and the packages munge, slurmctld, slurmd and slurm-client; Debian's slurm-wlm-emulator must not be there, since it
//! takes the daemons' names. Everything runs below a folder of its own, on ports of its own, and is ended by its process ids.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use towline_place::cluster::slurm;
use towline_place::program::declared::scrambled_halo;
use towline_place::score::Sockets;
use towline_place::{Cluster, Matrix, Placement, Policy, launcher, search};

const CONF: &str = "ClusterName=towline\nSlurmctldHost=HOST(127.0.0.1)\nSlurmctldPort=47817\nSlurmUser=root\nSlurmdUser=root\n\
AuthType=auth/munge\nAuthInfo=socket=DIR/munge.sock\nCredType=cred/munge\nStateSaveLocation=DIR/state\n\
SlurmctldPidFile=DIR/slurmctld.pid\nSlurmctldLogFile=DIR/slurmctld.log\nSlurmdSpoolDir=DIR/spool.%n\n\
SlurmdPidFile=DIR/slurmd.%n.pid\nSlurmdLogFile=DIR/slurmd.%n.log\nSlurmdParameters=config_overrides\n\
ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
MailProg=/bin/true\nReturnToService=2\nSwitchType=switch/none\nMpiDefault=none\n\
NodeName=n[0-3] NodeHostname=HOST NodeAddr=127.0.0.1 Port=[47901-47904] CPUs=6 SocketsPerBoard=2 CoresPerSocket=3\n\
PartitionName=p Nodes=n[0-3] Default=YES State=UP\n";

/// Daemons that end with it.
struct Slurm {
    folder: tempfile::TempDir,
}

impl Slurm {
    fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("slurm")
            .tempdir_in("/tmp")
            .unwrap();
        let slurm = Self { folder };
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let conf = CONF
            .replace("DIR", &slurm.folder.path().display().to_string())
            .replace("HOST", host.trim());
        fs::write(slurm.path("slurm.conf"), conf).unwrap();
        fs::create_dir(slurm.path("state")).unwrap();
        let key = slurm.path("key");
        fs::write(&key, format!("{:?}", Instant::now()).repeat(8)).unwrap();
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        let at = |option: &str, name: &str| format!("--{option}={}", slurm.path(name).display());
        slurm.run(
            "munged",
            &[
                "--force",
                &at("socket", "munge.sock"),
                &at("key-file", "key"),
                &at("pid-file", "munged.pid"),
                &at("log-file", "munged.log"),
                &at("seed-file", "seed"),
            ],
        );
        slurm.run(
            "slurmctld",
            &["-f", &slurm.path("slurm.conf").display().to_string()],
        );
        for node in ["n0", "n1", "n2", "n3"] {
            fs::create_dir(slurm.path(&format!("spool.{node}"))).unwrap();
            slurm.run(
                "slurmd",
                &[
                    "-f",
                    &slurm.path("slurm.conf").display().to_string(),
                    "-N",
                    node,
                ],
            );
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while slurm.run("sinfo", &["--noheader", "--format=%D %T"]) != "4 idle\n" {
            assert!(Instant::now() < deadline, "{}", slurm.run("sinfo", &["-N"]));
            sleep(Duration::from_millis(100));
        }
        slurm
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn output(&self, program: &str, arguments: &[&str], folder: &Path) -> Output {
        // Slurm's clients wait for minutes for a controller that is gone.
        Command::new("timeout")
            .arg("60")
            .arg(program)
            .args(arguments)
            .current_dir(folder)
            .env("SLURM_CONF", self.path("slurm.conf"))
            .output()
            .unwrap()
    }

    fn run_in(&self, program: &str, arguments: &[&str], folder: &Path) -> String {
        let output = self.output(program, arguments, folder);
        let (text, errors) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {text}{errors}"
        );
        text.into_owned()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        self.run_in(program, arguments, self.folder.path())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let daemons = [
            "slurmd.n0",
            "slurmd.n1",
            "slurmd.n2",
            "slurmd.n3",
            "slurmctld",
            "munged",
        ];
        for daemon in daemons {
            let Ok(pid) = fs::read_to_string(self.path(&format!("{daemon}.pid"))) else {
                continue;
            };
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        let alive = |daemon: &str| self.path(&format!("{daemon}.pid")).exists();
        while daemons.iter().any(|daemon| alive(daemon)) && Instant::now() < deadline {
            sleep(Duration::from_millis(50));
        }
    }
}

fn check(text: &str, cluster: &Cluster, placement: &Placement) {
    let mut found: Vec<(usize, &str)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("at ")?.split_once(' '))
        .map(|(rank, node)| (rank.parse().unwrap(), node))
        .collect();
    found.sort_unstable();
    let slots = placement.slots.iter().enumerate();
    let expected: Vec<(usize, &str)> = slots
        .map(|(rank, slot)| (rank, cluster.nodes[slot.node as usize].name.as_str()))
        .collect();
    assert_eq!(found, expected, "{}: {text}", placement.name);
}

#[test]
fn slurm_follows_its_hostfile_and_batch_script() {
    let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let there = Command::new("sh")
        .args(["-c", "command -v slurmctld slurmd munged srun"])
        .output()
        .unwrap();
    if !root || !there.status.success() {
        eprintln!("skipped: it needs root and Slurm: run `scripts/setup test` as root");
        return;
    }
    let slurm = Slurm::start();
    let nodes = slurm.run("scontrol", &["--oneliner", "show", "nodes"]);
    let cluster = slurm::cluster(&nodes, None, "scontrol").unwrap();
    let shape: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), node.sockets.clone()))
        .collect();
    assert_eq!(
        shape,
        ["n0", "n1", "n2", "n3"].map(|name| (name, vec![3, 3]))
    );

    let matrix = Matrix::of(&scrambled_halo(4, 4, 100_000));
    let mapped = search::search(&cluster, &matrix, &Sockets::default(), false).unwrap();
    let turns = Policy::RoundRobin(2).place(&cluster, 14, false).unwrap();
    let few = Policy::Block.place(&cluster, 8, false).unwrap();
    for placement in [mapped, turns, few] {
        let folder = slurm.path(&placement.name.replace(':', ""));
        launcher::files(&cluster, &placement, None)
            .write(&folder)
            .unwrap();
        let say = ["sh", "-c", "echo \"at $SLURM_PROCID $SLURMD_NODENAME\""];
        let ranks = format!("--ntasks={}", placement.ranks());
        let hosts = format!("SLURM_HOSTFILE={}", folder.join("slurm.hosts").display());
        let direct = [
            &[hosts.as_str(), "srun", &ranks, "--distribution=arbitrary"],
            &say[..],
        ]
        .concat();
        check(&slurm.run("env", &direct), &cluster, &placement);

        let script = folder.join("say");
        fs::write(
            &script,
            "#!/bin/sh\necho \"at $SLURM_PROCID $SLURMD_NODENAME\"\n",
        )
        .unwrap();
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let script = script.display().to_string();
        slurm.run_in(
            "sbatch",
            &["--wait", "--output=job.out", "slurm.sbatch", &script],
            &folder,
        );
        check(
            &fs::read_to_string(folder.join("job.out")).unwrap(),
            &cluster,
            &placement,
        );
    }
}
